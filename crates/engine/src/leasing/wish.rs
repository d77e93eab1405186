//! A job goes straight to who waits for it: it is leased in the transaction that makes it, so that both cost one sync.
//!
//! That is a short cut, and never more: where such a lease is not plainly taken nothing of it is kept, and whoever waits is woken and
//! looks for itself, as ever.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::{Call, Operation, readiness};
use onceward_core::model::Definitions;
use onceward_core::record::{Actor, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{DecidedOperation, OperationOutcome, Store, priority_rank};

use super::{KeepWaiting, LeaseRequest, LeasedJob, job_idempotency_id, leased_job};
use crate::batch::ordered_seed;
use crate::deciding::{DecidedBatch, ExtraOperation, ExtraOutcome, decide_extra};
use crate::error::EngineError;
use crate::idempotency::{IdempotencyKey, KeyReservation};
use crate::queue::random_seed;
use crate::shared::Shared;
use crate::waiting::PendingMatch;

/// What somebody would take at once, having found nothing.
pub(crate) struct ParkedRequest {
    pub(crate) keep_waiting: KeepWaiting,
    actor: Actor,
    pub(crate) request: LeaseRequest,
    idempotency_key: Option<IdempotencyKey>,
}

impl ParkedRequest {
    pub(crate) fn new(
        actor: &Actor,
        request: LeaseRequest,
        idempotency_key: Option<&IdempotencyKey>,
        keep_waiting: &KeepWaiting,
    ) -> Self {
        Self {
            keep_waiting: Arc::clone(keep_waiting),
            actor: actor.clone(),
            request,
            idempotency_key: idempotency_key.cloned(),
        }
    }
}

impl fmt::Debug for ParkedRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.debug_struct("Wish").field("wanted", &self.request).finish_non_exhaustive()
    }
}

/// A wish, and the jobs that a batch has for it. Dropped, its waiter looks for itself.
#[derive(Debug)]
struct SyncMatch {
    pending: PendingMatch,
    jobs: Vec<LeasedJob>,
    /// Leases that were decided: some rows set a job aside instead.
    decided_leases: usize,
    /// It was denied one: it looks for itself, and is told why.
    is_denied: bool,
    /// Asked for again meanwhile, the same key must not get others.
    key_reservations: Vec<KeyReservation>,
}

impl SyncMatch {
    fn can_take(&self, lifecycle: &Arc<str>) -> bool {
        let request = &self.pending.request.request;
        !self.is_denied && self.decided_leases < request.max_jobs && request.lifecycles.contains(lifecycle)
    }
}

/// What a batch leases besides what was asked of it.
#[derive(Debug, Default)]
pub(crate) struct SyncMatches {
    matches: Vec<SyncMatch>,
    /// Lifecycles of which nobody wishes for a job.
    unwanted_lifecycles: HashSet<Arc<str>>,
}

impl SyncMatches {
    pub(crate) fn is_empty(&self) -> bool {
        self.matches.is_empty()
    }

    /// Whoever waits is told of none of these: they have gone.
    pub(crate) fn leased_records(&self) -> HashSet<RecordId> {
        self.matches.iter().flat_map(|granted| &granted.jobs).map(|leased| leased.record.id).collect()
    }

    /// The batch is durable.
    pub(crate) fn deliver<S>(self, shared: &Shared<S>, elapsed: Duration) {
        for SyncMatch { pending: granting, jobs: leased, key_reservations: keyed, .. } in self.matches {
            for _ in &leased {
                shared.metrics.record_sync_match(elapsed);
            }
            drop(keyed);
            granting.deliver(leased);
        }
    }

    /// Somebody who has wished for a job of this lifecycle and has room for it, and for none of those that are left to who looks.
    fn find_or_claim<S>(
        &mut self,
        shared: &Shared<S>,
        lifecycle: &Arc<str>,
        excluded_lifecycles: &HashSet<Arc<str>>,
    ) -> Option<usize> {
        if let Some(index) = self.matches.iter().position(|granted| granted.can_take(lifecycle)) {
            return Some(index);
        }
        if self.unwanted_lifecycles.contains(lifecycle) {
            return None;
        }
        let Some(pending) = shared.notifier.pollers.claim_parked(lifecycle, excluded_lifecycles) else {
            self.unwanted_lifecycles.insert(Arc::clone(lifecycle));
            return None;
        };
        self.matches.push(SyncMatch {
            pending,
            jobs: Vec::new(),
            decided_leases: 0,
            is_denied: false,
            key_reservations: Vec::new(),
        });
        Some(self.matches.len() - 1)
    }
}

/// Looks at the store for the leases of one batch: those who made the jobs wait for them. What needs more is leased by who looks.
const MAX_MATCH_LOADS: usize = 4;

/// Wishes at most that are denied a job for one batch.
const MAX_DENIED_POLLERS: usize = 16;

