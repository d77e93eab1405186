//! Proves that `enter` transitions end: without regard to guards, they form no cycle.

use super::reachability::Reachability;
use crate::diagnostic::Diagnostic;
use crate::model::{EventKind, StateIndex, Transition};

pub(super) fn analyze(reachability: &Reachability, diagnostics: &mut Vec<Diagnostic>) {
    let transitions = reachability.lifecycle.transitions(EventKind::Enter);
    let states = reachability.lifecycle.states.len();
    // A cycle is reported once, at the transition that closes it.
    let mut visit_states = vec![VisitState::Unvisited; states];
    for state in (0..64).take(states) {
        visit(reachability, transitions, state, &mut visit_states, &mut Vec::new(), diagnostics);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum VisitState {
    Unvisited,
    InProgress,
    Visited,
}

/// Depth first; at most 64 deep, since there are at most 64 states.
fn visit(
    reachability: &Reachability,
    transitions: &[Transition],
    state: StateIndex,
    visit_states: &mut [VisitState],
    path: &mut Vec<StateIndex>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    if visit_states[usize::from(state)] != VisitState::Unvisited {
        return;
    }
    visit_states[usize::from(state)] = VisitState::InProgress;
    path.push(state);
    for transition in transitions.iter().filter(|transition| transition.from.contains(state)) {
        let Some(to) = transition.to else { continue };
        if visit_states[usize::from(to)] == VisitState::InProgress {
            let start = path.iter().position(|at| *at == to).unwrap_or(0);
            let mut cycle: Vec<String> =
                path[start..].iter().map(|at| format!("`{}`", reachability.state_name(*at))).collect();
            cycle.push(format!("`{}`", reachability.state_name(to)));
            diagnostics.push(
                Diagnostic::error("enter-cycle", transition.span, "`enter` transitions form a cycle")
                    .label(format!("{}, without end in one operation", cycle.join(" → ")))
                    .help("break the cycle: let a caller or a timer fire one of the transitions"),
            );
        } else {
            visit(reachability, transitions, to, visit_states, path, diagnostics);
        }
    }
    path.pop();
    visit_states[usize::from(state)] = VisitState::Visited;
}
