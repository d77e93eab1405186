//! Decides one batch: operation by operation, on a read set that includes the changes of the earlier ones.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use onceward_core::decide::{Call, Changes, CheckQuery, Decision, LinkKey, Operation, ReadKey, decide};
use onceward_core::model::Definitions;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{DecidedOperation, IdempotencyId, OperationOutcome, ReadSet, Store, block_in_place_if_large};

use crate::error::EngineError;
use crate::idempotency::{self, KeyReservation};
use crate::submission::queue::{QueuedOperation, Receipt, Reply};

/// Bounds load rounds without progress, and due passes of one operation. `validate` bounds what an operation can reach
/// far below this, so only a bug of the engine gets here.
const MAX_LOAD_ROUNDS: usize = 1_000;

/// Each repetition means that another writer changed what the batch reads.
const MAX_REFUSAL_REDECIDES: usize = 3;

/// Longest chain of due records that trigger other due records.
const MAX_DUE_DEPTH: usize = 64;

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
}

impl DecidedBatch {
    pub(crate) fn has_refusal(&self) -> bool {
        self.writes.iter().any(|write| matches!(write.outcome, OperationOutcome::Refusal(_)))
    }

    /// Builds the receipt from the record as it is in the batch now.
    fn receipt(&self, operation: &Operation, subject: RecordId) -> Receipt {
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

/// Decides all requests. A batch with refusals is decided again until all its data come from one load.
pub(crate) async fn decide_batch<S: Store>(
    store: &S,
    definitions: &Definitions,
    requests: &[QueuedOperation],
    hints: RetryHints,
    now: Time,
    seeds: SeedSource,
) -> Result<DecidedBatch, EngineError> {
    let used_ids = hints.used_idempotency_ids.clone();
    let mut decided = decide_with_read_set(store, ReadSet::default(), definitions, requests, hints, now, seeds).await?;
    // The save does not validate what a refusal read. So a refusal must not rest on the cache, nor on several loads
    // between which the previous batch may have been saved. The first pass found all keys, so that the next one loads
    // them at once.
    for _ in 0..MAX_REFUSAL_REDECIDES {
        let is_single_load = decided.load_rounds <= 1 && !decided.read_set.used_cache();
        if is_single_load || !decided.has_refusal() {
            break;
        }
        let hints = RetryHints { read_keys: decided.read_set.loaded_keys(), used_idempotency_ids: used_ids.clone() };
        decided = decide_with_read_set(store, ReadSet::uncached(), definitions, requests, hints, now, seeds).await?;
    }
    Ok(decided)
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
    /// It is part of the batch.
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
    loop {
        match decide(definitions, decided.read_set.snapshot(), &operation, now) {
            Decision::Missing(keys) if *remaining_loads > 0 => {
                *remaining_loads -= 1;
                store.load(&mut decided.read_set, &keys).await?;
            }
            Decision::Changes(changes) => {
                decided.read_set.apply(&changes);
                let receipt = decided.receipt(&operation, changes.subject);
                let request = key_reservation.map(|keyed| keyed.idempotency_record(&receipt));
                decided.writes.push(DecidedOperation {
                    idempotency: request,
                    ..DecidedOperation::new(operation, OperationOutcome::Changes(changes))
                });
                return Ok(ExtraOutcome::Applied(receipt));
            }
            Decision::Refusal(refusal) if CALLER_SPECIFIC_STATUSES.contains(&refusal.status) => {
                return Ok(ExtraOutcome::Denied);
            }
            _ => return Ok(ExtraOutcome::NotApplied),
        }
    }
}

/// Most operations have all their data after this many rounds.
const PREFETCH_AFTER_ROUNDS: usize = 3;

/// Bounds of what one round prefetches.
const MAX_PREFETCH_STEPS: usize = 64;
const MAX_PREFETCH_KEYS: usize = 2_000;

/// Loads ahead along links. `decide` reports only the next step of a chain of links, so the number of prefetched steps
/// grows with each round without progress. The save does not validate prefetched data that no operation used.
async fn prefetch_links<S: Store>(
    store: &S,
    read_set: &mut ReadSet,
    requested_keys: &[ReadKey],
    idle_rounds: usize,
) -> Result<(), EngineError> {
    let mut frontier: Vec<ReadKey> = requested_keys.to_vec();
    let steps = if idle_rounds < PREFETCH_AFTER_ROUNDS {
        0
    } else {
        MAX_PREFETCH_STEPS.min(1 << (idle_rounds - PREFETCH_AFTER_ROUNDS).min(16))
    };
    for _ in 0..steps {
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

/// Why an operation is not decided yet.
enum PauseReason {
    Missing(Vec<ReadKey>),
    NeedsChecks(Vec<CheckQuery>),
    /// The key may be used already: look it up before the operation is refused or runs checks.
    NeedsKeyLookup,
    Failed(EngineError),
}

struct DecidePass<'a> {
    definitions: &'a Definitions,
    decided: &'a mut DecidedBatch,
    /// Whose keys were looked up, and whose must be.
    looked_up: &'a [bool],
    pending_lookups: &'a mut Vec<usize>,
    now: Time,
    seeds: SeedSource,
}

impl DecidePass<'_> {
    /// Decides all operations that have their data, and collects the missing keys of the others, so that one load
    /// serves all of them.
    fn run(
        &mut self,
        requests: &[QueuedOperation],
        undecided: &[usize],
        missing_keys: &mut Vec<ReadKey>,
    ) -> Result<Vec<usize>, EngineError> {
        let mut still_undecided = Vec::new();
        let mut paused_groups: HashSet<u64> = HashSet::new();
        for &at in undecided {
            let request = &requests[at];
            if paused_groups.contains(&request.group) {
                // An earlier operation of its group waits. Collect its missing keys in the same round.
                let snapshot = self.decided.read_set.snapshot();
                if let Decision::Missing(missing) = decide(self.definitions, snapshot, &request.operation, self.now) {
                    missing_keys.extend(missing);
                }
                still_undecided.push(at);
                continue;
            }
            match self.decide_one(request, self.looked_up[at]) {
                Ok(reply) => self.decided.replies[at] = Some(reply),
                Err(PauseReason::Missing(missing)) => {
                    missing_keys.extend(missing);
                    paused_groups.insert(request.group);
                    still_undecided.push(at);
                }
                Err(PauseReason::NeedsKeyLookup) => {
                    self.pending_lookups.push(at);
                    paused_groups.insert(request.group);
                    still_undecided.push(at);
                }
                Err(PauseReason::NeedsChecks(questions)) => self.decided.checks.push((at, questions)),
                Err(PauseReason::Failed(EngineError::Undecided)) => {
                    self.decided.replies[at] = Some(Err(EngineError::Undecided));
                }
                Err(PauseReason::Failed(error)) => return Err(error),
            }
        }
        Ok(still_undecided)
    }

    fn decide_one(&mut self, request: &QueuedOperation, looked_up: bool) -> Result<Reply, PauseReason> {
        let operation = &request.operation;
        let needs_lookup = !looked_up && request.key_reservation.is_some();
        for _ in 0..MAX_LOAD_ROUNDS {
            let decision = decide(self.definitions, self.decided.read_set.snapshot(), operation, self.now);
            let (outcome, reply) = match decision {
                Decision::Missing(keys) => return Err(PauseReason::Missing(keys)),
                Decision::NeedsChecks(_) | Decision::Refusal(_) if needs_lookup => {
                    return Err(PauseReason::NeedsKeyLookup);
                }
                Decision::NeedsChecks(questions) => return Err(PauseReason::NeedsChecks(questions)),
                Decision::Due { records, at } => {
                    self.fire_due(&records, at, 0)?;
                    continue;
                }
                Decision::Changes(changes) => {
                    self.decided.read_set.apply(&changes);
                    let (subject, stop) = (changes.subject, changes.stop_requested);
                    let receipt = Receipt {
                        stop_requested: stop,
                        spawned: spawned_records(&changes),
                        ..self.decided.receipt(operation, subject)
                    };
                    (OperationOutcome::Changes(changes), Ok(receipt))
                }
                Decision::NoOp(no_op) => {
                    let (no_op_reason, existing) = (Some(no_op.reason), no_op.existing.clone());
                    let receipt =
                        Receipt { existing, no_op: no_op_reason, ..self.decided.receipt(operation, no_op.subject) };
                    (OperationOutcome::NoOp(no_op), Ok(receipt))
                }
                Decision::Refusal(refusal) => {
                    (OperationOutcome::Refusal(refusal.clone()), Err(EngineError::Refused(refusal)))
                }
            };
            // The payload of a refused operation is not stored.
            let contents = if reply.is_ok() { request.payloads.clone() } else { Vec::new() };
            let request = reply
                .as_ref()
                .ok()
                .zip(request.key_reservation.as_ref())
                .map(|(answer, keyed)| keyed.idempotency_record(answer));
            self.decided.writes.push(DecidedOperation {
                payloads: contents,
                idempotency: request,
                ..DecidedOperation::new(operation.clone(), outcome)
            });
            return Ok(reply);
        }
        Err(PauseReason::Failed(EngineError::Undecided))
    }

    /// Fires due timers of these records first, each as an operation of its own. They stay in the batch even if the
    /// operation that needed them is refused.
    fn fire_due(&mut self, records: &[RecordId], at: Time, depth: usize) -> Result<(), PauseReason> {
        if depth > MAX_DUE_DEPTH {
            return Err(PauseReason::Failed(EngineError::Undecided));
        }
        let now = self.now.max(at);
        for &record in records {
            let seed = (self.seeds)().map_err(PauseReason::Failed)?;
            let operation = Operation {
                seed,
                actor: Actor::engine(),
                call: Call::FireDue { record },
                check_answers: Vec::new(),
                trace: None,
            };
            for round in 0.. {
                match decide(self.definitions, self.decided.read_set.snapshot(), &operation, now) {
                    Decision::Missing(keys) => return Err(PauseReason::Missing(keys)),
                    Decision::Due { records, at } if round < MAX_LOAD_ROUNDS => {
                        self.fire_due(&records, at, depth + 1)?;
                    }
                    Decision::Changes(changes) => {
                        self.decided.read_set.apply(&changes);
                        self.decided.writes.push(DecidedOperation::new(operation, OperationOutcome::Changes(changes)));
                        break;
                    }
                    Decision::NoOp(_) | Decision::Refusal(_) => break,
                    // Transitions that the engine fires have no checks: `validate` ensures it.
                    Decision::Due { .. } | Decision::NeedsChecks(_) => {
                        return Err(PauseReason::Failed(EngineError::Undecided));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the other records that the operation created, without the engine's own lifecycles.
fn spawned_records(changes: &Changes) -> Vec<RecordId> {
    let created = changes.records.iter().filter(|change| change.before.is_none());
    let others = created.map(|change| &change.after).filter(|record| record.id != changes.subject);
    others.filter(|record| !record.lifecycle.name.starts_with("onceward.")).map(|record| record.id).collect()
}

/// Returns the record that the call addresses, or creates under a given id. The operation reads it in any case.
fn call_subject(call: &Call) -> Option<RecordId> {
    match call {
        Call::Create(create) => create.id,
        other => other.record(),
    }
}
