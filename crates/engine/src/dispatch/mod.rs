//! Dispatch: leases ready jobs to workers.
//! The store lists candidates in order, `decide` checks each lease, and the broker offers no job to two callers of this
//! engine. If two engines offer the same job, one gets a refusal and scans again. If no job is ready, the poller parks,
//! and the batch that creates the next job leases it directly (sync match).

pub(crate) mod candidates;
pub(crate) mod pollers;
pub(crate) mod sync_match;

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::Call;
use onceward_core::record::{Actor, FencingToken, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{IdempotencyId, Store};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::dispatch::pollers::MatchResult;
use crate::error::EngineError;
use crate::idempotency::{self, IdempotencyKey};
use crate::objects::MAX_INLINE_PAYLOAD_BYTES;
use crate::shared::Shared;
use crate::submission::json_size::estimated_json_bytes;
use crate::submission::queue::{Receipt, Submission};

pub(crate) use candidates::CandidateBroker;
use candidates::reserve;
pub(crate) use sync_match::{ParkedRequest, SyncMatches, match_pollers};

/// Rounds with refused candidates before the poller waits. Their concurrency keys are full, or they cannot be leased.
const MAX_REFUSED_ROUNDS: usize = 5;

/// Rounds in which other workers got every candidate. Each means that another worker made progress.
const MAX_LOST_ROUNDS: usize = 1_000;

/// Each job of a repeated call costs a key lookup.
const MAX_JOBS_PER_KEY: usize = 100;

/// How often a waiting poller is recorded as alive.
const SEEN_INTERVAL: Duration = Duration::from_secs(10);

/// A caller that wants to wait longer calls again.
const MAX_LEASE_WAIT: Duration = Duration::from_hours(1);

/// Returns whether a waiting caller still wants a job.
pub type KeepWaiting = Arc<dyn Fn() -> bool + Send + Sync>;

/// A worker's request for jobs.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    pub lifecycles: Vec<Arc<str>>,
    /// Name of the worker, shown with the execution.
    pub worker: Arc<str>,
    pub max_jobs: usize,
    /// Overrides the lifecycle's lease duration.
    pub lease_duration: Option<onceward_core::time::Duration>,
    /// Starts the executions with the lease; saves a call.
    pub start: bool,
    /// Longest wait for a first job.
    pub max_wait: Duration,
    /// Bounds [`LeasedJob::response_bytes`] of all jobs together; a larger job is leased alone.
    pub max_bytes: usize,
    /// Returns only jobs that an earlier call with the key leased.
    pub replay_only: bool,
    /// Idempotency key: a repeated call gets the same jobs and no others.
    pub idempotency_key: Option<Arc<str>>,
}

impl LeaseRequest {
    /// Requests one started job of a lifecycle, without waiting.
    pub fn single_job(lifecycle: &str, worker: &str) -> Self {
        Self {
            lifecycles: vec![lifecycle.into()],
            worker: worker.into(),
            max_jobs: 1,
            lease_duration: None,
            start: true,
            max_wait: Duration::ZERO,
            max_bytes: usize::MAX,
            replay_only: false,
            idempotency_key: None,
        }
    }

    /// Returns the call that leases a record, for a scan and for a sync match.
    fn lease_call(&self, record: RecordId) -> Call {
        let (worker, lease, start) = (Arc::clone(&self.worker), self.lease_duration, self.start);
        Call::Lease { record, worker, lease, start }
    }

    /// Returns the digest of the request without its wait.
    fn request_digest(&self) -> [u8; 32] {
        let lease = self.lease_duration.map(onceward_core::time::Duration::micros);
        let canonical = serde_json::json!([self.lifecycles, self.worker, self.max_jobs, lease, self.start]);
        Sha256::digest(canonical.to_string().as_bytes()).into()
    }
}

/// A job that a worker holds.
#[derive(Clone, Debug)]
pub struct LeasedJob {
    pub record: Arc<Record>,
    /// Required in every report.
    pub token: FencingToken,
    pub expires_at: Time,
}

impl LeasedJob {
    /// Estimates the job's size in a response.
    pub fn response_bytes(&self) -> usize {
        job_response_bytes(&self.record)
    }

    /// Estimates the record's size as JSON.
    pub fn record_bytes(&self) -> usize {
        estimated_json_bytes(&self.record)
    }

    /// Estimates the payload's size in a response, 0 for a payload that workers download.
    pub fn inline_payload_bytes(&self) -> usize {
        inline_payload_bytes(&self.record)
    }
}

/// Bytes of a lease besides its record and payload.
const LEASE_OVERHEAD_BYTES: usize = 512;

/// Estimates the size of a leased job in a response.
pub(crate) fn job_response_bytes(record: &Record) -> usize {
    estimated_json_bytes(record).saturating_add(inline_payload_bytes(record)).saturating_add(LEASE_OVERHEAD_BYTES)
}

