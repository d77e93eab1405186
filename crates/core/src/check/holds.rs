//! No way into a final state with money in the hold (IMG-13, REL-18). Sound because holds are private and only `rest`
//! empties one for certain: a flow of one bit over the states, guards ignored.

use super::survey::Survey;
use crate::diagnostic::Diagnostic;
use crate::expr::Kind;
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
