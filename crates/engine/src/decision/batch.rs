//! Decides one batch: operation by operation, on a read set that includes the changes of the earlier ones.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::decide::{Call, CheckQuery, Decision, LinkKey, Operation, ReadKey};
use onceward_core::model::Definitions;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{
    Catalog, DecidedOperation, IdempotencyId, OperationOutcome, ReadSet, Store, block_in_place_if_large,
};

use super::driver::load_until_decided;
use super::pass::DecidePass;
use super::retry_policy::{
    MAX_CATALOG_REFRESHES, MAX_LOAD_ROUNDS, MAX_PREFETCH_KEYS, MAX_REFUSAL_REDECIDES, prefetch_steps,
};
use crate::error::EngineError;
use crate::idempotency::{self, KeyReservation};
use crate::submission::queue::{QueuedOperation, Receipt, Reply};

pub(crate) type SeedSource = fn() -> Result<u128, EngineError>;

/// A batch, decided as far as possible without external checks.
#[derive(Debug, Default)]
pub(crate) struct DecidedBatch {
    pub(crate) read_set: ReadSet,
    pub(crate) writes: Vec<DecidedOperation>,
    /// By index of the request.
    pub(crate) replies: Vec<Option<Reply>>,
    /// Requests that need external checks; they leave the batch.
    pub(crate) checks: Vec<(usize, Vec<CheckQuery>)>,
    /// How often the store was queried.
    pub(crate) load_rounds: usize,
    /// Estimated bytes of the jobs that the operations of a group leased, for groups with a limit.
    pub(super) leased_bytes: HashMap<u64, usize>,
}

impl DecidedBatch {
    pub(crate) fn has_refusal(&self) -> bool {
        self.writes.iter().any(|write| matches!(write.outcome, OperationOutcome::Refusal(_)))
    }

    /// Builds the receipt from the record as it is in the batch now.
    pub(super) fn receipt(&self, operation: &Operation, subject: RecordId) -> Receipt {
        let record = self.read_set.snapshot().record(subject).cloned();
        let version = record.as_ref().map(|record| record.version);
        let live = record.as_ref().and_then(|record| record.live_execution());
        let token = live.filter(|_| matches!(operation.call, Call::Lease { .. })).map(|execution| execution.token);
        Receipt {
            subject,
            version,
            token,
            record,
            spawned: Vec::new(),
            existing: Vec::new(),
            no_op: None,
            stop_requested: false,
            replayed: false,
        }
    }
}

/// Results of an earlier attempt that make the next one cheaper.
#[derive(Clone, Debug, Default)]
pub(crate) struct RetryHints {
    /// What the attempt read.
    pub(crate) read_keys: Vec<ReadKey>,
    /// Idempotency ids that were already used.
    pub(crate) used_idempotency_ids: Vec<IdempotencyId>,
}

/// Decides all requests until the catalog is current and each refusal rests on one load. Returns the catalog that the
/// decisions used.
pub(crate) async fn decide_batch<S: Store>(
    store: &S,
    mut catalog: Arc<Catalog>,
    requests: &[QueuedOperation],
    mut hints: RetryHints,
    now: Time,
    seeds: SeedSource,
) -> Result<(Arc<Catalog>, DecidedBatch), EngineError> {
    let used_ids = hints.used_idempotency_ids.clone();
    let mut read_set = ReadSet::default();
    let (mut refreshes, mut redecides) = (0, 0);
    loop {
        let decided = decide_with_read_set(store, read_set, &catalog.definitions, requests, hints, now, seeds).await?;
        let is_single_load = decided.load_rounds <= 1 && !decided.read_set.used_cache();
        if redecides < MAX_REFUSAL_REDECIDES && !is_single_load && decided.has_refusal() {
            // The save does not validate what a refusal read. So a refusal must not rest on the cache, nor on several
            // loads between which the previous batch may have been saved.
            redecides += 1;
            read_set = ReadSet::uncached();
        } else if refreshes < MAX_CATALOG_REFRESHES
            && let Some(newest_catalog) = newer_catalog(store, &catalog, &decided).await?
        {
            (refreshes, redecides) = (refreshes + 1, 0);
            (catalog, read_set) = (newest_catalog, ReadSet::default());
        } else {
            return Ok((catalog, decided));
        }
        // This pass found all keys, so that the next one loads them at once.
        hints = RetryHints { read_keys: decided.read_set.loaded_keys(), used_idempotency_ids: used_ids.clone() };
    }
}

/// Returns the current catalog if it is newer. Loading may have refreshed it after an upload by another process, and
/// new records must use the current version.
async fn newer_catalog<S: Store>(
    store: &S,
    catalog: &Catalog,
    decided: &DecidedBatch,
) -> Result<Option<Arc<Catalog>>, EngineError> {
    // If nothing was loaded, the catalog was not refreshed either. A refusal is not validated by the save, so an
    // "unknown lifecycle" refusal needs the newest catalog.
    let has_unverified_refusal = decided.load_rounds == 0 && decided.has_refusal();
    let newest = if has_unverified_refusal { store.refresh_catalog().await? } else { store.catalog().await? };
    Ok((newest.revision() != catalog.revision()).then_some(newest))
}

