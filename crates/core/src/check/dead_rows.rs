//! Rows that can never be taken, whatever comes before them: their guard never holds, or they always refuse. And
//! refusals that never come.

use super::admits;
use super::cases::{Cases, folded};
use super::faults::{Env, Flow, Judge, Outlook, in_state, judge_of, outlook, start};
use super::survey::{Survey, is_true, only_refuses};
use crate::diagnostic::Diagnostic;
use crate::expr::Expr;
use crate::model::{Event, EventKind, Row, StateIx};

pub(super) fn check(survey: &Survey, flow: &Flow, found: &mut Vec<Diagnostic>) {
    for event in &survey.lifecycle.events {
        for (at, row) in event.rows.iter().enumerate() {
            let froms: Vec<Option<StateIx>> = match event.kind {
                EventKind::Create => vec![None],
                _ => survey.fires_in(event, row).into_iter().map(Some).collect(),
            };
            if froms.is_empty() || survey.is_tired() {
                continue;
            }
            if froms.iter().all(|from| is_dead(survey, flow, event, row, *from)) {
                found.extend(dead(survey, flow, event, row));
            } else if let Some(nobody) = admits::nobody(survey, flow, event, row, &froms) {
                found.push(nobody);
            } else if !row.refuse.is_empty() {
                refusals(survey, flow, event, at, &froms, found);
            }
        }
    }
}

/// Whether the row's guard, by itself, never holds in this state.
pub(super) fn is_dead(survey: &Survey, flow: &Flow, event: &Event, row: &Row, from: Option<StateIx>) -> bool {
    let Some(when) = &row.when else { return false };
    let mut judge: Judge = judge_of(survey, event, row, None);
    // A state of which nothing is known is another matter.
    let Some(env) = start(flow, survey.lifecycle, event, row, from, &judge.given) else { return false };
    judge.muted = 1;
    let holds = judge.split(&when.expr, &env).0.is_some();
    survey.spend(judge.steps);
    !holds || never(survey, &folded(&when.expr, survey.lifecycle), &env)
}

/// No case makes it true.
fn never(survey: &Survey, guard: &Expr, env: &Env) -> bool {
    let cases = Cases::of(survey, &[guard], env);
    cases.is_some_and(|cases| cases.find(|case| case.holds(guard)).is_none())
}

fn dead(survey: &Survey, flow: &Flow, event: &Event, row: &Row) -> Option<Diagnostic> {
    let when = row.when.as_ref()?;
    let warning = Diagnostic::warning("dead-row", when.expr.at, "this row is never taken: its guard never holds");
    let warning = if event.kind == EventKind::Create {
        warning.label("true for no new record")
    } else {
        let states = survey.names(survey.fires_in(event, row));
        warning.label(format!("true for no record in {states}"))
    };
    let mut judge: Judge = judge_of(survey, event, row, None);
    judge.muted = 1;
    let could = survey.fires_in(event, row).into_iter().any(|from| {
        let env = in_state(survey.lifecycle, flow.declared.clone(), from);
        judge.split(&when.expr, &env).0.is_some()
    });
    survey.spend(judge.steps);
    Some(warning.help(if could {
        "no row brings a record there with such values: set or take them somewhere, correct the guard, or take the row \
         away"
    } else {
        "correct the guard, or take the row away"
    }))
}

fn refusals(
    survey: &Survey,
    flow: &Flow,
    event: &Event,
    at: usize,
    froms: &[Option<StateIx>],
    found: &mut Vec<Diagnostic>,
) {
    let row = &event.rows[at];
    let outlooks: Vec<Vec<Outlook>> = froms.iter().map(|from| outlook(survey, flow, event, at, *from)).collect();
    for (number, refuse) in row.refuse.iter().enumerate() {
        // Where the row has no turn, or an earlier entry always refuses, this one is not asked.
        let asked: Vec<Outlook> = outlooks.iter().filter_map(|outlook| outlook.get(number).copied()).collect();
        if asked.is_empty() {
            return;
        }
        let at = refuse.condition.expr.at;
        if asked.iter().all(|outlook| *outlook == Outlook::Always) {
            if !(is_true(&refuse.condition.expr) && only_refuses(row)) {
                found.push(
                    Diagnostic::warning("always-refused", at, "this row is never taken: it always refuses")
                        .label("true wherever the row's guard holds")
                        .help("correct the condition, or let the row do nothing but refuse: `if = \"true\"`, and no change"),
                );
            }
            return;
        }
        if asked.iter().all(|outlook| *outlook == Outlook::Never) {
            found.push(
                Diagnostic::warning("never-refuses", at, format!("this never refuses with `{}`", refuse.code))
                    .label("false wherever the row's guard holds")
                    .help("correct the condition, or take it away: what it forbids cannot be"),
            );
        }
    }
}
