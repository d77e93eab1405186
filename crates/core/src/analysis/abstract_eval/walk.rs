//! Visits the expressions of a transition.

use crate::expr::{Expr, ExprKind};
use crate::model::{AccountRef, TemplatePart, TimerSpec, TransferAmount, Transition};

/// Whether the test is true for the expression or a part of it.
pub(crate) fn any_subexpr(expr: &Expr, test: &dyn Fn(&Expr) -> bool) -> bool {
    let mut matches = false;
    for_each_subexpr(expr, &mut |expr| matches = matches || test(expr));
    matches
}

/// Visits the expression and all its parts. The recursion is bounded by `bounds::MAX_EXPRESSION_DEPTH`.
pub(crate) fn for_each_subexpr(expr: &Expr, visit: &mut dyn FnMut(&Expr)) {
    visit(expr);
    match &expr.kind {
        ExprKind::Const(_) | ExprKind::Read(_) => {}
        ExprKind::Not(operand) | ExprKind::Negate(operand) => for_each_subexpr(operand, visit),
        ExprKind::And(left, right) | ExprKind::Or(left, right) | ExprKind::Binary(_, left, right) => {
            for_each_subexpr(left, visit);
            for_each_subexpr(right, visit);
        }
        ExprKind::If(condition, yes, no) => {
            for_each_subexpr(condition, visit);
            for_each_subexpr(yes, visit);
            for_each_subexpr(no, visit);
        }
        ExprKind::Call(_, parts) | ExprKind::List(parts) => parts.iter().for_each(|part| for_each_subexpr(part, visit)),
        ExprKind::Comprehension { range, body, .. } => {
            for_each_subexpr(range, visit);
            for_each_subexpr(body, visit);
        }
    }
}

pub(crate) fn for_each_transition_expr(transition: &Transition, visit: &mut dyn FnMut(&Expr)) {
    let mut visit_formula = |formula: &crate::model::Formula| for_each_subexpr(&formula.expr, visit);
    transition.when.iter().for_each(&mut visit_formula);
    transition.refuse.iter().for_each(|refuse| visit_formula(&refuse.condition));
    transition.set.iter().for_each(|(_, value)| visit_formula(value));
    for action in transition.require.iter().chain(&transition.cascade) {
        action.condition.iter().for_each(&mut visit_formula);
        visit_formula(&action.targets);
        action.input.iter().for_each(|(_, value)| visit_formula(value));
    }
    for spawn in &transition.spawn {
        spawn.condition.iter().chain(&spawn.owner).for_each(&mut visit_formula);
        spawn.fields.iter().for_each(|(_, value)| visit_formula(value));
    }
    for deliver in &transition.deliver {
        deliver.condition.iter().for_each(&mut visit_formula);
        visit_formula(&deliver.url);
        deliver.body.iter().for_each(|(_, value)| visit_formula(value));
    }
    if let Some(TimerSpec::AfterEntering(after)) = &transition.timer {
        visit_formula(after);
    }
    for action in &transition.transfers {
        if let TransferAmount::Computed(amount) = &action.amount {
            visit_formula(amount);
        }
    }
    for action in &transition.transfers {
        for account in [&action.from, &action.to] {
            if let AccountRef::Named(template) = account {
                for part in &template.parts {
                    if let TemplatePart::Value(expr) = part {
                        for_each_subexpr(expr, visit);
                    }
                }
            }
        }
    }
}
