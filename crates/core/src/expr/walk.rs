//! Looking through a typed tree: what it reads, and where null could still meet an operator.

use super::tree::{BinaryOperator, BuiltinFunction, Expr, ExprKind, PathRoot, ValuePath};
use crate::diagnostic::Span;

/// Every part of the tree, each before its own parts.
pub fn walk(expr: &Expr, visit: &mut dyn FnMut(&Expr)) {
    visit(expr);
    match &expr.kind {
        ExprKind::Const(_) | ExprKind::Read(_) => {}
        ExprKind::Not(inner) | ExprKind::Negate(inner) => walk(inner, visit),
        ExprKind::And(left, right) | ExprKind::Or(left, right) | ExprKind::Binary(_, left, right) => {
            walk(left, visit);
            walk(right, visit);
        }
        ExprKind::If(condition, yes, no) => {
            walk(condition, visit);
            walk(yes, visit);
            walk(no, visit);
        }
        ExprKind::Call(_, parts) | ExprKind::List(parts) => {
            for part in parts {
                walk(part, visit);
            }
        }
        ExprKind::Comprehension { range, body, .. } => {
            walk(range, visit);
            walk(body, visit);
        }
    }
}

/// The checks whose answers the expression reads, by index, in order and each once.
pub fn referenced_checks(expr: &Expr) -> Vec<u16> {
    let mut checks = Vec::new();
    walk(expr, &mut |part| {
        if let ExprKind::Read(ValuePath { root: PathRoot::Answer { check, .. }, .. }) = part.kind {
            checks.push(check);
        }
    });
    checks.sort_unstable();
    checks.dedup();
    checks
}

/// Every path the expression reads, in order.
pub fn referenced_paths(expr: &Expr) -> Vec<ValuePath> {
    let mut paths = Vec::new();
    walk(expr, &mut |part| {
        if let ExprKind::Read(path) = &part.kind {
            paths.push(path.clone());
        }
    });
    paths
}

/// A place where a null would be a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NullRisk {
    pub span: Span,
    /// What may be null there, where it is a path; proving that it is not removes the risk.
    pub path: Option<ValuePath>,
}

/// Whether the expression's own value may be null, given paths known from elsewhere not to be.
pub fn can_be_null(expr: &Expr, non_null: &[ValuePath]) -> bool {
    if !expr.value_type.nullable {
        return false;
    }
    match &expr.kind {
        ExprKind::Read(path) => !non_null.contains(path),
        ExprKind::If(_, yes, no) => can_be_null(yes, non_null) || can_be_null(no, non_null),
        ExprKind::Call(BuiltinFunction::Max | BuiltinFunction::Min, parts) => {
            parts.iter().all(|part| can_be_null(part, non_null))
        }
        _ => true,
    }
}

/// The places inside the expression where a null may meet an operator that takes none, or a field is read of a ref
/// that may be null. Tests inside the expression (`x != null && …`) were taken into account when it was compiled;
/// `known` adds what the caller has proved. Empty means that null can be no reason for a fault.
pub fn null_risks(expr: &Expr, non_null: &[ValuePath]) -> Vec<NullRisk> {
    let mut risks = Vec::new();
    walk(expr, &mut |part| {
        if let ExprKind::Read(path) = &part.kind {
            for step in &path.nullable_steps {
                let prefix = ValuePath {
                    root: path.root,
                    steps: path.steps[..usize::from(*step).min(path.steps.len())].to_vec(),
                    nullable_steps: Vec::new(),
                };
                if !non_null.contains(&prefix) {
                    risks.push(NullRisk { span: part.span, path: Some(prefix) });
                }
            }
        }
        for operand in strict_operands(part) {
            collect_operand_risks(operand, non_null, &mut risks);
        }
    });
    risks
}

/// The reads inside an operand that could make it null.
fn collect_operand_risks(operand: &Expr, non_null: &[ValuePath], risks: &mut Vec<NullRisk>) {
    if !can_be_null(operand, non_null) {
        return;
    }
    match &operand.kind {
        ExprKind::Read(path) => {
            let path = ValuePath { nullable_steps: Vec::new(), ..path.clone() };
            risks.push(NullRisk { span: operand.span, path: Some(path) });
        }
        ExprKind::If(_, yes, no) => {
            collect_operand_risks(yes, non_null, risks);
            collect_operand_risks(no, non_null, risks);
        }
        _ => risks.push(NullRisk { span: operand.span, path: None }),
    }
}

/// The parts that must not be null for this part to have a value.
fn strict_operands(expr: &Expr) -> Vec<&Expr> {
    match &expr.kind {
        ExprKind::Const(_)
        | ExprKind::Read(_)
        | ExprKind::Call(BuiltinFunction::Max | BuiltinFunction::Min, _)
        | ExprKind::Binary(BinaryOperator::Equal | BinaryOperator::NotEqual, _, _) => Vec::new(),
        ExprKind::Not(inner) | ExprKind::Negate(inner) => vec![inner],
        ExprKind::If(condition, _, _) => vec![condition],
        ExprKind::And(left, right) | ExprKind::Or(left, right) | ExprKind::Binary(_, left, right) => vec![left, right],
        ExprKind::Call(_, parts) | ExprKind::List(parts) => parts.iter().collect(),
        ExprKind::Comprehension { range, body, .. } => vec![range, body],
    }
}
