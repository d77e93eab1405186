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
                    EventKind::Lease => "is not ready, so no worker takes it there",
                    EventKind::Finish => "is left by the commit itself, or never committed in",
                    _ => "is never leased",
                };
                diagnostics.push(
                    Diagnostic::warning(
                        "dead-row",
                        transition.span,
                        format!("this row never fires: `{}` {reason}", reachability.state_name(*state)),
                    )
                    .help("take it away, or correct its `go` or the state"),
                );
            }
            let is_leased = reached.iter().any(|state| reachability.leased_states.contains(*state));
            if transition.by.contains(&AllowedCaller::Worker) && !is_leased {
                diagnostics.push(
                    Diagnostic::warning(
                        "never-admitted",
                        transition.span,
                        format!(
                            "no worker can do this: {} {} never leased",
                            reachability.state_names(reached.iter().copied()),
                            if reached.len() == 1 { "is" } else { "are" }
                        ),
                    )
                    .label("`worker` is whoever holds the lease")
                    .help("name another caller in `by`, or let the row start from a leased state"),
                );
            }
        }
    }
}