/// Lease what this batch has made ready to those who have wished for it. Where this fails, what was decided is not to be relied on
/// any more.
pub(crate) async fn match_pollers<S: Store>(
    shared: &Shared<S>,
    definitions: &Definitions,
    decided: &mut DecidedBatch,
    now: Time,
) -> Result<SyncMatches, EngineError> {
    let mut sync_matches = SyncMatches::default();
    if shared.notifier.pollers.parked_count() == 0 || shared.queue.is_closed() {
        return Ok(sync_matches);
    }
    let max_leases = shared.config.max_batch_operations.saturating_sub(decided.writes.len());
    let ReadyJobs { records, excluded_lifecycles } = newly_ready_jobs(decided, now);
    let (mut remaining_loads, mut denied_pollers) = (MAX_MATCH_LOADS, 0);
    for record in records.into_iter().take(max_leases) {
        while let Some(index) = sync_matches.find_or_claim(shared, &record.lifecycle.name, &excluded_lifecycles) {
            let sync_match = &mut sync_matches.matches[index];
            let parked = &sync_match.pending.request;
            let outcome = match parked.reserve_key(shared, sync_match.decided_leases) {
                Ok(keyed) => {
                    let extra = ExtraOperation {
                        operation: parked.lease_operation(record.id, decided)?,
                        key_reservation: keyed.as_ref(),
                        now,
                    };
                    let tried = decide_extra(&shared.store, definitions, decided, extra, &mut remaining_loads).await?;
                    sync_match.key_reservations.extend(keyed.filter(|_| matches!(tried, ExtraOutcome::Applied(_))));
                    tried
                }
                Err(_) => ExtraOutcome::Denied,
            };
            match outcome {
                ExtraOutcome::Applied(answer) => {
                    sync_match.decided_leases += 1;
                    sync_match.jobs.extend(leased_job(answer));
                    break;
                }
                ExtraOutcome::NotApplied => break,
                ExtraOutcome::Denied => {
                    sync_match.is_denied = true;
                    denied_pollers += 1;
                }
            }
            if denied_pollers >= MAX_DENIED_POLLERS {
                break;
            }
        }
        if remaining_loads == 0 || denied_pollers >= MAX_DENIED_POLLERS {
            break;
        }
    }
    // What one lease brings about may have ended another.
    let snapshot = decided.read_set.snapshot();
    let is_live = |leased: &LeasedJob| {
        let execution = snapshot.record(leased.record.id).and_then(|record| record.live_execution());
        execution.is_some_and(|execution| execution.token == leased.token)
    };
    for granted in &mut sync_matches.matches {
        granted.jobs.retain(is_live);
    }
    sync_matches.matches.retain(|granted| granted.decided_leases > 0);
    Ok(sync_matches)
}

impl ParkedRequest {
    /// The name of its so-manieth job, where its call has a key. Refused where an earlier call with the key is still on its way.
    fn reserve_key<S>(&self, shared: &Shared<S>, index: usize) -> Result<Option<KeyReservation>, EngineError> {
        let begin = |idempotency_key: &IdempotencyKey| {
            shared.queue.in_flight_keys.reserve_exclusive(
                job_idempotency_id(&self.actor, &idempotency_key.text, Some(index)),
                idempotency_key.request_digest,
            )
        };
        self.idempotency_key.as_ref().map(begin).transpose()
    }

    /// The operation that leases it this one.
    fn lease_operation(&self, record: RecordId, decided: &DecidedBatch) -> Result<Operation, EngineError> {
        let LeaseRequest { worker, lease_duration: lease, start, .. } = &self.request;
        let call = Call::Lease { record, worker: Arc::clone(worker), lease: *lease, start: *start };
        let seed = ordered_seed(random_seed()?, decided.replies.len() + decided.writes.len());
        Ok(Operation { seed, actor: self.actor.clone(), call, check_answers: Vec::new(), trace: None })
    }
}

struct ReadyJobs {
    /// Jobs that wait for a worker since this batch, in the order in which they would be leased.
    records: Vec<Arc<Record>>,
    /// Lifecycles whose jobs share keys, where this batch has touched one: others of a key may have waited for longer, and a batch does
    /// not know. They are left to whoever looks.
    excluded_lifecycles: HashSet<Arc<str>>,
}

fn newly_ready_jobs(decided: &DecidedBatch, now: Time) -> ReadyJobs {
    let ready = |record: &Record| readiness(record).filter(|waiting| waiting.ready_at <= now);
    let (mut seen, mut found, mut excluded_lifecycles) = (HashSet::new(), Vec::new(), HashSet::new());
    for change in decided.writes.iter().flat_map(record_changes) {
        let record = &change.after;
        if record.lifecycle.work.as_ref().is_some_and(|work| work.concurrency.is_some()) {
            excluded_lifecycles.insert(Arc::clone(&record.lifecycle.name));
            continue;
        }
        if change.before.as_deref().is_some_and(|before| ready(before).is_some()) || !seen.insert(record.id) {
            continue;
        }
        // As the batch leaves it.
        let Some(record) = decided.read_set.snapshot().record(record.id) else { continue };
        found.extend(
            ready(record).map(|waiting| (priority_rank(waiting.priority, waiting.ready_at), Arc::clone(record))),
        );
    }
    // Of the same rank as they came.
    found.sort_by_key(|(rank, _)| *rank);
    ReadyJobs { records: found.into_iter().map(|(_, record)| record).collect(), excluded_lifecycles }
}

fn record_changes(write: &DecidedOperation) -> &[onceward_core::decide::RecordChange] {
    match &write.outcome {
        OperationOutcome::Changes(changes) => &changes.records,
        OperationOutcome::NoOp(_) | OperationOutcome::Refusal(_) => &[],
    }
}
