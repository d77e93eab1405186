//! Events between records: sent where somebody answers, and answered where somebody sends.

use std::sync::Arc;

use super::engine_rows::{Studies, may_be_caused, targets};
use super::faults::causes;
use super::survey::{list, rows};
use crate::diagnostic::Diagnostic;
use crate::model::{By, Cause, Definitions, EventKind, Lifecycle, Row};

pub(super) fn check(studies: &Studies, found: &mut Vec<Diagnostic>) {
    let sent: super::Sent = studies.values().flat_map(|studied| sent_by(studied.survey.lifecycle)).collect();
    for studied in studies.values() {
        let lifecycle = studied.survey.lifecycle;
        for event in lifecycle.events.iter().filter(|event| matches!(event.kind, EventKind::Called | EventKind::Create)) {
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
        for (_, row) in rows(lifecycle) {
            let required = row.require.len();
            for (at, cause) in causes(row).enumerate() {
                judge(studies, cause, at < required, found);
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

fn judge(studies: &Studies, cause: &Cause, required: bool, found: &mut Vec<Diagnostic>) {
    let names = targets(&cause.to.expr.typed.ty);
    let answering: Vec<(&super::engine_rows::Studied, Vec<&Row>)> = names
        .iter()
        .filter_map(|name| studies.get(name))
        .map(|studied| (studied, studied.survey.lifecycle.event(&cause.event).map_or(Vec::new(), |event| event.rows.iter().collect())))
        .collect();
    let takes = |row: &Row| may_be_caused(row) && names_fit(row, cause);
    if !answering.is_empty() && !answering.iter().any(|(_, rows)| rows.iter().any(|row| takes(row))) {
        let how = if required { "required" } else { "offered" };
        let who = list(names.iter().map(|name| format!("`{name}`")));
        found.push(
            Diagnostic::error("never-taken", cause.at, format!("`{}` is {how}, and no row of {who} can take it from here", cause.event))
                .label("no row admits another record")
                .help("let a row of it have `by = \"record\"`"),
        );
        return;
    }
    if required {
        return;
    }
    // A state without such a row plainly passes it by; a guard is what makes it uncertain.
    for (studied, rows) in &answering {
        let unsure: Vec<_> = studied
            .survey
            .reached
            .iter()
            .filter(|state| {
                let fit: Vec<&&Row> = rows.iter().filter(|row| row.from.contains(*state) && takes(row)).collect();
                let sure = |row: &&&Row| row.when.is_none() && row.require.is_empty() && (row.by.is_empty() || row.by.contains(&By::Record));
                !fit.is_empty() && !fit.iter().any(sure)
            })
            .collect();
        if let Some(state) = unsure.first() {
            let row = rows.iter().find(|row| row.from.contains(*state)).map(|row| row.at);
            let lifecycle = studied.survey.lifecycle;
            let mut warning = Diagnostic::warning(
                "unproven-cascade",
                cause.at,
                format!("unknown whether a `{}` takes `{}` in {}", lifecycle.name, cause.event, studied.survey.names(unsure.iter().copied())),
            )
            .label("passed by without a word where it is not taken")
            .help("add a row without a guard there if it must never be passed by");
            if let Some(at) = row {
                warning = warning.also(at, "holds only under its guard, or for some callers");
            }
            found.push(warning);
        }
    }
}

fn names_fit(row: &Row, cause: &Cause) -> bool {
    cause.input.iter().all(|(name, _)| row.inputs.iter().any(|input| input.field.name == *name))
        && row.inputs.iter().all(|input| {
            !super::faults::is_required(input, row, false) || cause.input.iter().any(|(name, _)| *name == input.field.name)
        })
}
