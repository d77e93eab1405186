//! Which paths cannot be null once an expression has been evaluated: what makes `x != null && x > now` sound.

use super::tree::{Binary, Expr, Function, Kind, Path, Root};
use crate::value::Value;

/// The paths that are not null if `expr` was evaluated without a fault and, where it is a condition, came to `truth`.
pub fn learned(expr: &Expr, truth: Option<bool>) -> Vec<Path> {
    match truth {
        Some(true) => condition(expr).yes,
        Some(false) => condition(expr).no,
        None => outcome(expr).either_way(),
    }
}

/// What is known either way; both alike for what is no condition. Found for each part once, from the leaves up, so
/// that the work grows with the size of the expression and not with the ways through it.
#[derive(Clone, Default)]
struct Outcome {
    yes: Vec<Path>,
    no: Vec<Path>,
}

impl Outcome {
    fn both(facts: Vec<Path>) -> Self {
        Self { yes: facts.clone(), no: facts }
    }

    fn either_way(self) -> Vec<Path> {
        common(self.yes, &self.no)
    }
}

fn outcome(expr: &Expr) -> Outcome {
    match &expr.kind {
        Kind::Const(_) => Outcome::default(),
        Kind::Read(path) => Outcome::both(passed(path)),
        Kind::Not(inner) => {
            let Outcome { yes, no } = condition(inner);
            Outcome { yes: no, no: yes }
        }
        Kind::And(left, right) => {
            let (left, right) = (condition(left), condition(right));
            let no = common(left.no, &union(left.yes.clone(), &right.no));
            Outcome { yes: union(left.yes, &right.yes), no }
        }
        Kind::Or(left, right) => {
            let (left, right) = (condition(left), condition(right));
            let yes = common(left.yes, &union(left.no.clone(), &right.yes));
            Outcome { yes, no: union(left.no, &right.no) }
        }
        Kind::If(test, yes, no) => {
            let (test, yes, no) = (condition(test), outcome(yes), outcome(no));
            let merged = |yes: &[Path], no: &[Path]| common(union(test.yes.clone(), yes), &union(test.no.clone(), no));
            Outcome { yes: merged(&yes.yes, &no.yes), no: merged(&yes.no, &no.no) }
        }
        Kind::Binary(Binary::Equal, left, right) => equality(left, right),
        Kind::Binary(Binary::NotEqual, left, right) => {
            let Outcome { yes, no } = equality(left, right);
            Outcome { yes: no, no: yes }
        }
        Kind::Negate(inner) => Outcome::both(strict([&**inner])),
        Kind::Binary(_, left, right) => Outcome::both(strict([&**left, &**right])),
        Kind::Call(Function::Max | Function::Min, arguments) => {
            let facts = arguments.iter().map(|argument| outcome(argument).either_way());
            Outcome::both(facts.fold(Vec::new(), |all, facts| union(all, &facts)))
        }
        Kind::Call(_, elements) | Kind::List(elements) => Outcome::both(strict(elements)),
        // The body may never have run.
        Kind::Comprehension { range, .. } => Outcome::both(strict([&**range])),
    }
}

/// A part that had to be true or false, and so was not null.
fn condition(expr: &Expr) -> Outcome {
    let mut outcome = outcome(expr);
    known(expr, &mut outcome.yes);
    known(expr, &mut outcome.no);
    outcome
}

/// Operands that must not be null were not.
fn strict<'e>(operands: impl IntoIterator<Item = &'e Expr>) -> Vec<Path> {
    let mut facts = Vec::new();
    for operand in operands {
        facts = union(facts, &outcome(operand).either_way());
        known(operand, &mut facts);
    }
    facts
}

fn known(operand: &Expr, facts: &mut Vec<Path>) {
    if let Kind::Read(path) = &operand.kind
        && !facts.contains(path)
    {
        facts.push(path.clone());
    }
}

/// To reach the end of a path, no record on the way can have been null.
fn passed(path: &Path) -> Vec<Path> {
    let first = usize::from(path.root == Root::Record);
    let prefix = |length| Path { root: path.root, steps: path.steps[..length].to_vec(), doubtful: Vec::new() };
    (first..path.steps.len()).map(prefix).collect()
}

fn equality(left: &Expr, right: &Expr) -> Outcome {
    let is_null = |expr: &Expr| matches!(expr.kind, Kind::Const(Value::Null));
    let facts = union(outcome(left).either_way(), &outcome(right).either_way());
    let mut found = Outcome::both(facts);
    for (one, other) in [(left, right), (right, left)] {
        if !other.typed.nullable {
            known(one, &mut found.yes);
        }
        if is_null(other) {
            known(one, &mut found.no);
        }
    }
    found
}

fn union(mut one: Vec<Path>, other: &[Path]) -> Vec<Path> {
    for path in other {
        if !one.contains(path) {
            one.push(path.clone());
        }
    }
    one
}

fn common(mut one: Vec<Path>, other: &[Path]) -> Vec<Path> {
    one.retain(|path| other.contains(path));
    one
}
