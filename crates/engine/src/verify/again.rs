//! An operation of the log decided again, on what the log says the world was.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::counted;
use onceward_core::decide::{Call, Changes, Decision, Operation, Snapshot, decide};
use onceward_core::hex;
use onceward_core::model::Definitions;
use onceward_core::record::Token;
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_store::log::{Body, as_logged, result_hash, same_outcome};
use onceward_store::{Entry, Kind, Outcome, Scratch, StoreError, Write};
use serde_json::Value as Json;

use super::log::Told;

/// More rounds of loading than any operation needs.
const ROUNDS: usize = 10_000;

pub(super) enum Again {
    Same,
    /// In words.
    Other(String),
    /// What it was decided on is not kept.
    Unknown,
    /// It would be decided otherwise now that some of what it was decided on is pruned.
    Pruned,
}

/// The job whose result `decide` must read to decide this again: the log has its hash only.
pub(super) fn needs_result(scratch: &mut Scratch, body: &Body) -> Result<Option<RecordId>, StoreError> {
    let Some(Call::Commit { record, .. }) = body.operation.as_ref().map(|operation| &operation.call) else {
        return Ok(None);
    };
    let Some(known) = scratch.known(*record)? else { return Ok(None) };
    let typed = known.record.lifecycle.work.as_ref().is_some_and(|work| work.result.is_some());
    Ok((typed && body.effect.is_some()).then_some(*record))
}

/// Decide an operation again. `result` is what its effect kept of a worker's result, where that is needed.
pub(super) fn again(
    scratch: &mut Scratch,
    definitions: &Definitions,
    group: &[Told],
    result: Option<Json>,
) -> Result<Again, StoreError> {
    let Some(Told { entry: first, body, .. }) = group.first() else { return Ok(Again::Same) };
    let Some(operation) = body.operation.as_deref() else { return Ok(Again::Unknown) };
    let mut operation = operation.clone();
    let mut is_exact = true;
    if let Call::Commit { result: mark, .. } = &mut operation.call
        && let Some(hash) = mark.get("sha256").and_then(Json::as_str)
    {
        match result {
            Some(result) if hex::encode(&result_hash(&result)) == hash => *mark = result,
            _ if needs_result(scratch, body)?.is_some() => return Ok(Again::Unknown),
            _ => is_exact = false,
        }
    }
    let mut snapshot = Snapshot::default();
    let outcome = match decided(scratch, definitions, &mut snapshot, &operation, (first.at, &leases(group)))? {
        Ok(outcome) => outcome,
        Err(_) if misses(scratch, &snapshot, first.seq)? => return Ok(Again::Pruned),
        Err(why) => return Ok(Again::Other(why)),
    };
    if let Outcome::Changes(changes) = &outcome {
        keep_contents(scratch, changes, first)?;
    }
    let mut heads = HashMap::new();
    for Told { entry, .. } in group {
        if let Some(id) = entry.record {
            heads.insert(id, scratch.head(id)?);
        }
    }
    let head = |id: RecordId| heads.get(&id).copied().unwrap_or(onceward_store::log::NO_HASH);
    let write = Write::new(operation, outcome);
    let told = as_logged(&write, first.at, body.catalog, first.seq - 1, head)?;
    match compare(group, &told, is_exact)? {
        Again::Other(_) if misses(scratch, &snapshot, first.seq)? => Ok(Again::Pruned),
        again => Ok(again),
    }
}

