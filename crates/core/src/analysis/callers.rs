//! Finds transitions that no caller can ever fire, and callers that may not read what they may change.

use super::reachability::Reachability;
use crate::diagnostic::Diagnostic;
use crate::expr::{ExprKind, PathRoot, walk};
use crate::model::{AllowedCaller, AllowedReader, EventDef, EventKind, Lifecycle, Transition};

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
            diagnostics.extend(find_unreadable_caller(reachability.lifecycle, event, transition));
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

/// Warns about a caller in `by` that `[access]` does not admit: its events are refused as if the record did not exist.
fn find_unreadable_caller(lifecycle: &Lifecycle, event: &EventDef, transition: &Transition) -> Option<Diagnostic> {
    if event.kind != EventKind::Called || lifecycle.allowed_readers.iter().any(|by| matches!(by, AllowedReader::Anyone))
    {
        return None;
    }
    let reads = |by: &AllowedCaller| {
        lifecycle.allowed_readers.iter().any(|reader| matches!(reader, AllowedReader::Caller(own) if own == by))
    };
    let name = transition.by.iter().filter(|by| !reads(by)).find_map(|by| match by {
        AllowedCaller::Owner => Some("owner"),
        AllowedCaller::Operator => Some("operator"),
        AllowedCaller::Predicate(index) if is_defined_by_role(lifecycle, *index) => {
            lifecycle.caller_predicates.get(usize::from(*index)).map(|who| &*who.name)
        }
        // A lease holder may read the record, and another record is never a caller.
        AllowedCaller::Predicate(_) | AllowedCaller::Worker | AllowedCaller::Record => None,
    })?;
    let message = format!("`{name}` may fire the transition, but may not read the record");
    let help = format!("list `{name}` in `read` of [access]");
    Some(
        Diagnostic::warning("unreadable-by", transition.span, message)
            .label("refused, unless `read` admits the caller in another way")
            .help(help),
    )
}

/// Returns whether a `[who]` caller depends only on roles, none of them `operator`, and no other `[who]` caller may read:
/// such a caller surely has no other access to records of other owners.
fn is_defined_by_role(lifecycle: &Lifecycle, index: u16) -> bool {
    let has_other_readers = lifecycle
        .allowed_readers
        .iter()
        .any(|reader| matches!(reader, AllowedReader::Caller(AllowedCaller::Predicate(_))));
    let Some(who) = lifecycle.caller_predicates.get(usize::from(index)).filter(|_| !has_other_readers) else {
        return false;
    };
    let mut is_by_role = true;
    walk(&who.condition.expr, &mut |expr| match &expr.kind {
        ExprKind::Read(path) => is_by_role &= matches!(path.root, PathRoot::Actor(_)),
        ExprKind::Const(crate::value::Value::Text(text)) => is_by_role &= **text != *"operator",
        _ => {}
    });
    is_by_role
}
