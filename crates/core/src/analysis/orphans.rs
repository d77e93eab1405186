//! Proves that no record is orphaned (DOC-14): in every state it is final, may rest, is ready, is leased, or has a
//! timer.

use super::abstract_eval::{AbstractEnv, AbstractEvaluator, StateFacts, eval_in_state};
use super::guard_cases::GuardCoverage;
use super::reachability::{Reachability, transitions_of};
use crate::diagnostic::Diagnostic;
use crate::expr::{BinaryOperator, Expr, ExprKind, PathRoot};
use crate::model::{EventDef, EventKind, StateIndex, TimerSpec, Transition};

pub(super) fn analyze(reachability: &Reachability, state_facts: &StateFacts, diagnostics: &mut Vec<Diagnostic>) {
    for state in reachability.reachable.iter() {
        let declared = &reachability.lifecycle.states[usize::from(state)];
        if declared.is_final || declared.can_rest || reachability.ready_states.contains(state) {
            continue;
        }
        if !leaves_on_enter(reachability, state) && !has_certain_timer(reachability, state_facts, state) {
            if reachability.leased_states.contains(state) {
                let strays = find_unleased_arrivals(reachability, state);
                diagnostics.extend(strays);
            } else {
                diagnostics.push(orphan_diagnostic(reachability, state_facts, state));
            }
        }
    }
}

/// Whether an `enter` transition surely leaves the state immediately.
pub(super) fn leaves_on_enter(reachability: &Reachability, state: StateIndex) -> bool {
    let transitions = reachability.lifecycle.transitions(EventKind::Enter);
    let candidates: Vec<&Transition> =
        transitions.iter().filter(|transition| transition.from.contains(state)).collect();
    let certain_index =
        candidates.iter().position(|transition| transition.when.is_none() && transition.require.is_empty());
    certain_index
        .is_some_and(|sure| candidates[..=sure].iter().all(|transition| transition.to.is_some_and(|to| to != state)))
}

/// Whether some timer is surely set, and once it is due some transition surely matches and leaves the state or sets the
/// timer again.
pub(super) fn has_certain_timer(reachability: &Reachability, state_facts: &StateFacts, state: StateIndex) -> bool {
    let timed_transitions: Vec<&Transition> = reachability
        .lifecycle
        .transitions(EventKind::Time)
        .iter()
        .filter(|transition| transition.from.contains(state))
        .collect();
    timed_transitions.iter().enumerate().any(|(index, transition)| {
        // Transitions with the same due time are evaluated together, at the first of them.
        if timed_transitions[..index].iter().any(|earlier| fires_at_same_time(earlier, transition))
            || !is_time_non_null(reachability, state_facts, transition, state)
        {
            return false;
        }
        let simultaneous: Vec<&Transition> =
            timed_transitions.iter().copied().filter(|other| fires_at_same_time(transition, other)).collect();
        let last_index =
            timed_transitions.iter().rposition(|other| fires_at_same_time(transition, other)).unwrap_or(index);
        // Timers that are due together are spent together: an internal transition may be taken first and leave no
        // timer.
        let can_lose_timer = timed_transitions[..last_index].iter().any(|other| {
            other.to.is_none() && !fires_at_same_time(transition, other) && can_coincide(transition, other)
        });
        !can_lose_timer
            && simultaneous.iter().all(|transition| rearms_or_leaves(reachability, transition))
            && GuardCoverage::analyze(reachability, state_facts, EventKind::Time, &simultaneous, state).is_complete()
    })
}

/// Whether the transition leaves timers set: it enters a state, possibly the same, or moves its own time on.
fn rearms_or_leaves(reachability: &Reachability, transition: &Transition) -> bool {
    let Some(TimerSpec::AtField(slot)) = transition.timer else { return transition.to.is_some() };
    transition.to.is_some()
        || transition.set.iter().any(|(set, formula)| *set == slot && is_later_than_now(reachability, &formula.expr))
}

/// Whether the expression is `now` plus a positive duration, and so later than any timer that has fired.
pub(super) fn is_later_than_now(reachability: &Reachability, expr: &Expr) -> bool {
    let ExprKind::Binary(BinaryOperator::Add, left, right) = &expr.kind else { return false };
    let is_now = |expr: &Expr| matches!(&expr.kind, ExprKind::Read(path) if path.root == PathRoot::Now);
    let offset = if is_now(left) { right } else { left };
    let mut evaluator = AbstractEvaluator::new(reachability.definitions, reachability.lifecycle);
    evaluator.muted = 1;
    let no_facts = AbstractEnv::new(std::rc::Rc::from([]));
    (is_now(left) || is_now(right))
        && !evaluator.eval_silently(offset, &no_facts).may_be_null
        && evaluator.eval_silently(offset, &no_facts).number_range().is_some_and(|(least, _)| least > 0)
}

/// Timers with different fixed delays never coincide.
fn can_coincide(transition: &Transition, other: &Transition) -> bool {
    match (super::unset_timers::fixed_delay(transition), super::unset_timers::fixed_delay(other)) {
        (Some(delay), Some(other)) => delay == other,
        _ => true,
    }
}

fn fires_at_same_time(transition: &Transition, other: &Transition) -> bool {
    std::ptr::eq(transition, other) || super::abstract_eval::precedes(EventKind::Time, transition, other)
}

