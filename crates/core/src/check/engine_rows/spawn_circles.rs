//! Rows that make or require records without end, whoever fires them: no guard and no `if` can break the circle, so none
//! of them can ever be taken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::faults::is_required;
use super::closure::{Which, event_number, may_be_caused, targets};
use super::{Studied, Studies};
use crate::diagnostic::{Diagnostic, Span};
use crate::model::{Clash, EventKind, Row, Type};

/// What a row is sure to bring about: one of these rows must be taken.
struct Need {
    at: Span,
    /// In the file's words.
    what: String,
    any_of: Vec<Which>,
}

pub(super) fn check(all: &Studies, found: &mut Vec<Diagnostic>) {
    let needs = needs(all);
    let mut doomed: BTreeSet<&Which> = needs.keys().collect();
    // A row is doomed where all that could meet one of its needs is: each round spares one more, or ends.
    loop {
        let before = doomed.len();
        let meets_none = |need: &Need| need.any_of.iter().all(|which| doomed.contains(which));
        let left = needs.iter().filter(|(which, needs)| doomed.contains(which) && needs.iter().any(meets_none));
        doomed = left.map(|(which, _)| which).collect();
        if doomed.len() == before {
            break;
        }
    }
    let next = |which: &Which| {
        let need = needs.get(which)?.iter().find(|need| need.any_of.iter().all(|which| doomed.contains(which)))?;
        Some((need, need.any_of.first()?))
    };
    let mut walked: BTreeSet<Which> = BTreeSet::new();
    for start in &doomed {
        let mut way: Vec<(Which, &Need)> = Vec::new();
        let mut here = (*start).clone();
        while walked.insert(here.clone()) {
            let Some((need, to)) = next(&here) else { break };
            way.push((here, need));
            here = to.clone();
        }
        if let Some(first) = way.iter().position(|(which, _)| *which == here) {
            let circle: Vec<&Need> = way[first..].iter().map(|(_, need)| *need).collect();
            // The engine's rows may have shown it already.
            if !found.iter().any(|old| old.code == "endless-spawn" && circle.iter().any(|need| need.at == old.at)) {
                found.extend(endless(&circle));
            }
        }
    }
}

fn endless(circle: &[&Need]) -> Option<Diagnostic> {
    let (first, others) = circle.split_first()?;
    let label = if others.is_empty() { "and so on, without end" } else { "which leads back here, without end" };
    let message = "this row can never be taken: it comes round to itself without end";
    let error = Diagnostic::error("endless-spawn", first.at, message)
        .label(format!("{}, {label}", first.what))
        .help("break the circle: give it an `if` that ends, or let a timer or a caller make the next record");
    Some(others.iter().take(4).fold(error, |error, need| error.also(need.at, need.what.clone())))
}

fn needs(all: &Studies) -> BTreeMap<Which, Vec<Need>> {
    let mut needs = BTreeMap::new();
    for (name, studied) in all {
        for (number, event) in studied.survey.lifecycle.events.iter().enumerate() {
            for (at, row) in event.rows.iter().enumerate() {
                let own: Vec<Need> = made(all, row).into_iter().chain(required(all, row)).collect();
                if !own.is_empty() {
                    needs.insert((name.clone(), number, at), own);
                }
            }
        }
    }
    needs
}

fn made(all: &Studies, row: &Row) -> Vec<Need> {
    let sure = row.spawn.iter().filter(|spawn| spawn.condition.is_none());
    sure.filter_map(|spawn| {
        let target = all.get(&spawn.lifecycle)?;
        // Where the holder of a key is used instead, nothing is made.
        if target.survey.lifecycle.uniques.iter().any(|unique| unique.clash == Clash::Return) {
            return None;
        }
        let names: Vec<&str> = spawn.fields.iter().map(|(name, _)| &**name).collect();
        need(all, target, &spawn.lifecycle, "create", &names, spawn.at, format!("makes `{}`", spawn.lifecycle))
    })
    .collect()
}

fn required(all: &Studies, row: &Row) -> Vec<Need> {
    let sure = row.require.iter().filter(|cause| cause.condition.is_none() && !cause.to.expr.typed.nullable);
    sure.filter_map(|cause| {
        // A list may be empty.
        let Type::Ref(_) = &cause.to.expr.typed.ty else { return None };
        let names: Vec<&str> = cause.input.iter().map(|(name, _)| &**name).collect();
        let what = format!("requires `{}` of another record", cause.event);
        let mut whole = Need { at: cause.at, what: what.clone(), any_of: Vec::new() };
        for name in targets(&cause.to.expr.typed.ty) {
            let one = need(all, all.get(&name)?, &name, &cause.event, &names, cause.at, what.clone())?;
            whole.any_of.extend(one.any_of);
        }
        Some(whole).filter(|whole| !whole.any_of.is_empty())
    })
    .collect()
}

/// The rows that could take this, by the names of what is sent; nothing where none could, which is said elsewhere.
fn need(
    all: &Studies,
    target: &Studied,
    lifecycle: &Arc<str>,
    event: &str,
    names: &[&str],
    at: Span,
    what: String,
) -> Option<Need> {
    let number = event_number(all, lifecycle, event)?;
    let event = &target.survey.lifecycle.events[number];
    let creating = event.kind == EventKind::Create;
    let fits = |row: &Row| {
        may_be_caused(row)
            && names.iter().all(|name| row.inputs.iter().any(|input| *input.field.name == **name))
            && row.inputs.iter().all(|input| !is_required(input, row, creating) || names.contains(&&*input.field.name))
    };
    let rows = event.rows.iter().enumerate().filter(|(_, row)| fits(row));
    let any_of: Vec<Which> = rows.map(|(at, _)| (lifecycle.clone(), number, at)).collect();
    (!any_of.is_empty()).then_some(Need { at, what, any_of })
}
