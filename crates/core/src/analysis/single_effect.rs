//! Proves that a job has at most one effect (EXE-12): after a commit no path leads to a state where it can be leased
//! again.

use super::reachability::Reachability;
use crate::diagnostic::Diagnostic;
use crate::model::{EventKind, StateIndex, StateSet, Transition};

pub(super) fn analyze(reachability: &Reachability, diagnostics: &mut Vec<Diagnostic>) {
    for transition in reachability.lifecycle.transitions(EventKind::Commit) {
        let mut starts = StateSet::default();
        for from in transition.from.iter().filter(|from| reachability.can_fire(EventKind::Commit, transition, *from)) {
            match transition.to {
                Some(to) => starts = starts.with(to),
                None => starts = states_after_finish(reachability, from).fold(starts, StateSet::with),
            }
        }
        let predecessors = reachability.shortest_paths(starts);
        let leasable_again = reachability
            .ready_states
            .iter()
            .find(|state| starts.contains(*state) || predecessors[usize::from(*state)].is_some());
        if let Some(again) = leasable_again {
            diagnostics.push(second_effect_diagnostic(reachability, transition, again, &predecessors));
        }
    }
}

fn states_after_finish<'a>(reachability: &'a Reachability, from: StateIndex) -> impl Iterator<Item = StateIndex> + 'a {
    reachability
        .lifecycle
        .transitions(EventKind::Finish)
        .iter()
        .filter(move |transition| transition.from.contains(from))
        .filter_map(|transition| transition.to)
}

fn second_effect_diagnostic(
    reachability: &Reachability,
    transition: &Transition,
    leasable_again: StateIndex,
    predecessors: &[Option<(StateIndex, &str)>],
) -> Diagnostic {
    let mut path = format!("`{}`", reachability.state_name(leasable_again));
    let mut state = leasable_again;
    while let Some((from, event)) = predecessors[usize::from(state)] {
        path = format!("`{}` → ({event}) {path}", reachability.state_name(from));
        state = from;
    }
    Diagnostic::error(
        "repeated-effect",
        transition.span,
        format!("after the commit the job could be leased again in `{}`", reachability.state_name(leasable_again)),
    )
    .label(format!("leads to {path}"))
    .related(reachability.lifecycle.states[usize::from(leasable_again)].span, "ready for workers")
    .help(
        "a job commits one effect: lead to a state from which no transition reaches a ready state, and spawn a new \
         record for more work",
    )
}
