//! Rows that callers fire: a null in the wrong place is a fault there too, and so is what can never go well. The caller is
//! told, but can do nothing about it.

use std::collections::HashSet;

use super::super::faults::{Finding, examine};
use super::{Studied, spoken};
use crate::diagnostic::{Diagnostic, Span};
use crate::expr::FaultKind;
use crate::model::{By, EventKind, StateIx};

pub(super) fn check(studied: &Studied, seen: &mut HashSet<(Span, &'static str)>, found: &mut Vec<Diagnostic>) {
    let survey = &studied.survey;
    for event in &survey.lifecycle.events {
        if !matches!(event.kind, EventKind::Create | EventKind::Called) {
            continue;
        }
        for (at, row) in event.rows.iter().enumerate() {
            // What only records send is given by them, and looked at where they do so on the engine's word.
            if row.by == [By::Record] {
                continue;
            }
            // Looked at less closely there would be doubts that are none.
            if survey.is_tired() {
                return;
            }
            let froms: Vec<Option<StateIx>> = match event.kind {
                EventKind::Create => vec![None],
                _ => survey.fires_in(event, row).into_iter().map(Some).collect(),
            };
            let mut faults = Vec::new();
            for from in froms {
                let mut outcome = examine(survey, &studied.flow, event, at, from, None);
                if outcome.after.is_some() {
                    faults.push(outcome.fault.take());
                }
                for finding in outcome.findings.into_iter().filter(|finding| finding.kind == FaultKind::Null) {
                    if seen.insert((finding.at, "may-be-null")) {
                        let creating = event.kind == EventKind::Create;
                        found.push(said(&finding, creating, &spoken(survey, event, row)));
                    }
                }
            }
            // In each of its states, or it may still be taken in one.
            if let Some((at, why)) =
                faults.into_iter().collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().next())
                && seen.insert((at, "always-faults"))
            {
                found.push(always(at, &why, &spoken(survey, event, row)));
            }
        }
    }
}

fn said(finding: &Finding, creating: bool, row: &str) -> Diagnostic {
    let help = match &finding.path {
        Some(path) => format!(
            "test it first: `{path} != null && …` in `when`, an entry of `refuse` with `if = \"{path} == null\"`, or \
             `{path} == null ? … : …`"
        ),
        None => "test for null first, in `when` or in an entry of `refuse`".to_owned(),
    };
    if creating && finding.always {
        let what = finding.what.replace("may be null", "is always null");
        return Diagnostic::error("may-be-null", finding.at, format!("{what}, which is a fault"))
            .label(format!("never anything else in this {row}"))
            .help(format!("take it, give it a default, or {help}"));
    }
    Diagnostic::warning("may-be-null", finding.at, format!("{}, which is a fault", finding.what))
        .label(format!("whoever calls this {row} is then told of a fault, and can do nothing about it"))
        .help(help)
}

fn always(at: Span, why: &str, row: &str) -> Diagnostic {
    Diagnostic::error("always-faults", at, why.to_owned())
        .label(format!("a fault for whoever calls this {row}, so it is never taken"))
        .help("correct the value or the bounds, or take the row away")
}
