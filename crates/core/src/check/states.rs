//! Every state can be reached, or says that it is only kept free.

use super::survey::{Survey, numbered};
use crate::diagnostic::Diagnostic;

pub(super) fn check(survey: &Survey, found: &mut Vec<Diagnostic>) {
    for (at, state) in numbered(survey.lifecycle) {
        // An error, not a warning: a name that nothing reaches is a mistake unless the file says otherwise, and
        // `reserved` is there to say it.
        if !survey.reached.contains(at) && !state.reserved {
            found.push(
                Diagnostic::error("unreachable-state", state.at, format!("nothing leads to `{}`", state.name))
                    .label("no row that can fire goes here")
                    .help("add the row that is missing, or say `reserved = true` if the name is only kept free"),
            );
        }
    }
}
