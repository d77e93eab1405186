//! `enter` rows end: no circle of them, guards ignored.

use super::survey::Survey;
use crate::diagnostic::Diagnostic;
use crate::model::{EventKind, Row, StateIx};

pub(super) fn check(survey: &Survey, found: &mut Vec<Diagnostic>) {
    let rows = survey.lifecycle.rows(EventKind::Enter);
    let states = survey.lifecycle.states.len();
    // A circle is reported once, at the row that closes it.
    let mut colour = vec![Colour::New; states];
    for state in (0..64).take(states) {
        visit(survey, rows, state, &mut colour, &mut Vec::new(), found);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Colour {
    New,
    Open,
    Done,
}

/// Depth first; at most 64 deep, as there are no more states.
fn visit(
    survey: &Survey,
    rows: &[Row],
    state: StateIx,
    colour: &mut [Colour],
    path: &mut Vec<StateIx>,
    found: &mut Vec<Diagnostic>,
) {
    if colour[usize::from(state)] != Colour::New {
        return;
    }
    colour[usize::from(state)] = Colour::Open;
    path.push(state);
    for row in rows.iter().filter(|row| row.from.contains(state)) {
        let Some(to) = row.to else { continue };
        if colour[usize::from(to)] == Colour::Open {
            let start = path.iter().position(|at| *at == to).unwrap_or(0);
            let mut circle: Vec<String> = path[start..].iter().map(|at| format!("`{}`", survey.name(*at))).collect();
            circle.push(format!("`{}`", survey.name(to)));
            found.push(
                Diagnostic::error("enter-cycle", row.at, "`enter` rows lead round in a circle")
                    .label(format!("{}, all in one operation", circle.join(" → ")))
                    .help("break the circle: let one of these rows answer a called event or a timer instead"),
            );
        } else {
            visit(survey, rows, to, colour, path, found);
        }
    }
    path.pop();
    colour[usize::from(state)] = Colour::Done;
}
