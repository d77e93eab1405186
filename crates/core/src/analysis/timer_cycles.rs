//! Finds cycles of timers in which the engine would move a record around endlessly at one instant.

use super::abstract_eval::{AbstractShape, StateFacts, eval_in_state};
use super::orphans::{is_later_than_now, leaves_on_enter};
use super::reachability::Reachability;
use super::termination::has_termination_bound;
use crate::diagnostic::Diagnostic;
use crate::model::{EventDef, EventKind, StateIndex, TimerSpec, Transition};

/// With more edges, cycles are searched by states only, which bounds the work on hostile files.
const MAX_PRECISE_EDGES: usize = 200;

/// A transition that the engine fires with no delay.
struct InstantEdge<'a> {
    event: &'a EventDef,
    transition: &'a Transition,
    from: StateIndex,
    to: StateIndex,
}

impl InstantEdge<'_> {
    fn is_timer(&self) -> bool {
        self.event.kind == EventKind::Time
    }

    /// Whether the transition is always taken and offers nothing that could move the record elsewhere.
    fn is_unconditional(&self) -> bool {
        self.transition.when.is_none() && self.transition.require.is_empty() && self.transition.cascade.is_empty()
    }
}

pub(super) fn analyze(reachability: &Reachability, state_facts: &StateFacts, diagnostics: &mut Vec<Diagnostic>) {
    let edges = instant_edges(reachability, state_facts);
    diagnostics.extend(edges.iter().filter_map(|edge| find_self_spawning_timer(reachability, edge)));
    let unconditional: Vec<&InstantEdge> = edges.iter().filter(|way| way.is_unconditional()).collect();
    if let Some(cycle) = find_cycle(reachability, &unconditional) {
        diagnostics.push(
            Diagnostic::error("endless-timer", cycle[0].transition.span, "the timers may fire again at once, forever")
                .label(describe_cycle(reachability, &cycle))
                .help(cycle_help(reachability, &cycle)),
        );
        return;
    }
    if let Some(cycle) = find_cycle(reachability, &edges.iter().collect::<Vec<_>>()) {
        diagnostics.push(
            Diagnostic::warning(
                "unproven-timers",
                cycle[0].transition.span,
                "the timers may fire again at once, forever, unless a guard stops them",
            )
            .label(describe_cycle(reachability, &cycle))
            .help(cycle_help(reachability, &cycle)),
        );
    }
}

/// Reports a timer without delay that spawns a record of the same lifecycle with the same timer.
fn find_self_spawning_timer(reachability: &Reachability, edge: &InstantEdge) -> Option<Diagnostic> {
    let lifecycle_name = &reachability.lifecycle.name;
    let fires_again = edge.is_timer()
        && edge.is_unconditional()
        && matches!(edge.transition.timer, Some(TimerSpec::AfterEntering(_)));
    let self_spawn =
        edge.transition.spawn.iter().find(|spawn| spawn.lifecycle == *lifecycle_name && spawn.condition.is_none())?;
    let is_initial_state =
        reachability.lifecycle.transitions(EventKind::Create).iter().any(|create| create.to == Some(edge.from));
    (fires_again && is_initial_state).then(|| {
        Diagnostic::error(
            "endless-timer",
            self_spawn.span,
            format!("each `{lifecycle_name}` spawns another at once, forever"),
        )
        .label("spawned by a timer without a certain delay")
        .help("give the timer a delay, or spawn under an `if` that becomes false")
    })
}

/// Returns the transitions that may fire without delay and without a bound on their number.
fn instant_edges<'a>(reachability: &Reachability<'a>, state_facts: &StateFacts) -> Vec<InstantEdge<'a>> {
    let mut edges = Vec::new();
    for event in
        reachability.lifecycle.events.iter().filter(|event| matches!(event.kind, EventKind::Time | EventKind::Enter))
    {
        for (index, transition) in event.transitions.iter().enumerate() {
            for from in reachability.firing_states(event, transition) {
                let Some(to) = target_state(transition, from) else { continue };
                let leaves_on_enter_first = event.kind == EventKind::Time && leaves_on_enter(reachability, from);
                if !leaves_on_enter_first
                    && can_fire_instantly(reachability, state_facts, transition, from)
                    && !has_termination_bound(reachability, state_facts, event, index, from)
                {
                    edges.push(InstantEdge { event, transition, from, to });
                }
            }
        }
    }
    edges
}

