//! Proves that every state is reachable or declared `reserved`.

use super::reachability::{Reachability, indexed_states};
use crate::diagnostic::Diagnostic;

pub(super) fn analyze(reachability: &Reachability, diagnostics: &mut Vec<Diagnostic>) {
    for (index, state) in indexed_states(reachability.lifecycle) {
        // An error, not a warning: an unreachable state is a mistake unless the file declares it `reserved`.
        if !reachability.reachable.contains(index) && !state.is_reserved {
            diagnostics.push(
                Diagnostic::error("unreachable-state", state.span, format!("no transition leads to `{}`", state.name))
                    .label("no transition that can fire leads to the state")
                    .help("add the missing transition, or declare `reserved = true` if the name is for later use"),
            );
        }
    }
}
