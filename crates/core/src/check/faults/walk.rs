//! Visits the expressions of a row.

use crate::expr::{Expr, Kind};
use crate::model::{AccountRef, Amount, Row, TemplatePart, Timing};

/// Whether the expression or a part of it is so.
pub(crate) fn any(expr: &Expr, test: &dyn Fn(&Expr) -> bool) -> bool {
    let mut found = false;
    each(expr, &mut |expr| found = found || test(expr));
    found
}

/// The expression and all its parts; as deep as expressions may be, which is bounded.
pub(crate) fn each(expr: &Expr, visit: &mut dyn FnMut(&Expr)) {
    visit(expr);
    match &expr.kind {
        Kind::Const(_) | Kind::Read(_) => {}
        Kind::Not(operand) | Kind::Negate(operand) => each(operand, visit),
        Kind::And(left, right) | Kind::Or(left, right) | Kind::Binary(_, left, right) => {
            each(left, visit);
            each(right, visit);
        }
        Kind::If(condition, yes, no) => {
            each(condition, visit);
            each(yes, visit);
            each(no, visit);
        }
        Kind::Call(_, parts) | Kind::List(parts) => parts.iter().for_each(|part| each(part, visit)),
        Kind::Comprehension { range, body, .. } => {
            each(range, visit);
            each(body, visit);
        }
    }
}

pub(crate) fn each_of_row(row: &Row, visit: &mut dyn FnMut(&Expr)) {
    let mut formula = |formula: &crate::model::Formula| each(&formula.expr, visit);
    row.when.iter().for_each(&mut formula);
    row.refuse.iter().for_each(|refuse| formula(&refuse.condition));
    row.set.iter().for_each(|(_, value)| formula(value));
    for cause in row.require.iter().chain(&row.cascade) {
        cause.condition.iter().for_each(&mut formula);
        formula(&cause.to);
        cause.input.iter().for_each(|(_, value)| formula(value));
    }
    for spawn in &row.spawn {
        spawn.condition.iter().chain(&spawn.owner).for_each(&mut formula);
        spawn.fields.iter().for_each(|(_, value)| formula(value));
    }
    for deliver in &row.deliver {
        deliver.condition.iter().for_each(&mut formula);
        formula(&deliver.to);
        deliver.body.iter().for_each(|(_, value)| formula(value));
    }
    if let Some(Timing::After(after)) = &row.timing {
        formula(after);
    }
    for step in &row.moves {
        if let Amount::Formula(amount) = &step.amount {
            formula(amount);
        }
    }
    for step in &row.moves {
        for account in [&step.from, &step.to] {
            if let AccountRef::Named(template) = account {
                for part in &template.parts {
                    if let TemplatePart::Value(expr) = part {
                        each(expr, visit);
                    }
                }
            }
        }
    }
}
