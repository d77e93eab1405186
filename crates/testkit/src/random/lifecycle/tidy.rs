//! What an author would see at a glance: rows that never have their turn, states that nothing leads to.

use std::collections::BTreeSet;

use super::plan::{Kind, Plan};
use super::row::Row;
use crate::random::Chance;

/// The rows that can be taken, and the plan with the states that can be reached.
pub(super) fn tidy(chance: &mut Chance, plan: &Plan, rows: Vec<Row>) -> (Plan, Vec<Row>) {
    let mut rows = without_shadowed(rows);
    connect(chance, plan, &mut rows);
    let reached = reached(&rows);
    let mut plan = plan.clone();
    plan.states.retain(|state| reached.contains(&state.name));
    for row in &mut rows {
        let (from, to) = parts(row);
        let from: Vec<String> = from.into_iter().filter(|state| reached.contains(state)).collect();
        if row.event != "create" {
            row.go = to.map_or_else(|| from.join(" | "), |to| format!("{} -> {to}", from.join(" | ")));
        }
    }
    rows.retain(|row| row.event == "create" || !row.go.starts_with(" -> ") && !row.go.is_empty());
    // Others send these two, so somebody must answer.
    for event in ["told", "asked"] {
        if let (false, Some(state)) = (rows.iter().any(|row| row.event == event), plan.states.first()) {
            let mut row = Row::new(event, state.name.clone());
            row.set("count", "record.count + 1".to_owned());
            rows.push(row);
        }
    }
    (plan, rows)
}

/// From which states, and where to.
fn parts(row: &Row) -> (Vec<String>, Option<String>) {
    let (left, to) = match row.go.split_once("->") {
        Some((left, to)) => (left, Some(to.trim().to_owned())),
        None => (&*row.go, None),
    };
    let from = left.split('|').map(|state| state.trim().to_owned()).filter(|state| !state.is_empty()).collect();
    (from, to)
}

/// Take the states out of a row in which an earlier row of its event always holds.
fn without_shadowed(rows: Vec<Row>) -> Vec<Row> {
    let mut kept: Vec<Row> = Vec::with_capacity(rows.len());
    for mut row in rows {
        let (from, to) = parts(&row);
        let free = |state: &String| {
            !kept.iter().any(|earlier| {
                let open =
                    earlier.by.is_empty() || (!row.by.is_empty() && row.by.iter().all(|by| earlier.by.contains(by)));
                let sure = earlier.require.is_empty() && earlier.input.is_empty();
                let guard = earlier.when.is_none() || earlier.when == row.when;
                let timed = earlier.after == row.after && earlier.at == row.at;
                earlier.event == row.event && open && sure && guard && timed && parts(earlier).0.contains(state)
            })
        };
        if row.event == "create" {
            kept.push(row);
            continue;
        }
        let left: Vec<String> = from.into_iter().filter(free).collect();
        if !left.is_empty() {
            row.go = to.map_or_else(|| left.join(" | "), |to| format!("{} -> {to}", left.join(" | ")));
            kept.push(row);
        }
    }
    kept
}

fn reached(rows: &[Row]) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    loop {
        let before = reached.len();
        for row in rows {
            let (from, to) = parts(row);
            if let (Some(to), true) = (to, from.is_empty() || from.iter().any(|state| reached.contains(state))) {
                reached.insert(to);
            }
        }
        if reached.len() == before {
            return reached;
        }
    }
}

/// Give most states that nothing leads to an event of their own.
fn connect(chance: &mut Chance, plan: &Plan, rows: &mut Vec<Row>) {
    for state in plan.states.iter().filter(|state| state.kind != Kind::Leased) {
        let there = reached(rows);
        if there.contains(&state.name) || chance.yes(25) {
            continue;
        }
        let fits = |from: &&super::plan::State| {
            there.contains(&from.name) && from.kind != Kind::Final && (!from.late || state.late)
        };
        let from: Vec<String> = plan.states.iter().filter(fits).map(|from| from.name.clone()).collect();
        if from.is_empty() {
            continue;
        }
        let mut row =
            Row::new(&format!("ev_{}", state.name.to_lowercase()), format!("{} -> {}", from.join(" | "), state.name));
        if plan.money && state.kind == Kind::Final {
            row.moves.push("{ from = \"hold\", to = \"user:{record.owner}\", amount = \"rest\" }".to_owned());
        }
        rows.push(row);
    }
}
