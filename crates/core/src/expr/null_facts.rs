//! Infers which paths cannot be null after an expression was evaluated. This makes `x != null && x > now` sound.

use super::tree::{BinaryOperator, BuiltinFunction, Expr, ExprKind, PathRoot, ValuePath};
use crate::value::Value;

/// Returns the paths that are not null if `expr` was evaluated without a fault and, if `truth` is given, returned
/// `truth`.
pub fn non_null_paths(expr: &Expr, truth: Option<bool>) -> Vec<ValuePath> {
    match truth {
        Some(true) => condition_facts(expr).if_true,
        Some(false) => condition_facts(expr).if_false,
        None => branch_facts(expr).in_both_branches(),
    }
}

/// Facts for a true and for a false result; both are equal if the expression is not a condition.
///
/// The facts of each node are computed once, from the leaves up. The cost therefore grows with the size of the
/// expression, not with its number of branches.
#[derive(Clone, Default)]
struct BranchFacts {
    if_true: Vec<ValuePath>,
    if_false: Vec<ValuePath>,
}

impl BranchFacts {
    fn unconditional(facts: Vec<ValuePath>) -> Self {
        Self { if_true: facts.clone(), if_false: facts }
    }

    /// Returns the paths that are not null whatever the result is.
    fn in_both_branches(self) -> Vec<ValuePath> {
        intersection(self.if_true, &self.if_false)
    }
}

/// Returns the paths that are not null after the expression was true, and after it was false.
fn branch_facts(expr: &Expr) -> BranchFacts {
    match &expr.kind {
        ExprKind::Const(_) => BranchFacts::default(),
        ExprKind::Read(path) => BranchFacts::unconditional(traversed_prefixes(path)),
        ExprKind::Not(inner) => {
            let BranchFacts { if_true: yes, if_false: no } = condition_facts(inner);
            BranchFacts { if_true: no, if_false: yes }
        }
        ExprKind::And(left, right) => {
            let (left, right) = (condition_facts(left), condition_facts(right));
            let no = intersection(left.if_false, &union(left.if_true.clone(), &right.if_false));
            BranchFacts { if_true: union(left.if_true, &right.if_true), if_false: no }
        }
        ExprKind::Or(left, right) => {
            let (left, right) = (condition_facts(left), condition_facts(right));
            let yes = intersection(left.if_true, &union(left.if_false.clone(), &right.if_true));
            BranchFacts { if_true: yes, if_false: union(left.if_false, &right.if_false) }
        }
        ExprKind::If(test, yes, no) => {
            let (test, yes, no) = (condition_facts(test), branch_facts(yes), branch_facts(no));
            let merged = |yes: &[ValuePath], no: &[ValuePath]| {
                intersection(union(test.if_true.clone(), yes), &union(test.if_false.clone(), no))
            };
            BranchFacts { if_true: merged(&yes.if_true, &no.if_true), if_false: merged(&yes.if_false, &no.if_false) }
        }
        ExprKind::Binary(BinaryOperator::Equal, left, right) => equality_facts(left, right),
        ExprKind::Binary(BinaryOperator::NotEqual, left, right) => {
            let BranchFacts { if_true: yes, if_false: no } = equality_facts(left, right);
            BranchFacts { if_true: no, if_false: yes }
        }
        ExprKind::Negate(inner) => BranchFacts::unconditional(operand_facts([&**inner])),
        ExprKind::Binary(_, left, right) => BranchFacts::unconditional(operand_facts([&**left, &**right])),
        ExprKind::Call(BuiltinFunction::Max | BuiltinFunction::Min, arguments) => {
            let facts = arguments.iter().map(|argument| branch_facts(argument).in_both_branches());
            BranchFacts::unconditional(facts.fold(Vec::new(), |all, facts| union(all, &facts)))
        }
        ExprKind::Call(_, elements) | ExprKind::List(elements) => BranchFacts::unconditional(operand_facts(elements)),
        // The body may never have run.
        ExprKind::Comprehension { range, .. } => BranchFacts::unconditional(operand_facts([&**range])),
    }
}

/// Returns the facts of a condition. A condition that returned true or false was not null.
fn condition_facts(expr: &Expr) -> BranchFacts {
    let mut outcome = branch_facts(expr);
    add_read_path(expr, &mut outcome.if_true);
    add_read_path(expr, &mut outcome.if_false);
    outcome
}

/// Returns the facts of operands that must not be null.
fn operand_facts<'e>(operands: impl IntoIterator<Item = &'e Expr>) -> Vec<ValuePath> {
    let mut facts = Vec::new();
    for operand in operands {
        facts = union(facts, &branch_facts(operand).in_both_branches());
        add_read_path(operand, &mut facts);
    }
    facts
}

fn add_read_path(operand: &Expr, facts: &mut Vec<ValuePath>) {
    if let ExprKind::Read(path) = &operand.kind
        && !facts.contains(path)
    {
        facts.push(path.clone());
    }
}

/// Returns the prefixes of a path that refer to records. None of them is null if the path was read to its end.
fn traversed_prefixes(path: &ValuePath) -> Vec<ValuePath> {
    let first = usize::from(path.root == PathRoot::Record);
    let prefix =
        |length| ValuePath { root: path.root, steps: path.steps[..length].to_vec(), nullable_steps: Vec::new() };
    (first..path.steps.len()).map(prefix).collect()
}

fn equality_facts(left: &Expr, right: &Expr) -> BranchFacts {
    let is_null = |expr: &Expr| matches!(expr.kind, ExprKind::Const(Value::Null));
    let facts = union(branch_facts(left).in_both_branches(), &branch_facts(right).in_both_branches());
    let mut found = BranchFacts::unconditional(facts);
    for (one, other) in [(left, right), (right, left)] {
        if !other.value_type.nullable {
            add_read_path(one, &mut found.if_true);
        }
        if is_null(other) {
            add_read_path(one, &mut found.if_false);
        }
    }
    found
}

fn union(mut one: Vec<ValuePath>, other: &[ValuePath]) -> Vec<ValuePath> {
    for path in other {
        if !one.contains(path) {
            one.push(path.clone());
        }
    }
    one
}

fn intersection(mut one: Vec<ValuePath>, other: &[ValuePath]) -> Vec<ValuePath> {
    one.retain(|path| other.contains(path));
    one
}
