//! Rows that nobody can ever fire.

use super::survey::Survey;
use crate::diagnostic::Diagnostic;
use crate::model::{By, EventKind};

pub(super) fn check(survey: &Survey, found: &mut Vec<Diagnostic>) {
    for event in &survey.lifecycle.events {
        for row in &event.rows {
            // Rows from states that nothing reaches are told of there.
            let reached: Vec<_> = row.from.iter().filter(|state| survey.reached.contains(*state)).collect();
            let Some(state) = reached.first() else { continue };
            if survey.fires_in(event, row).is_empty() {
                let why = match event.kind {
                    EventKind::Lease => "is not ready, so no worker takes it there",
                    EventKind::Finish => "is left by the commit itself, or never committed in",
                    _ => "is never leased",
                };
                found.push(
                    Diagnostic::warning(
                        "dead-row",
                        row.at,
                        format!("this row never fires: `{}` {why}", survey.name(*state)),
                    )
                    .help("take it away, or correct its `go` or the state"),
                );
            }
            let worked_on = reached.iter().any(|state| survey.leased.contains(*state));
            if row.by.contains(&By::Worker) && !worked_on {
                found.push(
                    Diagnostic::warning(
                        "never-admitted",
                        row.at,
                        format!(
                            "no worker can do this: {} {} never leased",
                            survey.names(reached.iter().copied()),
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
