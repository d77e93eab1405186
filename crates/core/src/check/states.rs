//! What the states say of themselves, and that each can be reached.

use super::survey::{Survey, numbered, rows};
use crate::diagnostic::Diagnostic;
use crate::model::{Clock, EventKind, Ready, State};

pub(super) fn check(survey: &Survey, found: &mut Vec<Diagnostic>) {
    let lifecycle = survey.lifecycle;
    for (at, state) in numbered(lifecycle) {
        if let Some(why) = contradiction(state, lifecycle.clock) {
            found.push(
                Diagnostic::error("state-contradiction", state.at, format!("`{}` {why}", state.name))
                    .help("keep the one that is meant"),
            );
        }
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
    for (event, row) in rows(lifecycle) {
        let left = row.to.and_then(|to| row.from.iter().find(|from| *from != to && is_final(survey, *from)));
        if let Some(from) = left {
            found.push(
                Diagnostic::error("final-left", row.at, format!("`{}` is final, and this row leaves it", survey.name(from)))
                    .help(format!("write `go = \"{}\"` to stay and only note something, or take `final` away", survey.name(from))),
            );
        }
        let timely = matches!(event.kind, EventKind::Time | EventKind::Lease | EventKind::Commit | EventKind::Fail | EventKind::Finish);
        if lifecycle.clock == Clock::Operation && timely {
            found.push(
                Diagnostic::error("no-clock", row.at, format!("`{}` never happens here", event.name))
                    .label("needs the engine's clock")
                    .help("a lifecycle with `clock = \"operation\"` has no timers and no leases"),
            );
        }
    }
}

fn is_final(survey: &Survey, state: u8) -> bool {
    survey.lifecycle.states[usize::from(state)].is_final
}

fn contradiction(state: &State, clock: Clock) -> Option<&'static str> {
    let ready = state.ready != Ready::No;
    if state.is_final && ready {
        Some("is final and ready: an ended record is not worked on")
    } else if state.is_final && state.rest {
        Some("is final and rest: a final state is a resting place already")
    } else if state.reserved && (state.is_final || state.rest || ready) {
        Some("is reserved, so no record is ever in it to be final, rest or ready")
    } else if ready && clock == Clock::Operation {
        Some("is ready, and a lifecycle with `clock = \"operation\"` has no leases")
    } else {
        None
    }
}