/// As base64, which is longer than JSON.
fn inline_payload_bytes(record: &Record) -> usize {
    let payload_bytes = record.payload.map_or(0, |payload| usize::try_from(payload.bytes).unwrap_or(usize::MAX));
    if payload_bytes > MAX_INLINE_PAYLOAD_BYTES { 0 } else { payload_bytes.div_ceil(3) * 4 }
}

/// Leases up to `max_jobs` jobs; returns none if none is ready in time.
pub(crate) async fn lease<S: Store>(
    shared: &Shared<S>,
    actor: &Actor,
    request: &LeaseRequest,
) -> Result<Vec<LeasedJob>, EngineError> {
    lease_while(shared, actor, request, &(Arc::new(|| true) as KeepWaiting)).await
}

/// Like [`lease`], but returns no jobs once `keep_waiting` returns false. It is called whenever the poller wakes.
pub(crate) async fn lease_while<S: Store>(
    shared: &Shared<S>,
    actor: &Actor,
    request: &LeaseRequest,
    keep_waiting: &KeepWaiting,
) -> Result<Vec<LeasedJob>, EngineError> {
    let mut max_jobs = request.max_jobs.min(shared.config.max_batch_operations);
    let mut key_reservation = None;
    if let Some(key) = &request.idempotency_key {
        let idempotency_key = IdempotencyKey::new(key, request.request_digest());
        idempotency_key.validate()?;
        max_jobs = max_jobs.min(MAX_JOBS_PER_KEY);
        // Held until this call ends: an earlier call with the key may still be leasing.
        let in_flight_keys = &shared.queue.in_flight_keys;
        let call_id = job_idempotency_id(actor, key, None);
        let reservation = match in_flight_keys.reserve_exclusive(call_id, idempotency_key.request_digest) {
            // The stored reply comes before the other request in flight that has the key.
            Err(EngineError::IdempotencyKeyReused) => {
                let leased = recall_leases(shared, actor, &idempotency_key, max_jobs).await?;
                return leased.ok_or(EngineError::IdempotencyKeyReused);
            }
            reservation => reservation?,
        };
        // A canceled call may have leases that are not saved yet. A call that recalls them must not miss them.
        if request.replay_only && in_flight_keys.contains_any(&job_idempotency_ids(actor, key, max_jobs)) {
            return Err(EngineError::IdempotencyKeyInUse);
        }
        let leased = recall_leases(shared, actor, &idempotency_key, max_jobs).await?;
        if request.replay_only || leased.is_some() {
            return Ok(leased.unwrap_or_default());
        }
        key_reservation = Some((reservation, idempotency_key));
    }
    let idempotency_key = key_reservation.as_ref().map(|(_, key)| key);
    let deadline = Instant::now() + request.max_wait.min(MAX_LEASE_WAIT);
    let pollers = &shared.notifier.pollers;
    let mut poller = pollers.join(&request.lifecycles);
    let (mut lost_rounds, mut refused_rounds, mut refused) = (0, 0, HashSet::new());
    if max_jobs == 0 || request.replay_only {
        return Ok(Vec::new());
    }
    loop {
        if shared.queue.is_stopped() {
            return Err(shared.queue.stopped_error());
        }
        // Enabled before the scan, so that no wakeup between scan and wait is lost.
        let mut wakeup = pin!(poller.wakeup());
        wakeup.as_mut().enable();
        let generation = pollers.generation();
        if !keep_waiting() {
            return Ok(Vec::new());
        }
        shared.worker_registry.record_sighting(actor, &request.worker, &request.lifecycles);
        let mut candidates = reserve(shared, request, max_jobs, generation).await?;
        poller.mark_scanned();
        if !candidates.records.is_empty() {
            // The scan may have taken a while.
            if !keep_waiting() {
                return Ok(Vec::new());
            }
            let LeasedCandidates { leased, over_limit } =
                lease_candidates(shared, actor, request, idempotency_key, &candidates.records).await?;
            // Other pollers are woken for the jobs that the response cannot hold.
            candidates.was_used = over_limit == 0;
            shared.candidate_broker.adjust_spread(shared, leased.len() + over_limit, candidates.records.len());
            if !leased.is_empty() {
                return Ok(leased);
            }
            // A job that another worker leased is not offered again. A repeated offer means that the job cannot be
            // leased now.
            let before = refused.len();
            refused.extend(candidates.records.iter().copied());
            refused_rounds += usize::from(refused.len() < before + candidates.records.len());
            drop(candidates);
            lost_rounds += 1;
            if refused_rounds < MAX_REFUSED_ROUNDS && lost_rounds < MAX_LOST_ROUNDS {
                continue;
            }
            (lost_rounds, refused_rounds) = (0, 0);
            refused.clear();
        }
        let now = Instant::now();
        if now >= deadline {
            return Ok(Vec::new());
        }
        let mut parked = poller.park(ParkedRequest::new(
            actor,
            LeaseRequest { max_jobs, ..request.clone() },
            idempotency_key,
            keep_waiting,
        ));
        let match_result = tokio::select! {
            biased;
            () = wakeup => {
                poller.mark_woken();
                parked.withdraw().await
            }
            given = parked.wait_result() => given,
            () = tokio::time::sleep(SEEN_INTERVAL.min(deadline - now)) => parked.withdraw().await,
        };
        match match_result {
            MatchResult::Jobs(leased) if !leased.is_empty() => return Ok(leased),
            // A match that failed or a call to another process may have used the key.
            MatchResult::Jobs(_) | MatchResult::Failed => {
                if let Some(once) = idempotency_key
                    && let Some(leased) = recall_leases(shared, actor, once, max_jobs).await?
                {
                    return Ok(leased);
                }
            }
            MatchResult::Unparked => {}
        }
    }
}

