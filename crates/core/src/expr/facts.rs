//! Which paths cannot be null once an expression has been evaluated: what makes `x != null && x > now` sound.

use super::tree::{Binary, Expr, Function, Kind, Path, Root};
use crate::value::Value;

/// The paths that are not null if `expr` was evaluated without a fault and, where it is a condition, came to `truth`.
pub(crate) fn learned(expr: &Expr, truth: Option<bool>) -> Vec<Path> {
    let mut facts = Vec::new();
    learn(expr, truth, &mut facts);
    facts
}

fn learn(expr: &Expr, truth: Option<bool>, facts: &mut Vec<Path>) {
    match &expr.kind {
        Kind::Const(_) => {}
        Kind::Read(path) => passed(path, facts),
        Kind::Not(inner) => {
            strict(inner, facts);
            learn(inner, truth.map(|truth| !truth), facts);
        }
        Kind::Negate(inner) => strict(inner, facts),
        Kind::And(left, right) => logic(left, right, truth, true, facts),
        Kind::Or(left, right) => logic(left, right, truth, false, facts),
        Kind::If(condition, yes, no) => {
            let branch = |held: bool, value: &Expr| {
                let mut facts = learned(condition, Some(held));
                learn(value, truth, &mut facts);
                facts
            };
            facts.extend(common(branch(true, yes), &branch(false, no)));
        }
        Kind::Binary(Binary::Equal, left, right) => equal(left, right, truth, facts),
        Kind::Binary(Binary::NotEqual, left, right) => equal(left, right, truth.map(|truth| !truth), facts),
        Kind::Binary(_, left, right) => {
            strict(left, facts);
            strict(right, facts);
        }
        Kind::Call(Function::Max | Function::Min, arguments) => {
            for argument in arguments {
                learn(argument, None, facts);
            }
        }
        Kind::Call(_, elements) | Kind::List(elements) => {
            for element in elements {
                strict(element, facts);
            }
        }
        // The body may never have run.
        Kind::Comprehension { range, .. } => strict(range, facts),
    }
}

/// An operand that must not be null was not.
fn strict(operand: &Expr, facts: &mut Vec<Path>) {
    learn(operand, None, facts);
    known(operand, facts);
}

fn known(operand: &Expr, facts: &mut Vec<Path>) {
    if let Kind::Read(path) = &operand.kind
        && !facts.contains(path)
    {
        facts.push(path.clone());
    }
}

/// To reach the end of a path, no record on the way can have been null.
fn passed(path: &Path, facts: &mut Vec<Path>) {
    let first = usize::from(path.root == Root::Record);
    for length in first..path.steps.len() {
        let prefix = Path { root: path.root, steps: path.steps[..length].to_vec(), doubtful: Vec::new() };
        if !facts.contains(&prefix) {
            facts.push(prefix);
        }
    }
}

/// `&&` where `both` is true, else `||`: the right side was evaluated only where the left came to `both`.
fn logic(left: &Expr, right: &Expr, truth: Option<bool>, both: bool, facts: &mut Vec<Path>) {
    let mut through = learned(left, Some(both));
    known(left, &mut through);
    if truth == Some(both) {
        learn(right, truth, &mut through);
        known(right, &mut through);
        facts.extend(through);
        return;
    }
    learn(right, truth, &mut through);
    let mut decided = learned(left, Some(!both));
    known(left, &mut decided);
    facts.extend(common(through, &decided));
}

fn equal(left: &Expr, right: &Expr, truth: Option<bool>, facts: &mut Vec<Path>) {
    learn(left, None, facts);
    learn(right, None, facts);
    let is_null = |expr: &Expr| matches!(expr.kind, Kind::Const(Value::Null));
    match truth {
        Some(true) => {
            if !right.typed.nullable {
                known(left, facts);
            }
            if !left.typed.nullable {
                known(right, facts);
            }
        }
        Some(false) => {
            if is_null(right) {
                known(left, facts);
            }
            if is_null(left) {
                known(right, facts);
            }
        }
        None => {}
    }
}

fn common(mut one: Vec<Path>, other: &[Path]) -> Vec<Path> {
    one.retain(|path| other.contains(path));
    one
}
