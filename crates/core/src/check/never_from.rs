//! States that a worker's row names although no worker can be there. A row that is dead altogether is told of by
//! `dead-row`; here it lives, and its `go` claims more than it can do.

use super::survey::Survey;
use crate::diagnostic::Diagnostic;
use crate::model::EventKind;

pub(super) fn check(survey: &Survey, found: &mut Vec<Diagnostic>) {
    for event in &survey.lifecycle.events {
        let why = match event.kind {
            EventKind::Lease => "is not ready, so no worker takes it there",
            EventKind::Commit | EventKind::Fail => "is never leased",
            EventKind::Finish => "is left by the commit itself, or never committed in",
            _ => continue,
        };
        for row in &event.rows {
            let fires = survey.fires_in(event, row);
            let idle = row.from.iter().find(|state| survey.reached.contains(*state) && !fires.contains(state));
            if let (Some(state), false) = (idle, fires.is_empty()) {
                let name = survey.name(state);
                found.push(
                    Diagnostic::error("never-from", row.at, format!("this row never starts from `{name}`"))
                        .label(format!("`{name}` {why}"))
                        .help(format!("take `{name}` out of `go`, or correct the state")),
                );
            }
        }
    }
}
