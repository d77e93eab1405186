//! Walks typed trees: finds reads and possible null operands.

use super::tree::{BinaryOperator, BuiltinFunction, Expr, ExprKind, PathRoot, ValuePath};
use crate::diagnostic::Span;

/// Visits every node of the tree, parents first.
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

/// Returns the indexes of the checks whose answers the expression reads, sorted and without duplicates.
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

/// Returns every path that the expression reads, in order.
pub fn referenced_paths(expr: &Expr) -> Vec<ValuePath> {
    let mut paths = Vec::new();
    walk(expr, &mut |part| {
        if let ExprKind::Read(path) = &part.kind {
            paths.push(path.clone());
        }
    });
    paths
}

/// A location where a null would be a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NullRisk {
    pub span: Span,
    /// The path that may be null, if it is a path. Proving that it is not null removes the risk.
    pub path: Option<ValuePath>,
}

/// Returns whether the value of the expression may be null, if the paths in `non_null` are not.
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

/// Returns the locations where an operator may get a null operand, or where a field is read from a nullable ref.
///
/// The compiler already accounts for tests within the expression, such as `x != null && …`. `non_null` adds what the
/// caller has proved. If the result is empty, null cannot cause a fault.
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

/// Collects the reads that could make an operand null.
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

/// Returns the operands that must not be null.
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
