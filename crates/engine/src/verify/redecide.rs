//! Decides logged operations again, on the replayed state.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::count_noun;
use onceward_core::decide::{Call, Changes, Decision, Operation, Snapshot, decide};
use onceward_core::hex;
use onceward_core::model::Definitions;
use onceward_core::record::FencingToken;
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_store::log::{LogEntryBody, expected_entries, has_same_outcome, result_hash};
use onceward_store::{DecidedOperation, LogEntry, OperationOutcome, ReplayDatabase, ReplayTable, StoreError};
use serde_json::Value as Json;

use super::log::ParsedEntry;

/// More than any operation needs.
const MAX_LOAD_ROUNDS: usize = 10_000;

pub(super) enum Redecision {
    Same,
    /// A description of the difference.
    Differs(String),
    /// Data that the decision needs is not stored.
    NotReproducible,
    /// The decision differs because some of its data was pruned.
    Pruned,
}

/// Returns the job whose result `decide` needs, because the log has only the result's hash.
pub(super) fn commit_needing_result(
    replay: &mut ReplayDatabase,
    body: &LogEntryBody,
) -> Result<Option<RecordId>, StoreError> {
    let Some(Call::Commit { record, .. }) = body.operation.as_ref().map(|operation| &operation.call) else {
        return Ok(None);
    };
    let Some(replayed) = replay.replayed_record(*record)? else { return Ok(None) };
    let has_typed_result = replayed.record.lifecycle.work.as_ref().is_some_and(|work| work.result.is_some());
    Ok((has_typed_result && body.effect.is_some()).then_some(*record))
}

/// Decides an operation again. `result` is the stored result of its effect, if it is needed.
pub(super) fn redecide_group(
    replay: &mut ReplayDatabase,
    definitions: &Definitions,
    group: &[ParsedEntry],
    result: Option<Json>,
) -> Result<Redecision, StoreError> {
    let Some(ParsedEntry { entry: first, body, .. }) = group.first() else { return Ok(Redecision::Same) };
    let Some(operation) = body.operation.as_deref() else { return Ok(Redecision::NotReproducible) };
    let mut operation = operation.clone();
    let mut is_exact = true;
    if let Call::Commit { result: result_ref, .. } = &mut operation.call
        && let Some(hash) = result_ref.get("sha256").and_then(Json::as_str)
    {
        match result {
            Some(result) if hex::encode(&result_hash(&result)) == hash => *result_ref = result,
            _ if commit_needing_result(replay, body)?.is_some() => return Ok(Redecision::NotReproducible),
            _ => is_exact = false,
        }
    }
    let mut snapshot = Snapshot::default();
    let new_outcome =
        match decide_with_replay(replay, definitions, &mut snapshot, &operation, (first.at, &lease_ends(group)))? {
            Ok(outcome) => outcome,
            Err(_) if reads_pruned_data(replay, &snapshot, first.seq)? => return Ok(Redecision::Pruned),
            Err(why) => return Ok(Redecision::Differs(why)),
        };
    if let OperationOutcome::Changes(changes) = &new_outcome {
        keep_payloads(replay, changes, first)?;
    }
    let mut heads = HashMap::new();
    for ParsedEntry { entry, .. } in group {
        if let Some(id) = entry.record {
            heads.insert(id, replay.head_hash(id)?);
        }
    }
    let head = |id: RecordId| heads.get(&id).copied().unwrap_or(onceward_store::log::ZERO_HASH);
    let write = DecidedOperation::new(operation, new_outcome);
    let entries = expected_entries(&write, first.at, body.catalog, first.seq - 1, head)?;
    match compare_entries(group, &entries, is_exact)? {
        Redecision::Differs(_) if reads_pruned_data(replay, &snapshot, first.seq)? => Ok(Redecision::Pruned),
        redecision => Ok(redecision),
    }
}