/// The result of leasing candidates.
struct LeasedCandidates {
    leased: Vec<LeasedJob>,
    /// Candidates that stay ready, because the response cannot hold them.
    over_limit: usize,
}

/// Leases the candidates, each with its own operation, as far as the response can hold them. Candidates that another
/// worker leased first are skipped.
async fn lease_candidates<S: Store>(
    shared: &Shared<S>,
    actor: &Actor,
    request: &LeaseRequest,
    idempotency_key: Option<&IdempotencyKey>,
    records: &[RecordId],
) -> Result<LeasedCandidates, EngineError> {
    let calls = records.iter().enumerate().map(|(index, record)| {
        let job_key = idempotency_key.map(|once| IdempotencyKey {
            text: job_idempotency_id(actor, &once.text, Some(index)).idempotency_key,
            is_internal: true,
            ..once.clone()
        });
        let max_group_bytes = Some(request.max_bytes).filter(|max_bytes| *max_bytes < usize::MAX);
        let submission = Submission::new(actor, request.lease_call(*record));
        Submission { idempotency_key: job_key, max_group_bytes, ..submission }
    });
    let receivers = shared.queue.submit(calls.collect())?;
    let (mut leased, mut over_limit) = (Vec::with_capacity(receivers.len()), 0);
    let mut failed = None;
    for receiver in receivers {
        match shared.queue.wait_reply(receiver).await {
            Ok(receipt) if receipt.is_over_limit() => over_limit += 1,
            Ok(receipt) => leased.extend(leased_job(receipt)),
            // Another worker leased it first, or its concurrency key is full.
            Err(EngineError::Refused(refusal)) if refusal.status == 409 => {}
            Err(error) => failed = Some(error),
        }
    }
    // An error of one lease does not discard the others.
    match failed {
        Some(error) if leased.is_empty() => Err(error),
        _ => Ok(LeasedCandidates { leased, over_limit }),
    }
}

/// Returns `None` if the record has no live execution: a transition on lease may have ended it.
fn leased_job(receipt: Receipt) -> Option<LeasedJob> {
    let (record, token) = (receipt.record?, receipt.token?);
    // For a replayed lease: it may have ended, and another worker may hold the job now.
    let execution = record.execution.as_ref().filter(|execution| execution.token == token)?;
    let expires_at = execution.expires_at;
    Some(LeasedJob { record, token, expires_at })
}

/// Returns the key of one job of a keyed lease call, so that a repeated call finds its jobs. Callers cannot use such a
/// key: it contains a control character.
fn job_idempotency_id(actor: &Actor, key: &str, index: Option<usize>) -> IdempotencyId {
    let number = index.map(|number| number.to_string()).unwrap_or_default();
    IdempotencyId { owner: Arc::clone(&actor.id), idempotency_key: format!("{key}\u{1f}{number}").into() }
}

fn job_idempotency_ids(actor: &Actor, key: &str, max_jobs: usize) -> Vec<IdempotencyId> {
    (0..max_jobs).map(|index| job_idempotency_id(actor, key, Some(index))).collect()
}

/// Returns the jobs that an earlier call with this key leased and still holds. `None`: the key is unused. An empty
/// list: all leases ended; the key gets no other jobs, so the caller does not wait.
async fn recall_leases<S: Store>(
    shared: &Shared<S>,
    actor: &Actor,
    idempotency_key: &IdempotencyKey,
    max_jobs: usize,
) -> Result<Option<Vec<LeasedJob>>, EngineError> {
    let (catalog, now) = (shared.store.catalog().await?, shared.store.now().await?);
    let (mut leased, mut is_used) = (Vec::new(), false);
    let ids = job_idempotency_ids(actor, &idempotency_key.text, max_jobs);
    for found in shared.store.idempotency_records(&ids).await?.into_iter().flatten() {
        let answer = idempotency::restore_reply(
            &shared.store,
            &catalog.definitions,
            actor,
            &found,
            &idempotency_key.request_digest,
            now,
        )
        .await??;
        is_used = true;
        let is_live = |leased: &LeasedJob| leased.expires_at > now && leased.record.live_execution().is_some();
        leased.extend(leased_job(answer).filter(is_live));
    }
    Ok(is_used.then_some(leased))
}
