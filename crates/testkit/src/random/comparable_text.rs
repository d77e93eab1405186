//! Renders decisions and worlds as comparable text, without the lifecycles of their records.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use onceward_core::decide::{Changes, Decision, Snapshot};
use onceward_core::record::Record;

pub fn record_text(record: &Record) -> String {
    let Record {
        id,
        lifecycle,
        state,
        version,
        owner,
        fields,
        attempt,
        created_at,
        updated_at,
        started_at,
        finished_at,
        entered_at,
        hold,
        timers,
        execution,
        committed_token: committed,
        payload,
        stuck_reason: stuck,
        trace,
    } = record;
    format!(
        "{id} {} {state} v{version} {owner} {fields:?} #{attempt} {created_at} {updated_at} {started_at:?} {finished_at:?} \
         {entered_at} hold {hold} {timers:?} {execution:?} {committed:?} {payload:?} {stuck:?} {trace:?}",
        lifecycle.name
    )
}

pub fn changes_text(changes: &Changes) -> String {
    let Changes {
        now,
        records,
        unique_claims: uniques,
        counter_deltas: counts,
        transfers: moves,
        executions,
        effects,
        payloads,
        audit_entries: audit,
        heartbeat,
        stop_requested: stop,
        subject,
        read_keys: _,
    } = changes;
    let mut out = format!("now {now} subject {subject} stop {stop} {heartbeat:?}\n");
    for change in records {
        let before = change.before.as_ref().map(|before| before.version);
        let _ = writeln!(out, "{before:?} -> {} by {:?}", record_text(&change.after), change.transitions);
    }
    let _ = writeln!(out, "{uniques:?}\n{counts:?}\n{moves:?}\n{executions:?}\n{effects:?}\n{payloads:?}\n{audit:?}");
    out
}

/// Renders a decision with its read set.
pub fn decision_text(decision: &Decision) -> String {
    match decision {
        Decision::Changes(found) => format!("{}{:?}", changes_text(found), found.read_keys),
        other => format!("{other:?}"),
    }
}

/// Renders changes with the ids of new records replaced by their order, so that equivalent changes compare equal.
pub fn changes_text_without_ids(found: &Changes) -> String {
    let mut text = changes_text(found);
    let fresh = found.records.iter().filter(|change| change.before.is_none());
    for (number, change) in fresh.enumerate() {
        text = text.replace(&change.after.id.to_string(), &format!("new{number}"));
    }
    text
}

/// Renders everything in a world, in a fixed order.
pub fn world_text(world: &Snapshot) -> String {
    let records: BTreeMap<_, _> =
        world.records.iter().filter_map(|(id, found)| found.as_ref().map(|found| (id, record_text(found)))).collect();
    let uniques: BTreeMap<_, _> = world.unique_holders.iter().filter(|(_, holder)| holder.is_some()).collect();
    let counts: BTreeMap<_, _> = world.counters.iter().filter(|(_, count)| **count != 0).collect();
    let accounts: BTreeMap<_, _> = world.accounts.iter().filter(|(_, balance)| **balance != 0).collect();
    let links: BTreeMap<_, _> = world.links.iter().filter(|(_, linked)| !linked.is_empty()).collect();
    let executions: BTreeMap<_, _> = world.executions.iter().collect();
    let queues: BTreeMap<_, _> = world.concurrency_queues.iter().filter(|(_, queue)| !queue.is_empty()).collect();
    format!("{records:#?}\n{uniques:?}\n{counts:?}\n{accounts:?}\n{links:?}\n{executions:?}\n{queues:?}")
}