/// Whether the transition's time cannot be null in this state.
fn is_time_non_null(
    reachability: &Reachability,
    state_facts: &StateFacts,
    transition: &Transition,
    state: StateIndex,
) -> bool {
    match &transition.timer {
        Some(TimerSpec::AfterEntering(after)) => {
            eval_in_state(reachability, state_facts, &after.expr, state).1.is_none_or(|value| !value.may_be_null)
        }
        Some(TimerSpec::AtField(slot)) => [&state_facts.on_entry, &state_facts.while_staying]
            .into_iter()
            .filter_map(|table| table[usize::from(state)].as_ref())
            .all(|facts| !facts[usize::from(*slot)].may_be_null),
        None => false,
    }
}

const NEVER_LEFT_LABEL: &str = "no timer or worker is certain to change the state";

fn orphan_diagnostic(reachability: &Reachability, state_facts: &StateFacts, state: StateIndex) -> Diagnostic {
    let name = reachability.state_name(state);
    let declared = &reachability.lifecycle.states[usize::from(state)];
    let error = Diagnostic::error("orphan-state", declared.span, format!("a record can stay in `{name}` forever"));
    let timed_transition =
        reachability.lifecycle.transitions(EventKind::Time).iter().find(|transition| transition.from.contains(state));
    match timed_transition {
        // Resting would leave the money in the hold.
        None if super::hold_balance::can_be_filled(reachability) => error.label(NEVER_LEFT_LABEL).help(format!(
            "add an `[[on.time]]` transition from `{name}` that empties the hold, let workers lease it with `ready = \
             true`, or declare with `rest = true` that records may stay"
        )),
        None => error.label(NEVER_LEFT_LABEL).help(format!(
            "declare with `rest = true` (or `final = true`) that records may stay, let workers lease it with `ready = \
             true`, or add an `[[on.time]]` transition from `{name}`"
        )),
        Some(transition) if !rearms_or_leaves(reachability, transition) => error
            .label("its timer does not leave the state")
            .related(transition.span, "stays in the state, and the timer does not fire again")
            .help(format!(
                "let an `[[on.time]]` transition lead from `{name}` to another state (or `{name} -> {name}`, which \
                 restarts its timers), or mark the state `rest = true`"
            )),
        Some(transition) if !is_time_non_null(reachability, state_facts, transition, state) => {
            let field = match &transition.timer {
                Some(TimerSpec::AtField(slot)) => reachability.lifecycle.fields[usize::from(*slot)].name.to_string(),
                _ => "after".to_owned(),
            };
            let error = error
                .label("its timer may never be set")
                .related(transition.span, format!("`{field}` may be null, and then no timer is set"));
            let null_paths = paths_leaving_time_null(reachability, state_facts, transition, state);
            let error = null_paths.into_iter().fold(error, |error, (at, label)| error.related(at, label));
            error.help(format!(
                "set `{field}` in every transition to `{name}` and do not clear it there, add a transition with \
                 `after`, or mark the state `rest = true`"
            ))
        }
        Some(transition) => error
            .label("no timer is certain to match")
            .related(
                transition.span,
                "matches only if its guard is true; otherwise the timer is skipped and does not fire again",
            )
            .help(format!(
                "add an `[[on.time]]` transition from `{name}` with the same time and no `when`, after the others"
            )),
    }
}

/// Returns the transitions that bring a record here with the time still null.
fn paths_leaving_time_null(
    reachability: &Reachability,
    state_facts: &StateFacts,
    timed_transition: &Transition,
    state: StateIndex,
) -> Vec<(crate::diagnostic::Span, String)> {
    let Some(TimerSpec::AtField(slot)) = timed_transition.timer else { return Vec::new() };
    let mut null_paths = Vec::new();
    for event in &reachability.lifecycle.events {
        for (index, transition) in event.transitions.iter().enumerate() {
            let leads_here = |from: Option<StateIndex>| transition.to.or(from) == Some(state);
            let froms: Vec<Option<StateIndex>> = match event.kind {
                EventKind::Create => vec![None],
                _ => reachability.firing_states(event, transition).into_iter().map(Some).collect(),
            };
            let leaves_null = froms.into_iter().filter(|from| leads_here(*from)).any(|from| {
                let after =
                    super::abstract_eval::analyze_transition(reachability, state_facts, event, index, from, None)
                        .fields_after;
                after.is_some_and(|after| after[usize::from(slot)].may_be_null)
            });
            if leaves_null && null_paths.len() < 3 {
                null_paths.push((transition.span, "may leave the field null".to_owned()));
            }
        }
    }
    null_paths
}

/// Reports transitions other than `lease` into a leased state, which would leave a record there without a worker.
fn find_unleased_arrivals(reachability: &Reachability, state: StateIndex) -> Vec<Diagnostic> {
    let name = reachability.state_name(state);
    let brings_record_here = |event: &EventDef, transition: &Transition| {
        transition.to == Some(state)
            && event.kind != EventKind::Lease
            && (event.kind == EventKind::Create || !reachability.firing_states(event, transition).is_empty())
    };
    transitions_of(reachability.lifecycle)
        .filter(|(event, transition)| brings_record_here(event, transition))
        .map(|(_, transition)| {
            Diagnostic::error(
                "orphan-state",
                transition.span,
                format!("the transition leaves a record in `{name}` without a worker"),
            )
            .label("enters the state without a lease")
            .related(reachability.lifecycle.states[usize::from(state)].span, "left only when a lease ends")
            .help(format!(
                "lead to a ready state instead, add an `[[on.time]]` transition from `{name}`, or mark it `rest = true`"
            ))
        })
        .collect()
}