/// Returns whether an operation read something that was pruned since: a missing record, or a link with pruned
/// referrers.
fn reads_pruned_data(replay: &ReplayDatabase, snapshot: &Snapshot, seq: u64) -> Result<bool, StoreError> {
    if !replay.is_before_checkpoint(seq) {
        return Ok(false);
    }
    if snapshot.records.values().any(Option::is_none) {
        return Ok(true);
    }
    for key in snapshot.links.keys() {
        if replay.has_pruned_referrers(key.target)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn compare_entries(group: &[ParsedEntry], redecided: &[LogEntry], is_exact: bool) -> Result<Redecision, StoreError> {
    if group.len() != redecided.len() {
        let (logged_count, redecided_count) = (group.len(), redecided.len());
        return Ok(Redecision::Differs(format!(
            "it changed {}, and now would change {redecided_count}",
            count_noun(logged_count, "record", "records")
        )));
    }
    for (ParsedEntry { entry, body, .. }, again) in group.iter().zip(redecided) {
        if entry == again {
            continue;
        }
        // Without the result, its hash in the effect and the operation's text cannot be equal.
        let same = if is_exact { has_same_outcome(entry, again)? } else { is_same_except_result(entry, again)? };
        if !same {
            let about = entry.record.map_or_else(|| "a refusal".to_owned(), |id| id.to_string());
            let mut now = again.body()?;
            now.operation = None;
            let mut was = body.clone();
            was.operation = None;
            return Ok(Redecision::Differs(format!("{about}: the log has {was:?}, and now the decision is {now:?}")));
        }
    }
    Ok(Redecision::Same)
}

fn is_same_except_result(logged: &LogEntry, redecided: &LogEntry) -> Result<bool, StoreError> {
    let strip = |entry: &LogEntry| -> Result<_, StoreError> {
        let mut body = entry.body()?;
        body.operation = None;
        if let Some(effect) = &mut body.effect {
            effect.result = [0; 32];
        }
        Ok((entry.record, entry.version, entry.at, body))
    };
    Ok(strip(logged)? == strip(redecided)?)
}

/// Returns the end of each lease in these entries: heartbeats extended it without an entry.
fn lease_ends(group: &[ParsedEntry]) -> HashMap<RecordId, (FencingToken, Time)> {
    let lease = |ParsedEntry { entry, body, .. }: &ParsedEntry| {
        let execution = body.change.as_ref()?.execution.as_ref()?;
        Some((entry.record?, (execution.token, execution.expires_at)))
    };
    group.iter().filter_map(lease).collect()
}

/// Loads from the replayed state until the operation is decided. It does not use the engine's decision driver, so that a
/// fault of the driver shows as a difference.
fn decide_with_replay(
    replay: &mut ReplayDatabase,
    definitions: &Definitions,
    snapshot: &mut Snapshot,
    operation: &Operation,
    (now, leases): (Time, &HashMap<RecordId, (FencingToken, Time)>),
) -> Result<Result<OperationOutcome, String>, StoreError> {
    for _ in 0..MAX_LOAD_ROUNDS {
        match decide(definitions, snapshot, operation, now) {
            Decision::Missing(keys) => {
                replay.load(snapshot, &keys)?;
                for (id, (token, ends_at)) in leases {
                    extend_lease(snapshot, *id, Some(*token), *ends_at);
                }
            }
            // When the operation was decided, these records were not due: heartbeats must have extended their leases.
            Decision::Due { records, at } => {
                let Some(later) = now.max(at).checked_add(Duration::from_micros(1)) else {
                    return Ok(Err("the time is out of range".to_owned()));
                };
                let extended = records.iter().filter(|id| extend_lease(snapshot, **id, None, later)).count();
                if extended == 0 {
                    return Ok(Err(format!("{records:?} would be due first")));
                }
            }
            Decision::Changes(changes) => return Ok(Ok(OperationOutcome::Changes(changes))),
            Decision::Refusal(refusal) => return Ok(Ok(OperationOutcome::Refusal(refusal))),
            Decision::NoOp(_) => return Ok(Err("it would change nothing".to_owned())),
            Decision::NeedsChecks(queries) => {
                let checks: Vec<_> = queries.iter().map(|query| &query.check).collect();
                return Ok(Err(format!(
                    "it would need the external checks {checks:?}, and the log has no answers to them"
                )));
            }
        }
    }
    Ok(Err("the decision would not end".to_owned()))
}

/// Extends a live lease; returns whether it did.
fn extend_lease(snapshot: &mut Snapshot, id: RecordId, token: Option<FencingToken>, ends_at: Time) -> bool {
    let Some(Some(record)) = snapshot.records.get_mut(&id) else { return false };
    let Some(execution) = record.live_execution() else { return false };
    if execution.expires_at >= ends_at || token.is_some_and(|token| token != execution.token) {
        return false;
    }
    if let Some(execution) = &mut Arc::make_mut(record).execution {
        execution.expires_at = ends_at;
    }
    true
}

/// Payloads that the operation itself generated must be stored.
fn keep_payloads(replay: &mut ReplayDatabase, changes: &Changes, first: &LogEntry) -> Result<(), StoreError> {
    for new in &changes.payloads {
        replay.advance_to(first.seq);
        replay.put_row(ReplayTable::GeneratedPayload, &hex::encode(&new.payload.sha256), Some("made"))?;
    }
    Ok(())
}
