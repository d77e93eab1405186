//! Proves that retries end (EXE-11): every path on which a failed job comes back has a bound.

use super::abstract_eval::{AbstractShape, StateFacts, env_when_taken, evaluator_for, initial_env};
use super::reachability::Reachability;
use super::termination;
use crate::diagnostic::Diagnostic;
use crate::expr::{ErrorPart, PathRoot};
use crate::model::{EventDef, EventKind, StateIndex, StateSet};

pub(super) fn analyze(reachability: &Reachability, state_facts: &StateFacts, diagnostics: &mut Vec<Diagnostic>) {
    let Some(event) = reachability.lifecycle.events.iter().find(|event| event.kind == EventKind::Fail) else { return };
    for (index, transition) in event.transitions.iter().enumerate() {
        let returning_states: Vec<StateIndex> = reachability
            .firing_states(event, transition)
            .into_iter()
            .filter(|from| can_retry_forever(reachability, state_facts, event, index, *from))
            .collect();
        let is_bounded =
            returning_states.is_empty() || is_only_yield(reachability, state_facts, event, index, &returning_states);
        match transition.forever_span {
            Some(span) if is_bounded => {
                diagnostics.push(
                    Diagnostic::warning(
                        "needless-forever",
                        span,
                        "`forever` is not needed: the retries of the transition are bounded",
                    )
                    .label("allows unbounded retries")
                    .help("remove it"),
                );
                continue;
            }
            None if !is_bounded => {}
            _ => continue,
        }
        let mut warning = Diagnostic::warning("unproven-retries", transition.span, "retries may never end")
            .label("a job that fails this way becomes ready again, and no guard limits the retries")
            .help(
                "bound the failures (`when = \"record.failures < 5\"`, an int field that the transition increments) or \
                 the time (`when = \"now < record.created_at + duration('1h')\"`), and give up in another transition; \
                 or allow unbounded retries with `forever = true`",
            );
        if let Some((span, slot)) = termination::find_counter_reset(reachability, state_facts, transition) {
            let field = &reachability.lifecycle.fields[usize::from(slot)].name;
            warning = warning.related(span, format!("resets `{field}` without a call"));
        }
        diagnostics.push(warning);
    }
}

/// Whether the job can be leased into the same state again and again through transitions without a bound that need no
/// caller. A retry by a person is deliberate and does not count.
fn can_retry_forever(
    reachability: &Reachability,
    state_facts: &StateFacts,
    event: &EventDef,
    index: usize,
    from: StateIndex,
) -> bool {
    let transition = &event.transitions[index];
    let to = transition.to.unwrap_or(from);
    if termination::has_termination_bound(reachability, state_facts, event, index, from) {
        return false;
    }
    if to == from && reachability.ready_states.contains(from) {
        return true;
    }
    let mut seen = StateSet::default().with(to);
    let mut queue = vec![to];
    while let Some(state) = queue.pop() {
        for event in &reachability.lifecycle.events {
            for (index, transition) in event
                .transitions
                .iter()
                .enumerate()
                .filter(|(_, transition)| reachability.can_fire(event.kind, transition, state))
            {
                if !termination::is_unattended(reachability, state_facts, event, transition) {
                    continue;
                }
                let next = transition.to.unwrap_or(state);
                if seen.contains(next)
                    || termination::has_termination_bound(reachability, state_facts, event, index, state)
                {
                    continue;
                }
                if next == from {
                    return true;
                }
                seen = seen.with(next);
                queue.push(next);
            }
        }
    }
    false
}

/// Whether only yields take the transition. A yield is not a failure.
fn is_only_yield(
    reachability: &Reachability,
    state_facts: &StateFacts,
    event: &EventDef,
    index: usize,
    returning_states: &[StateIndex],
) -> bool {
    returning_states.iter().all(|from| {
        let transition = &event.transitions[index];
        let mut evaluator = evaluator_for(reachability, event, transition, None);
        let env = initial_env(state_facts, reachability.lifecycle, event, transition, Some(*from), &[]);
        let env = env.and_then(|env| env_when_taken(&mut evaluator, event, index, Some(*from), env, false));
        env.is_none_or(|env| {
            let code = env.path_fact(PathRoot::Error(ErrorPart::Code), &[]);
            matches!(code.map(|code| &code.shape), Some(AbstractShape::Text { allowed_values: Some(of), .. }) if of.iter().all(|code| **code == *"yielded"))
        })
    })
}
