//! Which rows the engine may come to fire: its own, and whatever these cause, spawn or bring about on entering.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::faults::{Known, Outcome, Sent, causes, examine};
use super::{Studied, Studies, last_commits, refusal, report, spawns, spoken};
use crate::diagnostic::{Diagnostic, Span};
use crate::model::{By, Event, EventKind, Row, StateIx, Type};

/// A row, by lifecycle, event and number.
pub(super) type Which = (Arc<str>, usize, usize);

/// A row that may be fired with nobody there.
struct Fired {
    which: Which,
    /// What is known of its inputs, where another row gives them.
    given: Option<Vec<Known>>,
    /// What caused it.
    caused: Option<Span>,
    /// Whether it may also not be refused; a commit row before the last may.
    must: bool,
}

/// Callers of one row that are looked at apart; beyond them it is looked at with any input.
const CALLERS: u32 = 4;
/// How deep spawns and requires may nest at run time.
const DEPTH: u32 = 16;

pub(super) fn check(all: &Studies, seen: &mut HashSet<(Span, &'static str)>, found: &mut Vec<Diagnostic>) {
    let mut visits: HashMap<(Which, bool), u32> = HashMap::new();
    let mut queue: Vec<Fired> = roots(all);
    let mut edges: Vec<(Which, Which, bool, Span)> = Vec::new();
    while let Some(mut fired) = queue.pop() {
        let visit = visits.entry((fired.which.clone(), fired.must)).or_default();
        *visit += 1;
        let once = fired.given.is_none() && fired.caused.is_none();
        if *visit > CALLERS + 1 || (once && *visit > 1) {
            continue;
        }
        if *visit == CALLERS + 1 {
            fired.given = None;
        }
        let Some(studied) = all.get(&fired.which.0) else { continue };
        let Some(event) = studied.survey.lifecycle.events.get(fired.which.1) else { continue };
        let Some(row) = event.rows.get(fired.which.2) else { continue };
        let why = match fired.caused {
            None => {
                format!("the engine fires this {}, so it must always go through", spoken(&studied.survey, event, row))
            }
            Some(_) => format!(
                "the engine may come to fire this {} of `{}`, so it must always go through",
                spoken(&studied.survey, event, row),
                fired.which.0
            ),
        };
        let froms: Vec<Option<StateIx>> = match event.kind {
            EventKind::Create => vec![None],
            _ if studied.survey.is_spent() => vec![row.from.iter().next()],
            _ => studied.survey.fires_in(event, row).into_iter().map(Some).collect(),
        };
        for from in froms {
            let outcome = examine(&studied.survey, &studied.flow, event, fired.which.2, from, fired.given.as_deref());
            if fired.must && outcome.after.is_some() {
                refusal::check(all, studied, event, row, from, &outcome, (&why, fired.caused), seen, found);
                follow(all, &fired, row, &outcome, &mut queue, &mut edges, seen, found);
                entered(studied, &fired, row, &mut edges);
            }
            report(outcome.findings, &why, fired.caused, seen, found);
        }
    }
    endless(&edges, found);
}

fn roots(all: &Studies) -> Vec<Fired> {
    let mut roots = Vec::new();
    for (name, studied) in all {
        for (number, event) in studied.survey.lifecycle.events.iter().enumerate() {
            let last = if event.kind == EventKind::Commit { last_commits(&studied.survey) } else { Vec::new() };
            for at in 0..event.rows.len() {
                let must = match event.kind {
                    EventKind::Create | EventKind::Called => continue,
                    EventKind::Commit => last.contains(&at),
                    _ => true,
                };
                roots.push(Fired { which: (name.clone(), number, at), given: None, caused: None, must });
            }
        }
    }
    roots
}

/// What the row makes others do.
#[expect(clippy::too_many_arguments, reason = "the walk's whole state, used in one place")]
fn follow(
    all: &Studies,
    fired: &Fired,
    row: &Row,
    outcome: &Outcome,
    queue: &mut Vec<Fired>,
    edges: &mut Vec<(Which, Which, bool, Span)>,
    seen: &mut HashSet<(Span, &'static str)>,
    found: &mut Vec<Diagnostic>,
) {
    let mut push = |which: Which, given: Vec<Known>, nests: bool, at: Span| {
        edges.push((fired.which.clone(), which.clone(), nests, at));
        queue.push(Fired { which, given: Some(given), caused: Some(at), must: true });
    };
    let made = |sent: &Sent, lifecycle: &str, at: Span, found: &mut Vec<Diagnostic>, seen: &mut HashSet<_>| {
        let Some(target) = all.get(lifecycle) else { return Vec::new() };
        let taking = spawns::rows_taking(target, sent);
        if let Some(why) = taking.unsure
            && seen.insert((at, "engine-spawn"))
        {
            found.push(
                Diagnostic::error(
                    "engine-spawn",
                    at,
                    format!("this `{lifecycle}` may not be made, and then everything is undone"),
                )
                .label(why)
                .help(format!("give values that a `create` row of `{lifecycle}` is sure to take, or add such a row")),
            );
        }
        taking.rows
    };
    for (at, sent) in &outcome.spawned {
        let spawn = &row.spawn[*at];
        for (number, given) in made(sent, &spawn.lifecycle, spawn.at, found, seen) {
            if let Some(event) = event_number(all, &spawn.lifecycle, "create") {
                push((spawn.lifecycle.clone(), event, number), given, true, spawn.at);
            }
        }
    }
    for (at, to, bytes) in &outcome.delivered {
        let deliver = &row.deliver[*at];
        let most = all.get("onceward.delivery").map_or(u64::MAX, |delivery| delivery.survey.lifecycle.payload.max);
        if *bytes > most && seen.insert((deliver.at, "deliver-too-large")) {
            found.push(
                Diagnostic::error("deliver-too-large", deliver.at, "this message may be too large, which is a fault")
                    .label(format!("its body may have {bytes} bytes as JSON, and at most {most} are sent"))
                    .help("send less, or give the texts in it a smaller `max` (a character may take six bytes)"),
            );
        }
        let source = Known::some(super::super::faults::Shape::Text { size: (36, 36), of: None, pattern: None });
        let sent: Sent = vec![("to".into(), to.clone()), ("source".into(), source)];
        let name: Arc<str> = "onceward.delivery".into();
        for (number, given) in made(&sent, &name, deliver.at, found, seen) {
            if let Some(event) = event_number(all, &name, "create") {
                push((name.clone(), event, number), given, true, deliver.at);
            }
        }
    }
    let requires = row.require.len();
    for (at, sent) in &outcome.caused {
        let Some(cause) = causes(row).nth(*at) else { continue };
        for name in targets(&cause.to.expr.typed.ty) {
            let (Some(target), Some(number)) = (all.get(&name), event_number(all, &name, &cause.event)) else {
                continue;
            };
            let event = &target.survey.lifecycle.events[number];
            for (row_number, row) in event.rows.iter().enumerate() {
                if let Some(given) =
                    spawns::fitted(row, sent, false).map(|fit| fit.given).filter(|_| may_be_caused(row))
                {
                    push((name.clone(), number, row_number), given, *at < requires, cause.at);
                }
            }
        }
    }
}

/// Entering a state fires its `enter` rows.
fn entered(studied: &Studied, fired: &Fired, row: &Row, edges: &mut Vec<(Which, Which, bool, Span)>) {
    let Some(to) = row.to else { return };
    let lifecycle = studied.survey.lifecycle;
    let Some(number) = lifecycle.events.iter().position(|event| event.kind == EventKind::Enter) else { return };
    for (at, enter) in lifecycle.events[number].rows.iter().enumerate().filter(|(_, enter)| enter.from.contains(to)) {
        edges.push((fired.which.clone(), (fired.which.0.clone(), number, at), false, enter.at));
    }
}

/// The lifecycles that a cause may be sent to.
pub(crate) fn targets(ty: &Type) -> Vec<Arc<str>> {
    match ty {
        Type::Ref(names) => names.to_vec(),
        Type::List(element) => targets(element),
        _ => Vec::new(),
    }
}

/// A row for workers alone is never taken on another record's word: that carries no token.
pub(crate) fn may_be_caused(row: &Row) -> bool {
    row.by.is_empty() || row.by.iter().any(|by| *by != By::Worker)
}

pub(super) fn event_number(all: &Studies, lifecycle: &str, event: &str) -> Option<usize> {
    let events: &[Event] = &all.get(lifecycle)?.survey.lifecycle.events;
    events.iter().position(|own| *own.name == *event)
}

/// Spawns and requires that nest without end, or deeper than the engine goes, are refused at run time.
fn endless(edges: &[(Which, Which, bool, Span)], found: &mut Vec<Diagnostic>) {
    let mut depth: HashMap<&Which, u32> = HashMap::new();
    // Depths only grow, and beyond the bound they are reported: at most so many rounds.
    loop {
        let mut grown = false;
        for (from, to, nests, at) in edges {
            let here = depth.get(from).copied().unwrap_or(0) + u32::from(*nests);
            if here > DEPTH {
                found.push(
                    Diagnostic::error(
                        "endless-spawn",
                        *at,
                        format!("records make or require one another more than {DEPTH} deep"),
                    )
                    .label("comes round to itself, or nests too deep")
                    .help("break the circle: let a timer or a caller make the next record"),
                );
                return;
            }
            let known = depth.entry(to).or_insert(0);
            if here > *known {
                *known = here;
                grown = true;
            }
        }
        if !grown {
            return;
        }
    }
}
