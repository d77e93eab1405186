//! Finds transitions that no caller can ever fire.

use super::reachability::Reachability;
use crate::diagnostic::Diagnostic;
use crate::model::{AllowedCaller, EventKind};

pub(super) fn analyze(reachability: &Reachability, diagnostics: &mut Vec<Diagnostic>) {
    for event in &reachability.lifecycle.events {
        for transition in &event.transitions {
            // Unreachable states have a diagnostic of their own.
            let reached: Vec<_> =
                transition.from.iter().filter(|state| reachability.reachable.contains(*state)).collect();
            let Some(state) = reached.first() else { continue };
            if reachability.firing_states(event, transition).is_empty() {
                let reason = match event.kind {
                    EventKind::Lease => "is not ready, so no worker leases it there",
                    EventKind::Finish => "is left by the commit itself, or no commit happens there",
                    _ => "is never leased",
                };
                diagnostics.push(
                    Diagnostic::warning(
                        "dead-transition",
                        transition.span,
                        format!("the transition never fires: `{}` {reason}", reachability.state_name(*state)),
                    )
                    .help("remove the transition, or correct its `go` or the state"),
                );
            }
            let is_leased = reached.iter().any(|state| reachability.leased_states.contains(*state));
            if transition.by.contains(&AllowedCaller::Worker) && !is_leased {
                diagnostics.push(
                    Diagnostic::warning(
                        "never-admitted",
                        transition.span,
                        format!(
                            "no worker can fire the transition: {} {} never leased",
                            reachability.state_names(reached.iter().copied()),
                            if reached.len() == 1 { "is" } else { "are" }
                        ),
                    )
                    .label("`worker` means the holder of the lease")
                    .help("name another caller in `by`, or start the transition from a leased state"),
                );
            }
        }
    }
}
