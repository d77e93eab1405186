//! Finds transitions that always fault.

use super::abstract_value::{AbstractShape, AbstractValue};
use super::env::AbstractEnv;
use super::evaluator::AbstractEvaluator;
use super::value_fit::find_misfit;
use crate::diagnostic::Span;
use crate::expr::{BinaryOperator, Expr, ExprKind};
use crate::model::{FieldDef, TransferAmount, Transition};

/// Returns the span and reason of a certain fault. Considers only expressions that are evaluated whenever the
/// transition is taken.
pub(super) fn find_certain_fault(
    evaluator: &mut AbstractEvaluator,
    transition: &Transition,
    env: &AbstractEnv,
) -> Option<(Span, String)> {
    evaluator.muted += 1;
    let fault = fault_in_transition(evaluator, transition, env);
    evaluator.muted -= 1;
    fault
}

fn fault_in_transition(
    evaluator: &mut AbstractEvaluator,
    transition: &Transition,
    env: &AbstractEnv,
) -> Option<(Span, String)> {
    for (slot, formula) in &transition.set {
        let inner_fault = fault_in_expr(evaluator, &formula.expr, env);
        if inner_fault.is_some() {
            return inner_fault;
        }
        let value = evaluator.eval(&formula.expr, env);
        let Some(field) = evaluator.lifecycle.fields.get(usize::from(*slot)) else { continue };
        if let Some(reason) = never_fits_field(&value, field) {
            return Some((formula.expr.span, format!("the value set for `{}` never fits: it {reason}", field.name)));
        }
    }
    for action in &transition.transfers {
        let TransferAmount::Computed(amount) = &action.amount else { continue };
        let inner_fault = fault_in_expr(evaluator, &amount.expr, env);
        if inner_fault.is_some() {
            return inner_fault;
        }
        let amount_value = evaluator.eval(&amount.expr, env);
        if !amount_value.may_be_null
            && amount_value.number_range().is_some_and(|(least, most)| least <= most && most < 0)
        {
            return Some((amount.expr.span, "the amount is always negative".to_owned()));
        }
    }
    None
}

/// Finds numbers and texts that are surely out of bounds.
fn never_fits_field(value: &AbstractValue, field: &FieldDef) -> Option<String> {
    let is_same_kind = |a: &AbstractShape, b: &AbstractShape| {
        matches!(
            (a, b),
            (AbstractShape::Number(..), AbstractShape::Number(..))
                | (AbstractShape::Double(..), AbstractShape::Double(..))
                | (AbstractShape::Text { .. }, AbstractShape::Text { .. })
        )
    };
    let declared = AbstractValue::of_type(&field.ty, &field.bounds, field.nullable);
    if value.may_be_null || !is_same_kind(&value.shape, &declared.shape) || !value.meet(&declared).is_empty() {
        return None;
    }
    find_misfit(value, &field.ty, &field.bounds, field.nullable)
}

/// Finds a division by zero in an expression that is surely evaluated.
fn fault_in_expr(evaluator: &mut AbstractEvaluator, expr: &Expr, env: &AbstractEnv) -> Option<(Span, String)> {
    match &expr.kind {
        ExprKind::Binary(operator, left, right) => {
            let inner_fault = fault_in_expr(evaluator, left, env).or_else(|| fault_in_expr(evaluator, right, env));
            if inner_fault.is_some() || !matches!(operator, BinaryOperator::Divide | BinaryOperator::Remainder) {
                return inner_fault;
            }
            let divisor = evaluator.eval(right, env);
            (!divisor.may_be_null && divisor.number_range() == Some((0, 0)))
                .then(|| (expr.span, "the divisor is always zero".to_owned()))
        }
        ExprKind::Negate(operand) => fault_in_expr(evaluator, operand, env),
        ExprKind::If(condition, yes, no) => {
            let inner_fault = fault_in_expr(evaluator, condition, env);
            if inner_fault.is_some() {
                return inner_fault;
            }
            match evaluator.split_env(condition, env) {
                (Some(on_yes), None) => fault_in_expr(evaluator, yes, &on_yes),
                (None, Some(on_no)) => fault_in_expr(evaluator, no, &on_no),
                _ => None,
            }
        }
        ExprKind::Call(_, parts) | ExprKind::List(parts) => {
            parts.iter().find_map(|part| fault_in_expr(evaluator, part, env))
        }
        ExprKind::Const(_)
        | ExprKind::Read(_)
        | ExprKind::Not(_)
        | ExprKind::And(..)
        | ExprKind::Or(..)
        | ExprKind::Comprehension { .. } => None,
    }
}
