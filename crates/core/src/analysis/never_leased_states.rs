//! Finds states in the `go` of a worker's transition in which no worker can be. If the whole transition is dead,
//! `dead-transition` reports it instead.

use super::reachability::Reachability;
use crate::diagnostic::Diagnostic;
use crate::model::EventKind;

pub(super) fn analyze(reachability: &Reachability, diagnostics: &mut Vec<Diagnostic>) {
    for event in &reachability.lifecycle.events {
        let reason = match event.kind {
            EventKind::Lease => "is not ready, so no worker leases it there",
            EventKind::Commit | EventKind::Fail => "is never leased",
            EventKind::Finish => "is left by the commit itself, or no commit happens there",
            _ => continue,
        };
        for transition in &event.transitions {
            let fires = reachability.firing_states(event, transition);
            let never_firing_state =
                transition.from.iter().find(|state| reachability.reachable.contains(*state) && !fires.contains(state));
            if let (Some(state), false) = (never_firing_state, fires.is_empty()) {
                let name = reachability.state_name(state);
                diagnostics.push(
                    Diagnostic::error(
                        "dead-from",
                        transition.span,
                        format!("the transition never starts from `{name}`"),
                    )
                    .label(format!("`{name}` {reason}"))
                    .help(format!("remove `{name}` from `go`, or correct the state")),
                );
            }
        }
    }
}
