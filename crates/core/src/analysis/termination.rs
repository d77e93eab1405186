//! Finds transitions that can be taken only a bounded number of times: a growing value is kept below a constant one.
//!
//! Growing values: the number of leases (`record.attempt`), the time (`now`), and a counter that the transition
//! increments. Constant values: literals, the creation time, and fields that only creation sets.

use super::abstract_eval::{CounterFields, StateFacts, decides_before, min_growth};
use super::reachability::{Reachability, transitions_of};
use crate::diagnostic::Span;
use crate::expr::{BinaryOperator, BuiltinFunction, Expr, ExprKind, PathRoot, PathStep, ValuePath};
use crate::model::{AllowedCaller, EventDef, EventKind, FieldIndex, StateIndex, Transition};

/// Whether the transition may be taken without a person: the engine fires it, a worker calls it, or another record may
/// send it.
pub(super) fn is_unattended(
    reachability: &Reachability,
    state_facts: &StateFacts,
    event: &EventDef,
    transition: &Transition,
) -> bool {
    let is_unattended_caller = |by: &AllowedCaller| matches!(by, AllowedCaller::Record | AllowedCaller::Worker);
    event.kind != EventKind::Called
        || transition.by.iter().any(is_unattended_caller)
        || (transition.by.is_empty() && state_facts.is_sent_by_record(reachability.lifecycle, event))
}

/// Whether the transition has such a bound in this state, given a lease in each round.
pub(super) fn has_termination_bound(
    reachability: &Reachability,
    state_facts: &StateFacts,
    event: &EventDef,
    index: usize,
    from: StateIndex,
) -> bool {
    let transition = &event.transitions[index];
    counts_to_limit(reachability, state_facts, transition, from)
        || has_growing_guard(reachability, state_facts, event, index, from)
}

/// Whether each time the transition is taken, some bounded field grows, and it never shrinks.
fn counts_to_limit(
    reachability: &Reachability,
    state_facts: &StateFacts,
    transition: &Transition,
    from: StateIndex,
) -> bool {
    transition.set.iter().any(|(slot, _)| {
        let facts = state_facts.while_staying[usize::from(from)].as_ref();
        let max_value = facts.and_then(|facts| facts[usize::from(*slot)].number_range()).map(|(_, most)| most);
        is_monotonic_counter(reachability, state_facts, transition, *slot)
            && max_value.is_some_and(|most| !CounterFields::is_unreachable(most))
    })
}

/// Whether the transition increments the field, and no unattended transition decrements it.
fn is_monotonic_counter(
    reachability: &Reachability,
    state_facts: &StateFacts,
    transition: &Transition,
    field_index: FieldIndex,
) -> bool {
    let increments = |(set, formula): &(FieldIndex, crate::model::Formula)| {
        *set == field_index && min_growth(&formula.expr, field_index).is_some_and(|by| by > 0)
    };
    transition.set.iter().any(increments)
        && transitions_of(reachability.lifecycle)
            .filter(|(event, transition)| {
                event.kind != EventKind::Create && is_unattended(reachability, state_facts, event, transition)
            })
            .all(|(_, transition)| {
                transition.inputs.iter().all(|input| input.target_field != Some(field_index))
                    && transition.set.iter().all(|(set, formula)| {
                        *set != field_index || min_growth(&formula.expr, field_index).is_some_and(|by| by >= 0)
                    })
            })
}

/// Finds an unattended transition that resets a counter of this transition and so removes its bound. Returns the span
/// and the field.
pub(super) fn find_counter_reset(
    reachability: &Reachability,
    state_facts: &StateFacts,
    transition: &Transition,
) -> Option<(Span, FieldIndex)> {
    let is_counted_up = |field_index: FieldIndex| {
        let own = transition.set.iter().find(|(set, _)| *set == field_index);
        own.is_some_and(|(_, formula)| min_growth(&formula.expr, field_index).is_some_and(|by| by > 0))
    };
    transitions_of(reachability.lifecycle)
        .filter(|(event, transition)| {
            event.kind != EventKind::Create && is_unattended(reachability, state_facts, event, transition)
        })
        .flat_map(|(_, transition)| &transition.set)
        .find(|(slot, formula)| is_counted_up(*slot) && min_growth(&formula.expr, *slot).is_none_or(|by| by < 0))
        .map(|(slot, formula)| (formula.expr.span, *slot))
}