/// Whether an operation looked for something that pruning has taken since: a record that is not there, or a link that some are
/// gone from.
fn misses(scratch: &Scratch, snapshot: &Snapshot, seq: u64) -> Result<bool, StoreError> {
    if !scratch.is_before_pruning(seq) {
        return Ok(false);
    }
    if snapshot.records.values().any(Option::is_none) {
        return Ok(true);
    }
    for key in snapshot.links.keys() {
        if scratch.has_lost_links(key.target)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn compare(group: &[Told], again: &[Entry], is_exact: bool) -> Result<Again, StoreError> {
    if group.len() != again.len() {
        let (was, now) = (group.len(), again.len());
        return Ok(Again::Other(format!("it changed {} and would change {now}", counted(was, "record", "records"))));
    }
    for (Told { entry, body, .. }, again) in group.iter().zip(again) {
        if entry == again {
            continue;
        }
        // Where the result is not at hand, neither its hash in the effect nor the operation's own text can be the same.
        let same = if is_exact { same_outcome(entry, again)? } else { same_but_result(entry, again)? };
        if !same {
            let about = entry.record.map_or_else(|| "a refusal".to_owned(), |id| id.to_string());
            let mut now = again.body()?;
            now.operation = None;
            let mut was = body.clone();
            was.operation = None;
            return Ok(Again::Other(format!("{about} was told {was:?} and would be told {now:?}")));
        }
    }
    Ok(Again::Same)
}

fn same_but_result(told: &Entry, again: &Entry) -> Result<bool, StoreError> {
    let strip = |entry: &Entry| -> Result<_, StoreError> {
        let mut body = entry.body()?;
        body.operation = None;
        if let Some(effect) = &mut body.effect {
            effect.result = [0; 32];
        }
        Ok((entry.record, entry.version, entry.at, body))
    };
    Ok(strip(told)? == strip(again)?)
}

/// When each lease that these entries tell of ended, or was to: heartbeats moved it there without an entry.
fn leases(group: &[Told]) -> HashMap<RecordId, (Token, Time)> {
    let lease = |Told { entry, body, .. }: &Told| {
        let execution = body.change.as_ref()?.execution.as_ref()?;
        Some((entry.record?, (execution.token, execution.expires_at)))
    };
    group.iter().filter_map(lease).collect()
}

fn decided(
    scratch: &mut Scratch,
    definitions: &Definitions,
    snapshot: &mut Snapshot,
    operation: &Operation,
    (now, leases): (Time, &HashMap<RecordId, (Token, Time)>),
) -> Result<Result<Outcome, String>, StoreError> {
    for _ in 0..ROUNDS {
        match decide(definitions, snapshot, operation, now) {
            Decision::Missing(keys) => {
                scratch.load(snapshot, &keys)?;
                for (id, (token, ends)) in leases {
                    move_lease(snapshot, *id, Some(*token), *ends);
                }
            }
            // It was not due then: a heartbeat must have moved the end of its lease.
            Decision::Due { records, at } => {
                let Some(later) = now.max(at).checked_add(Duration::from_micros(1)) else {
                    return Ok(Err("time ends".to_owned()));
                };
                let moved = records.iter().filter(|id| move_lease(snapshot, **id, None, later)).count();
                if moved == 0 {
                    return Ok(Err(format!("{records:?} would be due before it")));
                }
            }
            Decision::Changes(changes) => return Ok(Ok(Outcome::Changes(changes))),
            Decision::Refusal(refusal) => return Ok(Ok(Outcome::Refusal(refusal))),
            Decision::NoOp(_) => return Ok(Err("it would change nothing".to_owned())),
            Decision::Ask(questions) => {
                let checks: Vec<_> = questions.iter().map(|question| &question.check).collect();
                return Ok(Err(format!("it would ask {checks:?} first, whose answers it does not have")));
            }
        }
    }
    Ok(Err("it would not end".to_owned()))
}

/// Let a live lease end later. Whether it did.
fn move_lease(snapshot: &mut Snapshot, id: RecordId, token: Option<Token>, ends: Time) -> bool {
    let Some(Some(record)) = snapshot.records.get_mut(&id) else { return false };
    let Some(execution) = record.live_execution() else { return false };
    if execution.expires_at >= ends || token.is_some_and(|token| token != execution.token) {
        return false;
    }
    if let Some(execution) = &mut Arc::make_mut(record).execution {
        execution.expires_at = ends;
    }
    true
}

/// Bytes that the operation itself made must be kept.
fn keep_contents(scratch: &mut Scratch, changes: &Changes, first: &Entry) -> Result<(), StoreError> {
    for new in &changes.payloads {
        scratch.pass(first.seq);
        scratch.put(Kind::Content, &hex::encode(&new.payload.sha256), Some("made"))?;
    }
    Ok(())
}
