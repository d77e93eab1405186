//! Rows that never have their turn, or not in one of their states, because earlier ones always hold.

use super::cases::{Cases, folded};
use super::faults::{Env, Flow, Judge, decides_before, judge_of, passed_over, stands_before, start};
use super::survey::Survey;
use crate::diagnostic::Diagnostic;
use crate::expr::Expr;
use crate::model::{Event, EventKind, Row, StateIx};

pub(super) fn check(survey: &Survey, flow: &Flow, found: &mut Vec<Diagnostic>) {
    for event in &survey.lifecycle.events {
        for at in 0..event.rows.len() {
            let row = &event.rows[at];
            let froms: Vec<Option<StateIx>> = match event.kind {
                EventKind::Create => vec![None],
                _ => survey.fires_in(event, row).into_iter().map(Some).collect(),
            };
            if froms.is_empty() {
                continue;
            }
            let turns: Vec<Turn> = froms.iter().map(|from| turn(survey, flow, event, at, *from)).collect();
            let gone = |turn: &Turn| matches!(turn, Turn::Never | Turn::Dead);
            let shadowed = turns.iter().position(|turn| *turn == Turn::Never).map(|at| froms[at]);
            if let (true, Some(from)) = (turns.iter().all(gone), shadowed) {
                found.push(never(survey, event, at, from));
            } else if let Some(Some(from)) = shadowed {
                found.push(never_from(survey, event, at, from));
            } else if let Some(earlier) = froms.iter().find_map(|from| open_before(event, at, *from)) {
                found.push(open_to_all(row, earlier));
            } else if turns.iter().all(|turn| *turn != Turn::Has) && turns.contains(&Turn::Unknown) {
                let earlier = deciding(survey, event, at, froms[0]).next();
                let mut warning = Diagnostic::warning(
                    "unproven-turn",
                    row.at,
                    "unknown whether this row ever has its turn",
                )
                .label("its guard and earlier ones compare the same values with each other")
                .help("compare with constants, or test the opposite of the earlier guard, so that it can be decided");
                if let Some(earlier) = earlier {
                    warning = warning.also(earlier.at, "may hold wherever this row does");
                }
                found.push(warning);
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Turn {
    Has,
    Never,
    /// Its own guard never holds, which is told of elsewhere.
    Dead,
    Unknown,
}

fn deciding<'a>(
    survey: &'a Survey,
    event: &'a Event,
    at: usize,
    from: Option<StateIx>,
) -> impl Iterator<Item = &'a Row> {
    let row = &event.rows[at];
    event.rows[..at].iter().filter(move |earlier| {
        let who = &survey.lifecycle.who;
        from.is_none_or(|from| earlier.from.contains(from)) && decides_before(who, event.kind, earlier, row)
    })
}

/// An earlier row without `by` and without a guard, which all who may write take in the row's place: its `by` closes nothing. Only one
/// who has no role but a worker's comes past it.
fn open_before(event: &Event, at: usize, from: Option<StateIx>) -> Option<&Row> {
    let row = &event.rows[at];
    event.rows[..at].iter().find(|earlier| {
        from.is_none_or(|from| earlier.from.contains(from))
            && is_open_before(earlier, row)
            && (earlier.when.is_none() || same_guard(earlier, row))
            && stands_before(event.kind, earlier, row)
    })
}

fn same_guard(earlier: &Row, row: &Row) -> bool {
    match (&earlier.when, &row.when) {
        (Some(earlier), Some(row)) => earlier.text == row.text,
        _ => false,
    }
}

fn turn(survey: &Survey, flow: &Flow, event: &Event, at: usize, from: Option<StateIx>) -> Turn {
    let row = &event.rows[at];
    if survey.is_tired() {
        return Turn::Has;
    }
    let mut judge: Judge = judge_of(survey, event, row, None);
    let Some(env) = start(flow, survey.lifecycle, event, row, from, &judge.given.clone()) else { return Turn::Has };
    let alone = match &row.when {
        Some(when) => judge.split(&when.expr, &env).0,
        None => Some(env.clone()),
    };
    if alone.is_none() {
        return Turn::Dead;
    }
    if deciding(survey, event, at, from).next().is_none() {
        return Turn::Has;
    }
    let left = is_left(survey, &mut judge, event, at, from, &env);
    survey.spend(judge.steps);
    if !left {
        return Turn::Never;
    }
    let fold = |row: &Row| row.when.as_ref().map(|when| folded(&when.expr, survey.lifecycle));
    let earlier: Vec<Expr> = deciding(survey, event, at, from).filter_map(fold).collect();
    let own = fold(row);
    let guards: Vec<&Expr> = earlier.iter().chain(&own).collect();
    // Inputs are numbered row by row; where guards read them the cases of two rows cannot be set side by side.
    if guards.iter().any(|guard| reads_input(guard)) {
        return Turn::Has;
    }
    let Some(cases) = Cases::of(survey, &guards, &env) else { return Turn::Has };
    let case = cases
        .find(|case| own.as_ref().is_none_or(|own| case.holds(own)) && !earlier.iter().any(|guard| case.holds(guard)));
    match case {
        None => Turn::Never,
        Some(_) if own.is_some() && cases.is_tangled() => Turn::Unknown,
        Some(_) => Turn::Has,
    }
}

/// Whether anything is left for the row once earlier ones have had theirs; refusals of its own do not count.
fn is_left(survey: &Survey, judge: &mut Judge, event: &Event, at: usize, from: Option<StateIx>, env: &Env) -> bool {
    let mut left = Some(env.clone());
    for earlier in deciding(survey, event, at, from) {
        left = left.and_then(|env| passed_over(judge, earlier, env));
    }
    match (&event.rows[at].when, left) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(when), Some(env)) => judge.split(&when.expr, &env).0.is_some(),
    }
}

