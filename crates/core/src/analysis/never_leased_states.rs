//! Finds states in the `go` of a worker's transition in which no worker can be. If the whole transition is dead,
//! `dead-row` reports it instead.

use super::reachability::Reachability;
use crate::diagnostic::Diagnostic;
use crate::model::EventKind;

pub(super) fn analyze(reachability: &Reachability, diagnostics: &mut Vec<Diagnostic>) {
    for event in &reachability.lifecycle.events {
        let reason = match event.kind {
            EventKind::Lease => "is not ready, so no worker takes it there",
            EventKind::Commit | EventKind::Fail => "is never leased",
            EventKind::Finish => "is left by the commit itself, or never committed in",
            _ => continue,
        };
        for transition in &event.transitions {
            let fires = reachability.firing_states(event, transition);
            let never_firing_state =
                transition.from.iter().find(|state| reachability.reachable.contains(*state) && !fires.contains(state));
            if let (Some(state), false) = (never_firing_state, fires.is_empty()) {
                let name = reachability.state_name(state);
                diagnostics.push(
                    Diagnostic::error("never-from", transition.span, format!("this row never starts from `{name}`"))
                        .label(format!("`{name}` {reason}"))
                        .help(format!("take `{name}` out of `go`, or correct the state")),
                );
            }
        }
    }
}