async fn decide_with_read_set<S: Store>(
    store: &S,
    read_set: ReadSet,
    definitions: &Definitions,
    requests: &[QueuedOperation],
    hints: RetryHints,
    now: Time,
    seeds: SeedSource,
) -> Result<DecidedBatch, EngineError> {
    let RetryHints { read_keys: hinted_keys, used_idempotency_ids: used_ids } = hints;
    let mut decided =
        DecidedBatch { read_set, replies: requests.iter().map(|_| None).collect(), ..DecidedBatch::default() };
    let mut needed_keys: Vec<ReadKey> = requests
        .iter()
        .filter_map(|request| call_subject(&request.operation.call))
        .map(ReadKey::Record)
        .chain(hinted_keys)
        .collect();
    let mut undecided: Vec<usize> = (0..requests.len()).collect();
    let mut looked_up = vec![false; requests.len()];
    let has_used_id =
        |at: &usize| requests[*at].key_reservation.as_ref().is_some_and(|keyed| used_ids.contains(&keyed.id));
    let mut pending_lookups: Vec<usize> =
        if used_ids.is_empty() { Vec::new() } else { (0..requests.len()).filter(has_used_id).collect() };
    let mut idle_rounds = 0;
    loop {
        if !pending_lookups.is_empty() {
            for (at, reply) in idempotency::replay_stored(store, definitions, requests, &pending_lookups, now).await? {
                decided.replies[at] = Some(reply);
            }
            for at in pending_lookups.drain(..) {
                looked_up[at] = true;
            }
            undecided.retain(|at| decided.replies[*at].is_none());
        }
        if undecided.is_empty() {
            return Ok(decided);
        }
        if !needed_keys.is_empty() {
            needed_keys.sort_unstable();
            needed_keys.dedup();
            decided.load_rounds += 1;
            store.load(&mut decided.read_set, &needed_keys).await?;
            prefetch_links(store, &mut decided.read_set, &needed_keys, idle_rounds).await?;
            needed_keys.clear();
        }
        let before = undecided.len();
        let mut pass = DecidePass {
            definitions,
            decided: &mut decided,
            looked_up: &looked_up,
            pending_lookups: &mut pending_lookups,
            now,
            seeds,
        };
        let loaded_records = pass.decided.read_set.snapshot().records.len();
        undecided = block_in_place_if_large(loaded_records, || pass.run(requests, &undecided, &mut needed_keys))?;
        idle_rounds = if undecided.len() < before { 0 } else { idle_rounds + 1 };
        if idle_rounds > MAX_LOAD_ROUNDS {
            for at in undecided.drain(..) {
                decided.replies[at] = Some(Err(EngineError::Undecided));
            }
        }
    }
}

/// An operation that the engine adds to a batch.
pub(crate) struct ExtraOperation<'a> {
    pub(crate) operation: Operation,
    pub(crate) key_reservation: Option<&'a KeyReservation>,
    pub(crate) now: Time,
}

pub(crate) enum ExtraOutcome {
    /// The operation is part of the batch.
    Applied(Receipt),
    /// Refused because of this caller or its arguments.
    Denied,
    /// Not possible now for any caller.
    NotApplied,
}

/// Statuses of refusals that apply to one caller only: another caller may be allowed, or see the record.
const CALLER_SPECIFIC_STATUSES: [u16; 3] = [403, 404, 422];

/// Decides an extra operation with at most `remaining_loads` loads, and adds it to the batch only if it changes
/// something. After an error, the read set must not be used.
pub(crate) async fn decide_extra<S: Store>(
    store: &S,
    definitions: &Definitions,
    decided: &mut DecidedBatch,
    extra: ExtraOperation<'_>,
    remaining_loads: &mut usize,
) -> Result<ExtraOutcome, EngineError> {
    let ExtraOperation { operation, key_reservation, now } = extra;
    match load_until_decided(store, definitions, &mut decided.read_set, &operation, now, remaining_loads).await? {
        Some(Decision::Changes(changes)) => {
            decided.read_set.apply(&changes);
            let receipt = decided.receipt(&operation, changes.subject);
            let request = key_reservation.map(|keyed| keyed.idempotency_record(&receipt));
            decided.writes.push(DecidedOperation {
                idempotency: request,
                ..DecidedOperation::new(operation, OperationOutcome::Changes(changes))
            });
            Ok(ExtraOutcome::Applied(receipt))
        }
        Some(Decision::Refusal(refusal)) if CALLER_SPECIFIC_STATUSES.contains(&refusal.status) => {
            Ok(ExtraOutcome::Denied)
        }
        _ => Ok(ExtraOutcome::NotApplied),
    }
}

/// Loads ahead along links. The save does not validate prefetched data that no operation used.
async fn prefetch_links<S: Store>(
    store: &S,
    read_set: &mut ReadSet,
    requested_keys: &[ReadKey],
    idle_rounds: usize,
) -> Result<(), EngineError> {
    let mut frontier: Vec<ReadKey> = requested_keys.to_vec();
    for _ in 0..prefetch_steps(idle_rounds) {
        let mut next = Vec::new();
        for key in &frontier {
            let ReadKey::Links(link) = key else { continue };
            for id in read_set.snapshot().links.get(link).into_iter().flatten() {
                let next_link = LinkKey { target: *id, ..link.clone() };
                if !read_set.snapshot().links.contains_key(&next_link) {
                    next.extend([ReadKey::Record(*id), ReadKey::Links(next_link)]);
                }
            }
        }
        next.truncate(MAX_PREFETCH_KEYS);
        if next.is_empty() {
            break;
        }
        store.load(read_set, &next).await?;
        frontier = next;
    }
    Ok(())
}

/// Returns the record that the call addresses, or creates under a given id. The operation reads it in any case.
fn call_subject(call: &Call) -> Option<RecordId> {
    match call {
        Call::Create(create) => create.id,
        other => other.record(),
    }
}
