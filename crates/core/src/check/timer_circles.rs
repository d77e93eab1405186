//! Circles of timers: a record that the engine would move round and round at one moment, with nobody asking for it.

use super::bounded::is_bounded;
use super::faults::{Flow, Shape, standing};
use super::orphans::{is_later, passes_through};
use super::survey::Survey;
use crate::diagnostic::Diagnostic;
use crate::model::{Event, EventKind, Row, StateIx, Timing};

/// More ways than this are followed state by state only: a file of that size is nobody's honest work.
const WAYS: usize = 200;

/// A row that the engine takes by itself, from one state to another, with no time between.
struct Way<'a> {
    event: &'a Event,
    row: &'a Row,
    from: StateIx,
    to: StateIx,
}

impl Way<'_> {
    fn is_timed(&self) -> bool {
        self.event.kind == EventKind::Time
    }

    /// Whether something else may keep the row from being taken, or move the record on.
    fn is_free(&self) -> bool {
        self.row.when.is_none() && self.row.require.is_empty() && self.row.cascade.is_empty()
    }
}

pub(super) fn check(survey: &Survey, flow: &Flow, found: &mut Vec<Diagnostic>) {
    let ways = ways(survey, flow);
    found.extend(ways.iter().filter_map(|way| breeds(survey, way)));
    let free: Vec<&Way> = ways.iter().filter(|way| way.is_free()).collect();
    if let Some(circle) = circle(survey, &free) {
        found.push(
            Diagnostic::error("endless-timer", circle[0].row.at, "these timers may fire again at once, for ever")
                .label(told(survey, &circle))
                .help(help(survey, &circle)),
        );
        return;
    }
    if let Some(circle) = circle(survey, &ways.iter().collect::<Vec<_>>()) {
        found.push(
            Diagnostic::warning("unproven-timers", circle[0].row.at, "unknown whether these timers ever rest")
                .label(told(survey, &circle))
                .help(help(survey, &circle)),
        );
    }
}

/// A timer with no delay that makes another record of its own kind, which has the same timer.
fn breeds(survey: &Survey, way: &Way) -> Option<Diagnostic> {
    let own = &survey.lifecycle.name;
    let again = way.is_timed() && way.is_free() && matches!(way.row.timing, Some(Timing::After(_)));
    let made = way.row.spawn.iter().find(|spawn| spawn.lifecycle == *own && spawn.condition.is_none())?;
    let born = survey.lifecycle.rows(EventKind::Create).iter().any(|create| create.to == Some(way.from));
    (again && born).then(|| {
        Diagnostic::error("endless-timer", made.at, format!("each `{own}` makes another at once, for ever"))
            .label("made by a timer with no delay that is sure")
            .help("give the timer a delay, or make it under an `if` that comes to be false")
    })
}

/// The ways that may be taken with no time between, each as often as you like.
fn ways<'a>(survey: &Survey<'a>, flow: &Flow) -> Vec<Way<'a>> {
    let mut ways = Vec::new();
    for event in survey.lifecycle.events.iter().filter(|event| matches!(event.kind, EventKind::Time | EventKind::Enter))
    {
        for (at, row) in event.rows.iter().enumerate() {
            for from in survey.fires_in(event, row) {
                let Some(to) = target(row, from) else { continue };
                let sent_on = event.kind == EventKind::Time && passes_through(survey, from);
                if !sent_on && may_be_at_once(survey, flow, row, from) && !is_bounded(survey, flow, event, at, from) {
                    ways.push(Way { event, row, from, to });
                }
            }
        }
    }
    ways
}

/// Where the row leads. One that stays fires again only where it moves its own time.
fn target(row: &Row, from: StateIx) -> Option<StateIx> {
    let moves_its_time = || match row.timing {
        Some(Timing::At(slot)) => row.set.iter().any(|(set, _)| *set == slot),
        _ => false,
    };
    row.to.or_else(|| moves_its_time().then_some(from))
}

fn may_be_at_once(survey: &Survey, flow: &Flow, row: &Row, from: StateIx) -> bool {
    match &row.timing {
        // A delay of which nothing is known may be none.
        Some(Timing::After(after)) => {
            let delay = standing(survey, flow, &after.expr, from).1;
            delay.is_none_or(|delay| delay.number().is_none_or(|(least, _)| least <= 0))
        }
        // Null is no timer.
        Some(Timing::At(slot)) => [&flow.entry, &flow.rest]
            .into_iter()
            .filter_map(|table| table[usize::from(from)].as_ref())
            .any(|facts| facts[usize::from(*slot)].shape != Shape::Never),
        None => true,
    }
}

/// Whether the second way may follow the first at once: a timer that follows a field does not where the first way sets the
/// field to a later time.
fn follows(survey: &Survey, first: &Way, second: &Way) -> bool {
    let Some(Timing::At(slot)) = second.row.timing else { return true };
    !first.row.set.iter().any(|(set, formula)| *set == slot && is_later(survey, &formula.expr))
}

/// Some ways that lead back to where they began, a timed one first. Circles of `enter` rows alone are told elsewhere.
fn circle<'a>(survey: &Survey, ways: &[&'a Way<'a>]) -> Option<Vec<&'a Way<'a>>> {
    let closely = ways.len() <= WAYS;
    ways.iter().filter(|way| way.is_timed()).find_map(|start| {
        let mut paths: Vec<Vec<&Way>> = vec![vec![start]];
        let mut seen = vec![false; ways.len()];
        while let Some(path) = paths.pop() {
            let last = *path.last()?;
            let next = |way: &Way| way.from == last.to && (!closely || follows(survey, last, way));
            if next(start) {
                return Some(path);
            }
            for (at, way) in ways.iter().enumerate() {
                if !seen[at] && next(way) {
                    seen[at] = true;
                    paths.push(path.iter().copied().chain([*way]).collect());
                }
            }
        }
        None
    })
}

fn told(survey: &Survey, circle: &[&Way]) -> String {
    let names: Vec<String> = circle.iter().map(|way| format!("`{}`", survey.name(way.from))).collect();
    let back = format!("`{}`", survey.name(circle[0].from));
    match circle[0].row.timing {
        Some(Timing::At(slot)) if circle.len() == 1 => {
            let field = &survey.lifecycle.fields[usize::from(slot)].name;
            format!("`{field}` has passed by then, and is still past in {back}")
        }
        _ if circle.len() == 1 => format!("comes back to {back} with no delay that is sure"),
        _ => format!("from {} back to {back}, with no delay on the way that is sure", names.join(" to ")),
    }
}

fn help(survey: &Survey, circle: &[&Way]) -> String {
    let field = circle.iter().find_map(|way| match way.row.timing {
        Some(Timing::At(slot)) => Some(&survey.lifecycle.fields[usize::from(slot)].name),
        _ => None,
    });
    match field {
        Some(field) => {
            format!("set `{field}` to a later time on the way, as `now + duration('1m')`, or lead elsewhere")
        }
        None => "give one of them a delay that is always more than nothing, or lead elsewhere".to_owned(),
    }
}
