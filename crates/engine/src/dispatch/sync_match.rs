//! Sync match: leases a job to a parked poller in the transaction that creates the job, so that both cost one fsync.
//!
//! It is only an optimization. If such a lease is not applied, the engine discards it, wakes the poller, and the poller
//! scans.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::{Operation, readiness};
use onceward_core::model::Definitions;
use onceward_core::record::{Actor, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{DecidedOperation, OperationOutcome, Store, priority_rank};

use super::{KeepWaiting, LeaseRequest, LeasedJob, job_idempotency_id, job_response_bytes, leased_job};
use crate::decision::retry_policy::MAX_MATCH_LOADS;
use crate::decision::{DecidedBatch, ExtraOperation, ExtraOutcome, decide_extra, ordered_seed};
use crate::dispatch::pollers::PendingMatch;
use crate::error::EngineError;
use crate::idempotency::{IdempotencyKey, KeyReservation};
use crate::shared::Shared;
use crate::submission::queue::random_seed;

/// A lease request of a poller that found no job.
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
        formatter.debug_struct("ParkedRequest").field("request", &self.request).finish_non_exhaustive()
    }
}

/// A parked request with the jobs that a batch leases to it. If dropped, its poller scans again.
#[derive(Debug)]
struct SyncMatch {
    pending: PendingMatch,
    jobs: Vec<LeasedJob>,
    /// Decided leases; some transitions on lease end the job at once.
    decided_leases: usize,
    /// Estimated bytes of the jobs in the response.
    leased_bytes: usize,
    /// A lease was denied: the poller leases by itself and gets the error.
    is_denied: bool,
    /// Held until the jobs are delivered, so that a repeated call with the key gets no other jobs.
    key_reservations: Vec<KeyReservation>,
}

impl SyncMatch {
    fn can_take(&self, record: &Record) -> bool {
        let request = &self.pending.request.request;
        let has_space =
            self.leased_bytes == 0 || self.leased_bytes.saturating_add(job_response_bytes(record)) <= request.max_bytes;
        let wants_more = !self.is_denied && self.decided_leases < request.max_jobs && has_space;
        wants_more && request.lifecycles.contains(&record.lifecycle.name)
    }
}

/// The leases that a batch adds.
#[derive(Debug, Default)]
pub(crate) struct SyncMatches {
    matches: Vec<SyncMatch>,
    /// Lifecycles without a parked poller.
    unwanted_lifecycles: HashSet<Arc<str>>,
}

impl SyncMatches {
    pub(crate) fn is_empty(&self) -> bool {
        self.matches.is_empty()
    }

    /// Returns the leased records, so that the notifier wakes no other poller for them.
    pub(crate) fn leased_records(&self) -> HashSet<RecordId> {
        self.matches.iter().flat_map(|sync_match| &sync_match.jobs).map(|leased| leased.record.id).collect()
    }

    /// Delivers the jobs. Call it when the batch is durable.
    pub(crate) fn deliver<S>(self, shared: &Shared<S>, elapsed: Duration) {
        for SyncMatch { pending, jobs: leased, key_reservations, .. } in self.matches {
            for _ in &leased {
                shared.metrics.record_sync_match(elapsed);
            }
            drop(key_reservations);
            pending.deliver(leased);
        }
    }

    /// Returns the index of a match with capacity for this job, and claims a parked poller if there is none. Skips
    /// pollers that want one of `excluded_lifecycles`.
    fn find_or_claim<S>(
        &mut self,
        shared: &Shared<S>,
        record: &Record,
        excluded_lifecycles: &HashSet<Arc<str>>,
    ) -> Option<usize> {
        if let Some(index) = self.matches.iter().position(|granted| granted.can_take(record)) {
            return Some(index);
        }
        let lifecycle = &record.lifecycle.name;
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
            leased_bytes: 0,
            is_denied: false,
            key_reservations: Vec::new(),
        });
        Some(self.matches.len() - 1)
    }
}

/// Bounds the work of one batch for pollers that are denied.
const MAX_DENIED_POLLERS: usize = 16;

/// Leases the jobs that this batch made ready to parked pollers. After an error, the decided batch must not be used.
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
        while let Some(index) = sync_matches.find_or_claim(shared, &record, &excluded_lifecycles) {
            let sync_match = &mut sync_matches.matches[index];
            let parked = &sync_match.pending.request;
            let outcome = match parked.reserve_key(shared, sync_match.decided_leases) {
                // Checked with the key reserved: from now on, a call that recalls this lease finds the key in use.
                Ok(keyed) if !sync_match.pending.is_canceled() => {
                    let extra = ExtraOperation {
                        operation: parked.lease_operation(record.id, decided)?,
                        key_reservation: keyed.as_ref(),
                        now,
                    };
                    let tried = decide_extra(&shared.store, definitions, decided, extra, &mut remaining_loads).await?;
                    sync_match.key_reservations.extend(keyed.filter(|_| matches!(tried, ExtraOutcome::Applied(_))));
                    tried
                }
                Ok(_) | Err(_) => ExtraOutcome::Denied,
            };
            match outcome {
                ExtraOutcome::Applied(answer) => {
                    sync_match.decided_leases += 1;
                    sync_match.leased_bytes += job_response_bytes(&record);
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
    // One lease may have ended another.
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
    /// Reserves the key of the job at `index`, if the call has an idempotency key. Fails while an earlier call with the
    /// key is in flight.
    fn reserve_key<S>(&self, shared: &Shared<S>, index: usize) -> Result<Option<KeyReservation>, EngineError> {
        let begin = |idempotency_key: &IdempotencyKey| {
            shared.queue.in_flight_keys.reserve_exclusive(
                job_idempotency_id(&self.actor, &idempotency_key.text, Some(index)),
                idempotency_key.request_digest,
            )
        };
        self.idempotency_key.as_ref().map(begin).transpose()
    }

    fn lease_operation(&self, record: RecordId, decided: &DecidedBatch) -> Result<Operation, EngineError> {
        let call = self.request.lease_call(record);
        let seed = ordered_seed(random_seed()?, decided.replies.len() + decided.writes.len());
        Ok(Operation { seed, actor: self.actor.clone(), call, check_answers: Vec::new(), trace: None })
    }
}

struct ReadyJobs {
    /// Jobs that this batch made ready, in lease order.
    records: Vec<Arc<Record>>,
    /// Lifecycles with concurrency keys that this batch changed. Older jobs of a key may be waiting in the store, and
    /// the batch does not know them; so these are left to a scan.
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
        // The record at the end of the batch.
        let Some(record) = decided.read_set.snapshot().record(record.id) else { continue };
        found.extend(
            ready(record).map(|waiting| (priority_rank(waiting.priority, waiting.ready_at), Arc::clone(record))),
        );
    }
    // A stable sort: jobs of one rank keep their order.
    found.sort_by_key(|(rank, _)| *rank);
    ReadyJobs { records: found.into_iter().map(|(_, record)| record).collect(), excluded_lifecycles }
}

fn record_changes(write: &DecidedOperation) -> &[onceward_core::decide::RecordChange] {
    match &write.outcome {
        OperationOutcome::Changes(changes) => &changes.records,
        OperationOutcome::NoOp(_) | OperationOutcome::Refusal(_) => &[],
    }
}