/// Whether the guard, or that of an earlier transition that would be taken first, keeps a growing value below a
/// constant.
fn has_growing_guard(
    reachability: &Reachability,
    state_facts: &StateFacts,
    event: &EventDef,
    index: usize,
    from: StateIndex,
) -> bool {
    let transition = &event.transitions[index];
    let mut comparisons = Vec::new();
    if let Some(when) = &transition.when {
        collect_comparisons(&when.expr, true, &mut comparisons);
    }
    for earlier in &event.transitions[..index] {
        if let Some(when) = &earlier.when
            && earlier.from.contains(from)
            && decides_before(&reachability.lifecycle.caller_predicates, event.kind, earlier, transition)
        {
            collect_comparisons(&when.expr, false, &mut comparisons);
        }
    }
    reachability.spend_steps(comparisons.len() as u64);
    comparisons
        .iter()
        .any(|(less, more)| is_growing(reachability, state_facts, transition, less) && is_constant(reachability, more))
}

/// Collects the comparisons that must hold if the guard is true (or false), as pairs (smaller or equal, larger).
fn collect_comparisons<'a>(guard: &'a Expr, holds: bool, comparisons: &mut Vec<(&'a Expr, &'a Expr)>) {
    match (&guard.kind, holds) {
        (ExprKind::Not(operand), _) => collect_comparisons(operand, !holds, comparisons),
        (ExprKind::And(left, right), true) | (ExprKind::Or(left, right), false) => {
            collect_comparisons(left, holds, comparisons);
            collect_comparisons(right, holds, comparisons);
        }
        (ExprKind::Binary(operator, left, right), _) => match (operator, holds) {
            (BinaryOperator::Less | BinaryOperator::LessOrEqual, true)
            | (BinaryOperator::Greater | BinaryOperator::GreaterOrEqual, false) => {
                comparisons.push((left, right));
            }
            (BinaryOperator::Greater | BinaryOperator::GreaterOrEqual, true)
            | (BinaryOperator::Less | BinaryOperator::LessOrEqual, false) => {
                comparisons.push((right, left));
            }
            (BinaryOperator::Equal, true) | (BinaryOperator::NotEqual, false) => {
                comparisons.extend([(&**left, &**right), (right, left)]);
            }
            _ => {}
        },
        _ => {}
    }
}

/// Whether the value grows with every round, without end.
fn is_growing(reachability: &Reachability, state_facts: &StateFacts, transition: &Transition, expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Read(ValuePath { root: PathRoot::Now, .. }) => true,
        ExprKind::Read(ValuePath { root: PathRoot::Record, steps, .. }) => match steps.as_slice() {
            [PathStep::Attempt] => true,
            [PathStep::Field { index: slot, .. }] => is_monotonic_counter(reachability, state_facts, transition, *slot),
            _ => false,
        },
        ExprKind::Binary(BinaryOperator::Add, left, right) => {
            (is_growing(reachability, state_facts, transition, left) && is_constant(reachability, right))
                || (is_constant(reachability, left) && is_growing(reachability, state_facts, transition, right))
        }
        ExprKind::Binary(BinaryOperator::Subtract, left, right) => {
            is_growing(reachability, state_facts, transition, left) && is_constant(reachability, right)
        }
        _ => false,
    }
}

/// Whether the value never changes during a record's life.
fn is_constant(reachability: &Reachability, expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Const(_) => true,
        ExprKind::Read(ValuePath { root: PathRoot::Record, steps, .. }) => match steps.as_slice() {
            [PathStep::CreatedAt | PathStep::Id | PathStep::Owner] => true,
            [PathStep::Field { index: slot, .. }] => is_set_only_at_creation(reachability, *slot),
            _ => false,
        },
        ExprKind::Negate(operand) => is_constant(reachability, operand),
        ExprKind::Binary(_, left, right) => is_constant(reachability, left) && is_constant(reachability, right),
        ExprKind::If(condition, yes, no) => {
            is_constant(reachability, condition) && is_constant(reachability, yes) && is_constant(reachability, no)
        }
        // Jitter depends on the record's version.
        ExprKind::Call(function, arguments) => {
            *function != BuiltinFunction::Jitter && arguments.iter().all(|argument| is_constant(reachability, argument))
        }
        _ => false,
    }
}

/// Whether only creation sets the field.
fn is_set_only_at_creation(reachability: &Reachability, field_index: FieldIndex) -> bool {
    transitions_of(reachability.lifecycle).filter(|(event, _)| event.kind != EventKind::Create).all(
        |(_, transition)| {
            transition.inputs.iter().all(|input| input.target_field != Some(field_index))
                && transition.set.iter().all(|(set, _)| *set != field_index)
        },
    )
}
