//! Finds timers that are never set.

use super::abstract_eval::{AbstractShape, AbstractValue, StateFacts, eval_in_state};
use super::reachability::Reachability;
use crate::diagnostic::Diagnostic;
use crate::expr::ExprKind;
use crate::model::{EventKind, StateIndex, TimerSpec, Transition};
use crate::value::Value;

pub(super) fn analyze(reachability: &Reachability, state_facts: &StateFacts, diagnostics: &mut Vec<Diagnostic>) {
    for transition in reachability.lifecycle.transitions(EventKind::Time) {
        diagnostics.extend(find_never_set(reachability, state_facts, transition));
    }
}

/// Reports a timer whose time is null in every state of its transition.
fn find_never_set(
    reachability: &Reachability,
    state_facts: &StateFacts,
    transition: &Transition,
) -> Option<Diagnostic> {
    let states: Vec<StateIndex> =
        transition.from.iter().filter(|state| reachability.reachable.contains(*state)).collect();
    let times_in = |state: StateIndex| -> Vec<AbstractValue> {
        match &transition.timer {
            Some(TimerSpec::AtField(slot)) => [&state_facts.on_entry, &state_facts.while_staying]
                .into_iter()
                .filter_map(|table| table[usize::from(state)].as_ref())
                .map(|facts| facts[usize::from(*slot)].clone())
                .collect(),
            Some(TimerSpec::AfterEntering(after)) => {
                eval_in_state(reachability, state_facts, &after.expr, state).1.into_iter().collect()
            }
            None => Vec::new(),
        }
    };
    let times: Vec<AbstractValue> = states.iter().flat_map(|state| times_in(*state)).collect();
    if times.is_empty() || !times.iter().all(|time| time.may_be_null && time.shape == AbstractShape::Never) {
        return None;
    }
    let (time_source, help) = match &transition.timer {
        Some(TimerSpec::AtField(slot)) => {
            let field = &reachability.lifecycle.fields[usize::from(*slot)].name;
            (format!("`{field}`"), format!("set or take `{field}` in a transition that leads there, or use `after`"))
        }
        _ => ("`after`".to_owned(), "give it a delay".to_owned()),
    };
    Some(
        Diagnostic::warning(
            "dead-transition",
            transition.span,
            format!("the timer is never set: {time_source} is always null"),
        )
        .label(format!("null for every record in {}, so no timer is set", reachability.state_names(states)))
        .help(help),
    )
}

/// Returns the delay of an `after` with a constant value, in microseconds.
pub(super) fn fixed_delay(transition: &Transition) -> Option<i64> {
    match &transition.timer {
        Some(TimerSpec::AfterEntering(after)) => match &after.expr.kind {
            ExprKind::Const(Value::Duration(delay)) => Some(delay.micros()),
            _ => None,
        },
        _ => None,
    }
}
