//! Rows that the engine fires cannot be refused and cannot fault: nobody is there to be told.

mod called;
mod closure;
mod refusal;
mod spawn_circles;
mod spawns;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

pub(super) use closure::{may_be_caused, targets};

use super::faults::{Finding, Flow, standing};
use super::survey::Survey;
use crate::diagnostic::{Diagnostic, Span};
use crate::expr::FaultKind;
use crate::model::{Event, EventKind, Row, StateIx, Timing};

/// A lifecycle with all that the proofs know of it.
pub(super) struct Studied<'a> {
    pub(super) survey: Survey<'a>,
    pub(super) flow: Flow,
}

pub(super) type Studies<'a> = BTreeMap<Arc<str>, Studied<'a>>;

pub(super) fn check(studies: &Studies, found: &mut Vec<Diagnostic>) {
    let mut seen = HashSet::new();
    closure::check(studies, &mut seen, found);
    for studied in studies.values() {
        timers(studied, &mut seen, found);
        work(studied, &mut seen, found);
    }
    spawn_circles::check(studies, found);
    // After the engine's: what is an error there is not said again.
    for studied in studies.values() {
        called::check(studied, &mut seen, found);
    }
}

/// The delay of a timer is worked out on entering its state, whoever brings the record there.
fn timers(studied: &Studied, seen: &mut HashSet<(Span, &'static str)>, found: &mut Vec<Diagnostic>) {
    for row in studied.survey.lifecycle.rows(EventKind::Time) {
        let Some(Timing::After(after)) = &row.timing else { continue };
        for state in row.from.iter().filter(|state| studied.survey.reached.contains(*state)) {
            let (mut findings, value) = standing(&studied.survey, &studied.flow, &after.expr, state);
            if value.and_then(|value| value.number()).is_some_and(|(_, most)| most > FARTHEST) {
                let what = "this delay may reach beyond the year 9999".to_owned();
                findings.push(Finding {
                    kind: FaultKind::Overflow,
                    at: after.expr.at,
                    what,
                    path: None,
                    always: false,
                });
            }
            let name = studied.survey.name(state);
            report(findings, &format!("it is worked out whenever a record enters `{name}`"), None, seen, found);
        }
    }
}

/// What can be added to the latest `now` that we reckon with, the year 5000, and still be a time.
const FARTHEST: i128 = 4_900 * 365 * 86_400 * 1_000_000;

/// What is asked of a record while it waits or is worked on.
fn work(studied: &Studied, seen: &mut HashSet<(Span, &'static str)>, found: &mut Vec<Diagnostic>) {
    let Some(work) = &studied.survey.lifecycle.work else { return };
    let asked = [(&work.priority, studied.survey.ready, "waits"), (&work.stop, studied.survey.leased, "is worked on")];
    for (formula, states, when) in asked {
        let Some(formula) = formula else { continue };
        for state in states.iter().filter(|state| studied.survey.reached.contains(*state)) {
            let (findings, _) = standing(&studied.survey, &studied.flow, &formula.expr, state);
            let why = format!("the engine asks it while a record {when} in `{}`", studied.survey.name(state));
            report(findings, &why, None, seen, found);
        }
    }
}

/// Each way to fault becomes an error, once for each place.
fn report(
    findings: Vec<Finding>,
    why: &str,
    caused: Option<Span>,
    seen: &mut HashSet<(Span, &'static str)>,
    found: &mut Vec<Diagnostic>,
) {
    for finding in findings {
        let code = code(finding.kind);
        if !seen.insert((finding.at, code)) {
            continue;
        }
        let mut error = Diagnostic::error(code, finding.at, format!("{}, which is a fault", finding.what))
            .label(why)
            .help(help(&finding));
        if let Some(caused) = caused {
            error = error.also(caused, "reached from here");
        }
        found.push(error);
    }
}

const fn code(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Null => "may-be-null",
        FaultKind::DivisionByZero => "may-divide-by-zero",
        FaultKind::NotANumber => "may-not-be-a-number",
        FaultKind::OutOfBounds => "may-exceed-bounds",
        FaultKind::NegativeAmount => "may-be-negative",
        // Other kinds are never noted.
        _ => "may-overflow",
    }
}

fn help(finding: &Finding) -> String {
    match (finding.kind, &finding.path) {
        (FaultKind::Null, Some(path)) => match path.strip_prefix("record.").filter(|field| !field.contains('.')) {
            Some(field) => format!(
                "test it first (`{path} != null && …` in `when`, or `{path} == null ? … : …`), or set `{field}` on every way \
                 into the state"
            ),
            None => format!("test it first: `{path} != null && …` in `when`, or `{path} == null ? … : …`"),
        },
        (FaultKind::Null, None) => "test for null first".to_owned(),
        (FaultKind::Overflow, Some(path)) => {
            format!("declare `min` and `max` for `{path}`, which may be too large for this, or test it in `when`")
        }
        (FaultKind::Overflow, None) => "declare `min` and `max` on what goes in, or test it in `when`".to_owned(),
        (FaultKind::DivisionByZero, _) => "test the divisor in `when`, or declare a `min` above zero for it".to_owned(),
        (FaultKind::OutOfBounds, _) => {
            "test it in `when`, declare the same bounds on what goes in, or widen the field's bounds".to_owned()
        }
        (FaultKind::NegativeAmount, _) => "declare `min = 0` on what goes in, or test it in `when`".to_owned(),
        _ => "guard it in `when`".to_owned(),
    }
}

/// How a row is spoken of: the event and where it leads.
fn spoken(survey: &Survey, event: &Event, row: &Row) -> String {
    let from = survey.names(row.from.iter());
    match (event.kind, row.to) {
        (EventKind::Create, Some(to)) => format!("`create` row to `{}`", survey.name(to)),
        (_, Some(to)) => format!("`{}` row from {from} to `{}`", event.name, survey.name(to)),
        (_, None) => format!("`{}` row in {from}", event.name),
    }
}

/// The commit rows that must be taken: for each leased state the first that is sure to hold.
fn last_commits(survey: &Survey) -> Vec<usize> {
    let rows = survey.lifecycle.rows(EventKind::Commit);
    let last = |state: StateIx| {
        let fits = || rows.iter().enumerate().filter(move |(_, row)| row.from.contains(state));
        let sure = fits().find(|(_, row)| row.when.is_none() && row.require.is_empty());
        sure.or_else(|| fits().next_back()).map(|(at, _)| at)
    };
    survey.leased.iter().filter_map(last).collect()
}
