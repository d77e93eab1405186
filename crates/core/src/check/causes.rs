//! Events between records: sent where somebody answers, and answered where somebody sends.

use std::sync::Arc;

use super::engine_rows::{Studied, Studies, may_be_caused, targets};
use super::faults::causes;
use super::survey::{list, rows};
use crate::diagnostic::Diagnostic;
use crate::model::{By, Cause, Definitions, EventKind, Lifecycle, Row};

pub(super) fn check(all: &Studies, found: &mut Vec<Diagnostic>) {
    let sent: super::Sent = all.values().flat_map(|studied| sent_by(studied.survey.lifecycle)).collect();
    for studied in all.values() {
        let lifecycle = studied.survey.lifecycle;
        for event in lifecycle.events.iter().filter(|event| matches!(event.kind, EventKind::Called | EventKind::Create))
        {
            let only_records = event.rows.iter().all(|row| row.by == [By::Record]);
            if only_records
                && !sent.contains(&(lifecycle.name.clone(), event.name.clone()))
                && let Some(row) = event.rows.first()
            {
                found.push(
                    Diagnostic::warning("never-caused", row.at, format!("no lifecycle here sends `{}` to a `{}`", event.name, lifecycle.name))
                        .label("only another record may do this")
                        .help("check the files together with the lifecycle that sends it, or let somebody else do it with `by`"),
                );
            }
        }
        uncertain(all, studied, found);
        for (_, row) in rows(lifecycle) {
            let required = row.require.len();
            for (at, cause) in causes(row).enumerate() {
                judge(all, cause, at < required, found);
            }
        }
    }
}

/// Whatever any lifecycle sends to another, or to its own kind.
pub(super) fn sent(definitions: &Definitions) -> super::Sent {
    definitions.lifecycles.values().flat_map(|lifecycle| sent_by(lifecycle)).collect()
}

fn sent_by(lifecycle: &Lifecycle) -> Vec<(Arc<str>, Arc<str>)> {
    let mut sent = Vec::new();
    for (_, row) in rows(lifecycle) {
        sent.extend(causes(row).flat_map(|cause| {
            targets(&cause.to.expr.typed.ty).into_iter().map(|target| (target, cause.event.clone()))
        }));
        sent.extend(row.spawn.iter().map(|spawn| (spawn.lifecycle.clone(), "create".into())));
        sent.extend(row.deliver.iter().map(|_| ("onceward.delivery".into(), "create".into())));
    }
    // Messages are the server's to send.
    sent.push(("onceward.delivery".into(), "create".into()));
    sent
}

fn judge(all: &Studies, cause: &Cause, required: bool, found: &mut Vec<Diagnostic>) {
    let names = targets(&cause.to.expr.typed.ty);
    let answering: Vec<(&Studied, Vec<&Row>)> = names
        .iter()
        .filter_map(|name| all.get(name))
        .map(|studied| {
            (
                studied,
                studied.survey.lifecycle.event(&cause.event).map_or(Vec::new(), |event| event.rows.iter().collect()),
            )
        })
        .collect();
    let takes = |row: &Row| may_be_caused(row) && names_fit(row, cause);
    if !answering.is_empty() && !answering.iter().any(|(_, rows)| rows.iter().any(|row| takes(row))) {
        let how = if required { "required" } else { "offered" };
        let who = list(names.iter().map(|name| format!("`{name}`")));
        found.push(
            Diagnostic::error(
                "never-taken",
                cause.at,
                format!("`{}` is {how}, and no row of {who} can take it from here", cause.event),
            )
            .label("no row admits another record")
            .help("let a row of it have `by = \"record\"`"),
        );
    }
}

/// Rows that take an offered event only under a guard. A state without such a row plainly passes it by; a guard is what
/// makes it uncertain.
fn uncertain(all: &Studies, studied: &Studied, found: &mut Vec<Diagnostic>) {
    let lifecycle = studied.survey.lifecycle;
    for event in lifecycle.events.iter().filter(|event| event.kind == EventKind::Called) {
        let senders = senders(all, lifecycle, &event.name);
        if senders.is_empty() {
            continue;
        }
        let sure = |row: &&Row| {
            row.when.is_none() && row.require.is_empty() && (row.by.is_empty() || row.by.contains(&By::Record))
        };
        for row in event.rows.iter().filter(|row| may_be_caused(row) && !sure(row)) {
            let unsure = row.from.iter().filter(|state| {
                studied.survey.reached.contains(*state)
                    && !event.rows.iter().filter(|row| row.from.contains(*state)).any(|row| sure(&row))
            });
            let unsure: Vec<_> = unsure.collect();
            if unsure.is_empty() {
                continue;
            }
            let warning = Diagnostic::warning(
                "unproven-cascade",
                row.at,
                format!("unknown whether a cascaded `{}` is taken in {}", event.name, studied.survey.names(unsure)),
            )
            .label("only under its guard, or for some callers; else it is passed by without a word")
            .help("if it must never be passed by, add a last row with `by = \"record\"` and no `when`");
            found.push(senders.iter().take(3).fold(warning, |warning, cause| warning.also(cause.at, "sent from here")));
        }
    }
}

fn senders<'a>(all: &'a Studies, lifecycle: &Lifecycle, event: &str) -> Vec<&'a Cause> {
    all.values()
        .flat_map(|studied| rows(studied.survey.lifecycle))
        .flat_map(|(_, row)| &row.cascade)
        .filter(|cause| *cause.event == *event && targets(&cause.to.expr.typed.ty).contains(&lifecycle.name))
        .collect()
}

fn names_fit(row: &Row, cause: &Cause) -> bool {
    cause.input.iter().all(|(name, _)| row.inputs.iter().any(|input| input.field.name == *name))
        && row.inputs.iter().all(|input| {
            !super::faults::is_required(input, row, false)
                || cause.input.iter().any(|(name, _)| *name == input.field.name)
        })
}
