//! Faults that are certain: whoever takes the row, it never goes through.

use super::domain::{Known, Shape};
use super::env::Env;
use super::fits::misfit;
use super::judge::Judge;
use crate::diagnostic::Span;
use crate::expr::{Binary, Expr, Kind};
use crate::model::{Amount, Field, Row};

/// Why the row faults each time, and where. Only what is evaluated whenever the row is taken counts.
pub(super) fn fault(judge: &mut Judge, row: &Row, env: &Env) -> Option<(Span, String)> {
    judge.muted += 1;
    let fault = of_row(judge, row, env);
    judge.muted -= 1;
    fault
}

fn of_row(judge: &mut Judge, row: &Row, env: &Env) -> Option<(Span, String)> {
    for (slot, formula) in &row.set {
        let inside = of_expr(judge, &formula.expr, env);
        if inside.is_some() {
            return inside;
        }
        let value = judge.eval(&formula.expr, env);
        let Some(field) = judge.lifecycle.fields.get(usize::from(*slot)) else { continue };
        if let Some(why) = never_fits(&value, field) {
            return Some((formula.expr.at, format!("the value set for `{}` never fits: it {why}", field.name)));
        }
    }
    for step in &row.moves {
        let Amount::Formula(amount) = &step.amount else { continue };
        let inside = of_expr(judge, &amount.expr, env);
        if inside.is_some() {
            return inside;
        }
        let known = judge.eval(&amount.expr, env);
        if !known.null && known.number().is_some_and(|(least, most)| least <= most && most < 0) {
            return Some((amount.expr.at, "the amount is always negative".to_owned()));
        }
    }
    None
}

/// Numbers and texts that are surely out of bounds.
fn never_fits(value: &Known, field: &Field) -> Option<String> {
    let alike = |a: &Shape, b: &Shape| {
        matches!(
            (a, b),
            (Shape::Number(..), Shape::Number(..))
                | (Shape::Double(..), Shape::Double(..))
                | (Shape::Text { .. }, Shape::Text { .. })
        )
    };
    let declared = Known::of_type(&field.ty, &field.bounds, field.nullable);
    if value.null || !alike(&value.shape, &declared.shape) || !value.meet(&declared).is_impossible() {
        return None;
    }
    misfit(value, &field.ty, &field.bounds, field.nullable)
}

/// A division by zero in what is sure to be evaluated.
fn of_expr(judge: &mut Judge, expr: &Expr, env: &Env) -> Option<(Span, String)> {
    match &expr.kind {
        Kind::Binary(operator, left, right) => {
            let inside = of_expr(judge, left, env).or_else(|| of_expr(judge, right, env));
            if inside.is_some() || !matches!(operator, Binary::Divide | Binary::Remainder) {
                return inside;
            }
            let divisor = judge.eval(right, env);
            (!divisor.null && divisor.number() == Some((0, 0)))
                .then(|| (expr.at, "this always divides by zero".to_owned()))
        }
        Kind::Negate(operand) => of_expr(judge, operand, env),
        Kind::If(condition, yes, no) => {
            let inside = of_expr(judge, condition, env);
            if inside.is_some() {
                return inside;
            }
            match judge.split(condition, env) {
                (Some(on_yes), None) => of_expr(judge, yes, &on_yes),
                (None, Some(on_no)) => of_expr(judge, no, &on_no),
                _ => None,
            }
        }
        Kind::Call(_, parts) | Kind::List(parts) => parts.iter().find_map(|part| of_expr(judge, part, env)),
        Kind::Const(_) | Kind::Read(_) | Kind::Not(_) | Kind::And(..) | Kind::Or(..) | Kind::Comprehension { .. } => {
            None
        }
    }
}
