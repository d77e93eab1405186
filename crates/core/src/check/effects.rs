//! A job's effect lands once, ever (EXE-12): after a commit no way leads back to where it could be leased again.

use super::survey::Survey;
use crate::diagnostic::Diagnostic;
use crate::model::{EventKind, Row, StateIx, StateSet};

pub(super) fn check(survey: &Survey, found: &mut Vec<Diagnostic>) {
    for row in survey.lifecycle.rows(EventKind::Commit) {
        let mut starts = StateSet::default();
        for from in row.from.iter().filter(|from| survey.fires(EventKind::Commit, row, *from)) {
            match row.to {
                Some(to) => starts = starts.with(to),
                None => starts = after_finish(survey, from).fold(starts, StateSet::with),
            }
        }
        let came = survey.spread(starts);
        let again = survey.ready.iter().find(|state| starts.contains(*state) || came[usize::from(*state)].is_some());
        if let Some(again) = again {
            found.push(twice(survey, row, again, &came));
        }
    }
}

fn after_finish<'a>(survey: &'a Survey, from: StateIx) -> impl Iterator<Item = StateIx> + 'a {
    survey.lifecycle.rows(EventKind::Finish).iter().filter(move |row| row.from.contains(from)).filter_map(|row| row.to)
}

fn twice(survey: &Survey, row: &Row, again: StateIx, came: &[Option<(StateIx, &str)>]) -> Diagnostic {
    let mut path = format!("`{}`", survey.name(again));
    let mut state = again;
    while let Some((from, event)) = came[usize::from(state)] {
        path = format!("`{}` → ({event}) {path}", survey.name(from));
        state = from;
    }
    Diagnostic::error("effect-twice", row.at, format!("after this commit the job could be leased again in `{}`", survey.name(again)))
        .label(format!("leads on to {path}"))
        .also(survey.lifecycle.states[usize::from(again)].at, "ready for workers")
        .help("a job has one effect, ever: end in a state from which no row leads to a ready one, and spawn a new record for more work")
}