/// Returns the state after the transition. An internal transition fires again only if it sets its own time.
fn target_state(transition: &Transition, from: StateIndex) -> Option<StateIndex> {
    let sets_own_time = || match transition.timer {
        Some(TimerSpec::AtField(slot)) => transition.set.iter().any(|(set, _)| *set == slot),
        _ => false,
    };
    transition.to.or_else(|| sets_own_time().then_some(from))
}

fn can_fire_instantly(
    reachability: &Reachability,
    state_facts: &StateFacts,
    transition: &Transition,
    from: StateIndex,
) -> bool {
    match &transition.timer {
        // An unknown delay may be zero.
        Some(TimerSpec::AfterEntering(after)) => {
            let delay = eval_in_state(reachability, state_facts, &after.expr, from).1;
            delay.is_none_or(|delay| delay.number_range().is_none_or(|(least, _)| least <= 0))
        }
        // Null sets no timer.
        Some(TimerSpec::AtField(slot)) => [&state_facts.on_entry, &state_facts.while_staying]
            .into_iter()
            .filter_map(|table| table[usize::from(from)].as_ref())
            .any(|facts| facts[usize::from(*slot)].shape != AbstractShape::Never),
        None => true,
    }
}

/// Whether `second` may follow `first` without delay. If `first` sets the field of the second timer to a later time, it
/// does not.
fn can_follow_instantly(reachability: &Reachability, first: &InstantEdge, second: &InstantEdge) -> bool {
    let Some(TimerSpec::AtField(slot)) = second.transition.timer else { return true };
    !first.transition.set.iter().any(|(set, formula)| *set == slot && is_later_than_now(reachability, &formula.expr))
}

/// Finds edges that form a cycle, starting with a timer. `enter_cycles` reports cycles of `enter` transitions alone.
fn find_cycle<'a>(reachability: &Reachability, edges: &[&'a InstantEdge<'a>]) -> Option<Vec<&'a InstantEdge<'a>>> {
    let is_precise = edges.len() <= MAX_PRECISE_EDGES;
    edges.iter().filter(|way| way.is_timer()).find_map(|start| {
        let mut paths: Vec<Vec<&InstantEdge>> = vec![vec![start]];
        let mut seen = vec![false; edges.len()];
        while let Some(path) = paths.pop() {
            let last = *path.last()?;
            let next = |way: &InstantEdge| {
                way.from == last.to && (!is_precise || can_follow_instantly(reachability, last, way))
            };
            if next(start) {
                return Some(path);
            }
            for (index, way) in edges.iter().enumerate() {
                if !seen[index] && next(way) {
                    seen[index] = true;
                    paths.push(path.iter().copied().chain([*way]).collect());
                }
            }
        }
        None
    })
}

fn describe_cycle(reachability: &Reachability, cycle: &[&InstantEdge]) -> String {
    let names: Vec<String> = cycle.iter().map(|way| format!("`{}`", reachability.state_name(way.from))).collect();
    let start_state = format!("`{}`", reachability.state_name(cycle[0].from));
    match cycle[0].transition.timer {
        Some(TimerSpec::AtField(slot)) if cycle.len() == 1 => {
            let field = &reachability.lifecycle.fields[usize::from(slot)].name;
            format!("`{field}` is in the past by then, and still is in {start_state}")
        }
        _ if cycle.len() == 1 => format!("comes back to {start_state} without a certain delay"),
        _ => format!("leads from {} back to {start_state} without a certain delay", names.join(" to ")),
    }
}

fn cycle_help(reachability: &Reachability, cycle: &[&InstantEdge]) -> String {
    let field = cycle.iter().find_map(|way| match way.transition.timer {
        Some(TimerSpec::AtField(slot)) => Some(&reachability.lifecycle.fields[usize::from(slot)].name),
        _ => None,
    });
    match field {
        Some(field) => {
            format!(
                "set `{field}` to a later time on the way, such as `now + duration('1m')`, or lead to another state"
            )
        }
        None => "give one of the timers a delay that is always above zero, or lead to another state".to_owned(),
    }
}
