//! Proves that every ready state can be leased, and that every leased state takes `commit` and `fail` (EXE-6, EXE-7).

use super::abstract_eval::StateFacts;
use super::guard_cases::{CoverageResult, GuardCoverage};
use super::orphans;
use super::reachability::Reachability;
use crate::diagnostic::Diagnostic;
use crate::model::{EventKind, StateIndex, Transition};

pub(super) fn analyze(reachability: &Reachability, state_facts: &StateFacts, diagnostics: &mut Vec<Diagnostic>) {
    for state in reachability.ready_states.iter().filter(|state| reachability.reachable.contains(*state)) {
        require_certain_answer(reachability, state_facts, EventKind::Lease, state, "is ready", diagnostics);
    }
    for state in reachability.leased_states.iter() {
        require_certain_answer(reachability, state_facts, EventKind::Commit, state, "is leased", diagnostics);
        require_certain_answer(reachability, state_facts, EventKind::Fail, state, "is leased", diagnostics);
        find_stranding_failures(reachability, state_facts, state, diagnostics);
    }
    for state in reachability.committed_states.iter() {
        require_certain_answer(
            reachability,
            state_facts,
            EventKind::Finish,
            state,
            "needs `finish` after a commit that stays",
            diagnostics,
        );
        find_staying_finishes(reachability, state, diagnostics);
    }
}

const fn event_name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Lease => "lease",
        EventKind::Commit => "commit",
        EventKind::Finish => "finish",
        _ => "fail",
    }
}

fn require_certain_answer(
    reachability: &Reachability,
    state_facts: &StateFacts,
    kind: EventKind,
    state: StateIndex,
    reason: &str,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let event = event_name(kind);
    let transitions: Vec<&Transition> =
        reachability.lifecycle.transitions(kind).iter().filter(|transition| transition.from.contains(state)).collect();
    let name = reachability.state_name(state);
    let span = reachability.lifecycle.states[usize::from(state)].span;
    let Some(last) = transitions.last() else {
        diagnostics.push(
            Diagnostic::error("unhandled-work", span, format!("`{name}` has no transition for `{event}`"))
                .label(reason)
                .help(format!("add an `[[on.{event}]]` transition from `{name}`")),
        );
        return;
    };
    let message = format!("`{name}` may have no matching transition for `{event}`");
    let error = match GuardCoverage::analyze(reachability, state_facts, kind, &transitions, state).result {
        CoverageResult::Complete => return,
        CoverageResult::Gap(case) => {
            Diagnostic::error("unhandled-work", last.span, message).label(format!("no transition matches if {case}"))
        }
        CoverageResult::Unknown(why) => Diagnostic::error("unhandled-work", last.span, message).label(why),
    };
    diagnostics.push(
        error
            .related(span, reason)
            .help(format!("add a last `[[on.{event}]]` transition from `{name}` without `when` and `require`")),
    );
}

/// Reports internal `fail` transitions in states where no worker can lease the job again.
fn find_stranding_failures(
    reachability: &Reachability,
    state_facts: &StateFacts,
    state: StateIndex,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let declared = &reachability.lifecycle.states[usize::from(state)];
    if reachability.ready_states.contains(state)
        || declared.can_rest
        || declared.is_final
        || orphans::has_certain_timer(reachability, state_facts, state)
    {
        return;
    }
    for transition in reachability.lifecycle.transitions(EventKind::Fail) {
        if transition.from.contains(state) && transition.to.is_none() {
            diagnostics.push(
                Diagnostic::error(
                    "orphan-state",
                    transition.span,
                    format!("the transition leaves a record in `{}` without a worker", reachability.state_name(state)),
                )
                .label("stays in the state after the lease has ended")
                .help("lead to a ready state, a final state, or a state with a timer"),
            );
        }
    }
}

fn find_staying_finishes(reachability: &Reachability, state: StateIndex, diagnostics: &mut Vec<Diagnostic>) {
    for transition in reachability.lifecycle.transitions(EventKind::Finish) {
        if transition.from.contains(state) && transition.to.is_none_or(|to| to == state) {
            diagnostics.push(
                Diagnostic::error(
                    "finish-stays",
                    transition.span,
                    format!("after its commit a record would stay in `{}` forever", reachability.state_name(state)),
                )
                .label("does not leave the state")
                .help("let the `finish` transition lead to another state"),
            );
        }
    }
}
