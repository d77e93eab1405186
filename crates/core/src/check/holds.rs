//! No way into a final state with money in the hold (IMG-13, REL-18). Sound because holds are private and only `rest`
//! empties one for certain: a flow of one bit over the states, guards ignored.

use super::faults::each;
use super::survey::{Survey, numbered, rows};
use crate::diagnostic::Diagnostic;
use crate::expr::{Expr, Kind, Root, Step};
use crate::model::{AccountRef, Amount, EventKind, Move, Row, StateIx, StateSet};
use crate::value::Value;

/// How a hold came to be filled in a state: the row that did it or carried it here, and the state before.
#[derive(Clone, Copy)]
struct Way<'a> {
    event: &'a str,
    from: Option<StateIx>,
}

pub(super) fn check(survey: &Survey, found: &mut Vec<Diagnostic>) {
    let lifecycle = survey.lifecycle;
    let states = lifecycle.states.len();
    let mut filled: Vec<Option<Way>> = vec![None; states];
    // After a commit that stays only `finish` moves the record: what the commit emptied stays empty until then.
    let mut committed: Vec<Option<Way>> = vec![None; states];
    // Every round fills a state or ends.
    loop {
        let mut grown = false;
        for event in &lifecycle.events {
            for row in &event.rows {
                for (from, to) in ways(survey, event.kind, row) {
                    let table = if event.kind == EventKind::Finish { &committed } else { &filled };
                    let before = from.is_some_and(|from| table[usize::from(from)].is_some());
                    // A final state is where the money is missed, not where it goes on from.
                    let ends = lifecycle.states[usize::from(to)].is_final;
                    let stays = event.kind == EventKind::Commit && row.to.is_none();
                    if stays && committed[usize::from(to)].is_none() && is_filled(&row.moves, before) {
                        committed[usize::from(to)] = Some(Way { event: &event.name, from });
                        grown = true;
                        break;
                    }
                    if !ends && filled[usize::from(to)].is_none() && is_filled(&row.moves, before) {
                        filled[usize::from(to)] = Some(Way { event: &event.name, from });
                        grown = true;
                    }
                }
            }
        }
        if !grown {
            break;
        }
    }
    for event in &lifecycle.events {
        for row in &event.rows {
            let bad = ways(survey, event.kind, row).into_iter().find(|(from, to)| {
                let table = if event.kind == EventKind::Finish { &committed } else { &filled };
                let before = from.is_some_and(|from| table[usize::from(from)].is_some());
                lifecycle.states[usize::from(*to)].is_final && is_filled(&row.moves, before)
            });
            if let Some((from, to)) = bad {
                found.push(left_behind(survey, row, &event.name, from, to, &filled));
            }
        }
    }
    trapped(survey, &filled, found);
}

/// Whether any row brings money into the hold.
pub(super) fn may_be_filled(survey: &Survey) -> bool {
    rows(survey.lifecycle).any(|(_, row)| is_filled(&row.moves, false))
}

/// No state where money goes into the hold and no way leads out again. A way into a final state is judged by itself.
fn trapped(survey: &Survey, filled: &[Option<Way>], found: &mut Vec<Diagnostic>) {
    let out = |state: StateIx| {
        survey
            .ways_from(state)
            .any(|(_, row, to)| survey.lifecycle.states[usize::from(to)].is_final || row.moves.iter().any(may_empty))
    };
    let is_trapped = |state: StateIx| {
        let onward = survey.spread(StateSet::default().with(state));
        !out(state) && !(0..64).zip(&onward).any(|(at, way)| way.is_some() && out(at))
    };
    for (at, state) in numbered(survey.lifecycle) {
        let Some(way) = &filled[usize::from(at)] else { continue };
        // Told of where the money came in; the states after it need no word of their own.
        let before = way.from.filter(|from| *from != at && filled[usize::from(*from)].is_some());
        if !is_trapped(at) || before.is_some_and(is_trapped) {
            continue;
        }
        let came = rows(survey.lifecycle).find(|(event, row)| {
            *event.name == *way.event && row.to.is_none_or(|to| to == at) && is_filled(&row.moves, false)
        });
        let error = Diagnostic::error(
            "trapped-hold",
            state.at,
            format!("money may come into the hold in `{}`, and no row ever takes it out", state.name),
        )
        .label("no row from here on empties the hold")
        .help(format!(
            "add a row from `{}`, or from a state after it, with `move = [{{ from = \"hold\", to = \"…\", amount = \"rest\" }}]`",
            state.name
        ));
        found.push(match came {
            Some((_, row)) => error.also(row.at, "fills it"),
            None => error,
        });
    }
}

/// The rest, or an amount that a caller can choose so that nothing is left.
fn may_empty(step: &Move) -> bool {
    let chosen = |expr: &Expr| match &expr.kind {
        Kind::Read(path) => matches!(path.root, Root::Input(_)) || path.steps.first() == Some(&Step::Hold),
        _ => false,
    };
    matches!(step.from, AccountRef::Hold)
        && match &step.amount {
            Amount::Rest => true,
            Amount::Formula(formula) => {
                let mut found = false;
                each(&formula.expr, &mut |expr| found |= chosen(expr));
                found
            }
        }
}

fn ways(survey: &Survey, kind: EventKind, row: &Row) -> Vec<(Option<StateIx>, StateIx)> {
    match (kind, row.to) {
        (EventKind::Create, Some(to)) => vec![(None, to)],
        (EventKind::Create, None) => Vec::new(),
        _ => {
            let fits = row.from.iter().filter(|from| survey.fires(kind, row, *from));
            fits.map(|from| (Some(from), row.to.unwrap_or(from))).collect()
        }
    }
}

/// The hold after these moves, in order.
fn is_filled(moves: &[Move], before: bool) -> bool {
    moves.iter().fold(before, |filled, step| {
        let emptied = filled && !(matches!(step.from, AccountRef::Hold) && matches!(step.amount, Amount::Rest));
        let fills = matches!(step.to, AccountRef::Hold) && !is_zero(&step.amount);
        emptied || fills
    })
}

fn is_zero(amount: &Amount) -> bool {
    matches!(amount, Amount::Formula(formula) if matches!(formula.expr.kind, Kind::Const(Value::Int(0))))
}

fn left_behind(
    survey: &Survey,
    row: &Row,
    event: &str,
    from: Option<StateIx>,
    to: StateIx,
    filled: &[Option<Way>],
) -> Diagnostic {
    let mut path = format!("({event}) `{}`", survey.name(to));
    let mut state = from;
    // The way back ends where the hold was empty; that state may have been filled later, from here even, so it also ends
    // where it comes round.
    let mut seen = StateSet::default();
    while let Some(at) = state.filter(|at| !seen.contains(*at)) {
        seen = seen.with(at);
        path = format!("`{}` → {path}", survey.name(at));
        state = match filled[usize::from(at)] {
            Some(way) if way.from != Some(at) => {
                path = format!("({}) {path}", way.event);
                if way.from.is_some() {
                    path = format!("→ {path}");
                }
                way.from
            }
            _ => None,
        };
    }
    let path = path.replace("→ →", "→");
    let to_name = survey.name(to);
    let message = format!("a record may come to its end in `{to_name}` with money in its hold");
    Diagnostic::error("filled-hold", row.at, message)
        .label(format!("the hold may be filled: {path}"))
        .also(survey.lifecycle.states[usize::from(to)].at, "final")
        .help("empty it in this row for certain: `move = [{ from = \"hold\", to = \"…\", amount = \"rest\" }]`")
}
