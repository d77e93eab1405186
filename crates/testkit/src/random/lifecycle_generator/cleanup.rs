//! Removes what an author would notice at once: transitions that are never taken, and unreachable states.

use std::collections::BTreeSet;

use super::plan::{LifecyclePlan, StateKind};
use super::transition_text::TransitionText;
use crate::random::Rng;

/// Returns the transitions that can be taken, and the plan with the reachable states.
pub(super) fn remove_unreachable(
    rng: &mut Rng,
    plan: &LifecyclePlan,
    rows: Vec<TransitionText>,
) -> (LifecyclePlan, Vec<TransitionText>) {
    let mut rows = remove_shadowed(rows);
    connect_unreachable(rng, plan, &mut rows);
    let reached = reachable_states(&rows);
    let mut plan = plan.clone();
    plan.states.retain(|state| reached.contains(&state.name));
    for row in &mut rows {
        let (from, to) = parse_go(row);
        let from: Vec<String> = from.into_iter().filter(|state| reached.contains(state)).collect();
        if row.event != "create" {
            row.go = to.map_or_else(|| from.join(" | "), |to| format!("{} -> {to}", from.join(" | ")));
        }
    }
    rows.retain(|row| row.event == "create" || !row.go.starts_with(" -> ") && !row.go.is_empty());
    // Other records send these two events, so each needs a transition.
    for event in ["told", "asked"] {
        if let (false, Some(state)) = (rows.iter().any(|row| row.event == event), plan.states.first()) {
            let mut transition = TransitionText::new(event, state.name.clone());
            transition.set_field("count", "record.count + 1".to_owned());
            rows.push(transition);
        }
    }
    (plan, rows)
}

/// Returns the source states and the target state.
fn parse_go(transition: &TransitionText) -> (Vec<String>, Option<String>) {
    let (left, to) = match transition.go.split_once("->") {
        Some((left, to)) => (left, Some(to.trim().to_owned())),
        None => (&*transition.go, None),
    };
    let from = left.split('|').map(|state| state.trim().to_owned()).filter(|state| !state.is_empty()).collect();
    (from, to)
}

/// Removes the states of a transition in which an earlier transition of its event always applies.
fn remove_shadowed(rows: Vec<TransitionText>) -> Vec<TransitionText> {
    let mut remaining: Vec<TransitionText> = Vec::with_capacity(rows.len());
    for mut row in rows {
        let (from, to) = parse_go(&row);
        let free = |state: &String| {
            !remaining.iter().any(|earlier| {
                let open =
                    earlier.by.is_empty() || (!row.by.is_empty() && row.by.iter().all(|by| earlier.by.contains(by)));
                let sure = earlier.require.is_empty() && earlier.input.is_empty();
                let guard = earlier.when.is_none() || earlier.when == row.when;
                let timed = earlier.after == row.after && earlier.at == row.at;
                earlier.event == row.event && open && sure && guard && timed && parse_go(earlier).0.contains(state)
            })
        };
        if row.event == "create" {
            remaining.push(row);
            continue;
        }
        let left: Vec<String> = from.into_iter().filter(free).collect();
        if !left.is_empty() {
            row.go = to.map_or_else(|| left.join(" | "), |to| format!("{} -> {to}", left.join(" | ")));
            remaining.push(row);
        }
    }
    remaining
}

fn reachable_states(rows: &[TransitionText]) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    loop {
        let before = reached.len();
        for row in rows {
            let (from, to) = parse_go(row);
            if let (Some(to), true) = (to, from.is_empty() || from.iter().any(|state| reached.contains(state))) {
                reached.insert(to);
            }
        }
        if reached.len() == before {
            return reached;
        }
    }
}

/// Adds an event for most unreachable states.
fn connect_unreachable(rng: &mut Rng, plan: &LifecyclePlan, rows: &mut Vec<TransitionText>) {
    for state in plan.states.iter().filter(|state| state.kind != StateKind::Leased) {
        let reachable = reachable_states(rows);
        if reachable.contains(&state.name) || rng.percent(25) {
            continue;
        }
        let fits = |from: &&super::plan::StatePlan| {
            reachable.contains(&from.name)
                && from.kind != StateKind::Final
                && (!from.after_commit || state.after_commit)
        };
        let from: Vec<String> = plan.states.iter().filter(fits).map(|from| from.name.clone()).collect();
        if from.is_empty() {
            continue;
        }
        let mut transition = TransitionText::new(
            &format!("ev_{}", state.name.to_lowercase()),
            format!("{} -> {}", from.join(" | "), state.name),
        );
        if plan.has_money && state.kind == StateKind::Final {
            transition
                .transfers
                .push("{ from = \"hold\", to = \"user:{record.owner}\", amount = \"rest\" }".to_owned());
        }
        rows.push(transition);
    }
}
