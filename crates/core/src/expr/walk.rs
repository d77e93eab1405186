//! Looking through a typed tree: what it reads, and where null could still meet an operator.

use super::tree::{Binary, Expr, Function, Kind, Path, Root};
use crate::diagnostic::Span;

/// Every part of the tree, each before its own parts.
pub fn walk(expr: &Expr, visit: &mut dyn FnMut(&Expr)) {
    visit(expr);
    match &expr.kind {
        Kind::Const(_) | Kind::Read(_) => {}
        Kind::Not(inner) | Kind::Negate(inner) => walk(inner, visit),
        Kind::And(left, right) | Kind::Or(left, right) | Kind::Binary(_, left, right) => {
            walk(left, visit);
            walk(right, visit);
        }
        Kind::If(condition, yes, no) => {
            walk(condition, visit);
            walk(yes, visit);
            walk(no, visit);
        }
        Kind::Call(_, parts) | Kind::List(parts) => {
            for part in parts {
                walk(part, visit);
            }
        }
        Kind::Comprehension { range, body, .. } => {
            walk(range, visit);
            walk(body, visit);
        }
    }
}

/// The checks whose answers the expression reads, by index, in order and each once.
pub fn checks_read(expr: &Expr) -> Vec<u16> {
    let mut checks = Vec::new();
    walk(expr, &mut |part| {
        if let Kind::Read(Path { root: Root::Answer { check, .. }, .. }) = part.kind {
            checks.push(check);
        }
    });
    checks.sort_unstable();
    checks.dedup();
    checks
}

/// Every path the expression reads, in order.
pub fn paths_read(expr: &Expr) -> Vec<Path> {
    let mut paths = Vec::new();
    walk(expr, &mut |part| {
        if let Kind::Read(path) = &part.kind {
            paths.push(path.clone());
        }
    });
    paths
}

/// A place where a null would be a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NullRisk {
    pub at: Span,
    /// What may be null there, where it is a path; proving that it is not removes the risk.
    pub path: Option<Path>,
}

/// Whether the expression's own value may be null, given paths known from elsewhere not to be.
pub fn may_be_null(expr: &Expr, known: &[Path]) -> bool {
    if !expr.typed.nullable {
        return false;
    }
    match &expr.kind {
        Kind::Read(path) => !known.contains(path),
        Kind::If(_, yes, no) => may_be_null(yes, known) || may_be_null(no, known),
        Kind::Call(Function::Max | Function::Min, parts) => parts.iter().all(|part| may_be_null(part, known)),
        _ => true,
    }
}

/// The places inside the expression where a null may meet an operator that takes none, or a field is read of a ref
/// that may be null. Tests inside the expression (`x != null && …`) were taken into account when it was compiled;
/// `known` adds what the caller has proved. Empty means that null can be no reason for a fault.
pub fn null_risks(expr: &Expr, known: &[Path]) -> Vec<NullRisk> {
    let mut risks = Vec::new();
    walk(expr, &mut |part| {
        if let Kind::Read(path) = &part.kind {
            for step in &path.doubtful {
                let prefix = Path {
                    root: path.root,
                    steps: path.steps[..usize::from(*step).min(path.steps.len())].to_vec(),
                    doubtful: Vec::new(),
                };
                if !known.contains(&prefix) {
                    risks.push(NullRisk { at: part.at, path: Some(prefix) });
                }
            }
        }
        for operand in strict_operands(part) {
            operand_risks(operand, known, &mut risks);
        }
    });
    risks
}

/// The reads inside an operand that could make it null.
fn operand_risks(operand: &Expr, known: &[Path], risks: &mut Vec<NullRisk>) {
    if !may_be_null(operand, known) {
        return;
    }
    match &operand.kind {
        Kind::Read(path) => {
            let path = Path { doubtful: Vec::new(), ..path.clone() };
            risks.push(NullRisk { at: operand.at, path: Some(path) });
        }
        Kind::If(_, yes, no) => {
            operand_risks(yes, known, risks);
            operand_risks(no, known, risks);
        }
        _ => risks.push(NullRisk { at: operand.at, path: None }),
    }
}

/// The parts that must not be null for this part to have a value.
fn strict_operands(expr: &Expr) -> Vec<&Expr> {
    match &expr.kind {
        Kind::Const(_)
        | Kind::Read(_)
        | Kind::Call(Function::Max | Function::Min, _)
        | Kind::Binary(Binary::Equal | Binary::NotEqual, _, _) => Vec::new(),
        Kind::Not(inner) | Kind::Negate(inner) => vec![inner],
        Kind::If(condition, _, _) => vec![condition],
        Kind::And(left, right) | Kind::Or(left, right) | Kind::Binary(_, left, right) => vec![left, right],
        Kind::Call(_, parts) | Kind::List(parts) => parts.iter().collect(),
        Kind::Comprehension { range, body, .. } => vec![range, body],
    }
}