fn reads_input(expr: &Expr) -> bool {
    let mut found = false;
    super::faults::each(expr, &mut |expr| {
        if let crate::expr::Kind::Read(path) = &expr.kind {
            found |= matches!(path.root, crate::expr::Root::Input(_));
        }
    });
    found
}

fn never(survey: &Survey, event: &Event, at: usize, from: Option<StateIx>) -> Diagnostic {
    let is_open = deciding(survey, event, at, from).all(|earlier| is_open_before(earlier, &event.rows[at]));
    let help = if is_open { CLOSE } else { "put it before them, narrow their guards, or take it away" };
    let error = Diagnostic::error("shadowed-row", event.rows[at].at, "this row never has its turn")
        .label("wherever it holds, an earlier row is taken")
        .help(help);
    behind(survey, event, at, from, error)
}

/// It lets everybody in before whom the row names.
fn is_open_before(earlier: &Row, row: &Row) -> bool {
    earlier.by.is_empty() && !row.by.is_empty()
}

const CLOSE: &str =
    "give the earlier row a `by`, or take it away; or put this one first, if everybody else may have that one";

fn open_to_all(row: &Row, earlier: &Row) -> Diagnostic {
    Diagnostic::warning("shadowed-by", row.at, "the `by` of this row closes nothing")
        .label("all who may write take an earlier row, whoever they are")
        .help(CLOSE)
        .also(earlier.at, "says no `by`, so that it is for everybody")
}

/// It lives in other states, and its `go` claims more than it can do.
fn never_from(survey: &Survey, event: &Event, at: usize, from: StateIx) -> Diagnostic {
    let name = survey.name(from);
    let what = format!("this row never has its turn in `{name}`");
    let error = Diagnostic::error("shadowed-from", event.rows[at].at, what)
        .label(format!("wherever it holds in `{name}`, an earlier row is taken"))
        .help(format!("take `{name}` out of `go`, or put the row before the others"));
    behind(survey, event, at, Some(from), error)
}

/// The rows that stand before it.
fn behind(survey: &Survey, event: &Event, at: usize, from: Option<StateIx>, mut error: Diagnostic) -> Diagnostic {
    for earlier in deciding(survey, event, at, from).take(3) {
        let what = match (&earlier.when, from) {
            (None, Some(from)) => format!("holds always in `{}`", survey.name(from)),
            (None, None) => "holds always".to_owned(),
            (Some(when), _) => format!("holds where {}", when.text),
        };
        let what = if is_open_before(earlier, &event.rows[at]) {
            format!("{what}, and is for everybody: it says no `by`")
        } else {
            what
        };
        error = error.also(earlier.at, what);
    }
    error
}
