//! Jobs for workers. The store names candidates in their order, `decide` says who may have one, and no job is offered to
//! two callers of this engine at once. Should two engines offer the same, one of them loses and looks again. Where there is none, the
//! batch that makes the next one leases it right there.

mod desk;
mod wish;

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

use crate::error::EngineError;
use crate::idempotency::{self, IdempotencyKey};
use crate::queue::{Receipt, Submission};
use crate::shared::Shared;
use crate::waiting::MatchResult;

pub(crate) use desk::CandidateBroker;
use desk::reserve;
pub(crate) use wish::{ParkedRequest, SyncMatches, match_pollers};

/// Rounds in which we were refused jobs that are offered again, before waiting for news: their keys are full, or they cannot be leased.
const MAX_REFUSED_ROUNDS: usize = 5;

/// Rounds at all in which every candidate went to somebody else. Each one means that somebody else got on.
const MAX_LOST_ROUNDS: usize = 1_000;

/// Jobs at most for a call with a key: each of them is looked for.
const MAX_JOBS_PER_KEY: usize = 100;

/// One who waits is seen so often.
const SEEN_INTERVAL: Duration = Duration::from_secs(10);

/// A call that waits longer is asked again by its caller.
const MAX_LEASE_WAIT: Duration = Duration::from_hours(1);

/// Says whether somebody who waits still wants anything.
pub type KeepWaiting = Arc<dyn Fn() -> bool + Send + Sync>;

/// What a worker asks for.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    pub lifecycles: Vec<Arc<str>>,
    /// What the worker calls itself; shown with the execution.
    pub worker: Arc<str>,
    /// At most so many jobs.
    pub max_jobs: usize,
    /// Shorter or longer than the lifecycle's own.
    pub lease_duration: Option<onceward_core::time::Duration>,
    /// Start at once: saves a report.
    pub start: bool,
    /// How long to wait for a first job where there is none.
    pub max_wait: Duration,
    /// Only what the key was given before: nothing more is leased.
    pub replay_only: bool,
    /// A key of the worker's: asked again with the same one, it gets the same jobs and no others.
    pub idempotency_key: Option<Arc<str>>,
}

impl LeaseRequest {
    /// One job of a lifecycle, started, without waiting.
    pub fn single_job(lifecycle: &str, worker: &str) -> Self {
        Self {
            lifecycles: vec![lifecycle.into()],
            worker: worker.into(),
            max_jobs: 1,
            lease_duration: None,
            start: true,
            max_wait: Duration::ZERO,
            replay_only: false,
            idempotency_key: None,
        }
    }

    /// What was asked, but for how long to wait.
    fn request_digest(&self) -> [u8; 32] {
        let lease = self.lease_duration.map(onceward_core::time::Duration::micros);
        let canonical = serde_json::json!([self.lifecycles, self.worker, self.max_jobs, lease, self.start]);
        Sha256::digest(canonical.to_string().as_bytes()).into()
    }
}

/// A job in a worker's hands.
#[derive(Clone, Debug)]
pub struct LeasedJob {
    pub record: Arc<Record>,
    /// To be shown with every report.
    pub token: FencingToken,
    pub expires_at: Time,
}

/// Lease up to as many jobs as wanted; none where none came in time.
pub(crate) async fn lease<S: Store>(
    shared: &Shared<S>,
    actor: &Actor,
    request: &LeaseRequest,
) -> Result<Vec<LeasedJob>, EngineError> {
    lease_while(shared, actor, request, &(Arc::new(|| true) as KeepWaiting)).await
}

/// The same, and none as soon as nobody wants any more: asked when there is news of work.
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
        // Until this call ends, and not while the call before is under way: it may still be given some.
        let reservation = shared
            .queue
            .in_flight_keys
            .reserve_exclusive(job_idempotency_id(actor, key, None), idempotency_key.request_digest)?;
        let leased = recall_leases(shared, actor, &idempotency_key, max_jobs).await?;
        if request.replay_only || leased.is_some() {
            return Ok(leased.unwrap_or_default());
        }
        key_reservation = Some((reservation, idempotency_key));
    }
    let idempotency_key = key_reservation.as_ref().map(|(_, once)| once);
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
        // From here on no news is missed: it comes before this look, or ends the wait after it.
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
            // It may have waited for its turn at the desk.
            if !keep_waiting() {
                return Ok(Vec::new());
            }
            let leased = lease_candidates(shared, actor, request, idempotency_key, &candidates.records).await?;
            candidates.was_used = true;
            shared.candidate_broker.adjust_spread(shared, leased.len(), candidates.records.len());
            if !leased.is_empty() {
                return Ok(leased);
            }
            // Who is quicker takes a job away, so that it is not offered again: while others come there are some left.
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
            // Its key may be used by now: by this very call, or at another process.
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

/// Lease these, each on its own. Those that went to somebody else meanwhile are left out.
async fn lease_candidates<S: Store>(
    shared: &Shared<S>,
    actor: &Actor,
    request: &LeaseRequest,
    idempotency_key: Option<&IdempotencyKey>,
    records: &[RecordId],
) -> Result<Vec<LeasedJob>, EngineError> {
    let calls = records.iter().enumerate().map(|(index, record)| {
        let (worker, lease, start) = (Arc::clone(&request.worker), request.lease_duration, request.start);
        let call = Call::Lease { record: *record, worker, lease, start };
        let job_key = idempotency_key.map(|once| IdempotencyKey {
            text: job_idempotency_id(actor, &once.text, Some(index)).idempotency_key,
            is_internal: true,
            ..once.clone()
        });
        Submission { idempotency_key: job_key, ..Submission::new(actor, call) }
    });
    let receivers = shared.queue.submit(calls.collect())?;
    let mut leased = Vec::with_capacity(receivers.len());
    let mut failed = None;
    for receiver in receivers {
        match shared.queue.wait_reply(receiver).await {
            Ok(answer) => leased.extend(leased_job(answer)),
            // Somebody was quicker, or its key is full.
            Err(EngineError::Refused(refusal)) if refusal.status == 409 => {}
            Err(error) => failed = Some(error),
        }
    }
    // What was leased is not lost for a sibling's failure.
    match failed {
        Some(error) if leased.is_empty() => Err(error),
        _ => Ok(leased),
    }
}

/// Without a live execution it was not leased: its own row may have set it aside.
fn leased_job(receipt: Receipt) -> Option<LeasedJob> {
    let (record, token) = (receipt.record?, receipt.token?);
    // Of an earlier call with the same key: it may be over, which its worker will be told; but then another may have it.
    let execution = record.execution.as_ref().filter(|execution| execution.token == token)?;
    let expires_at = execution.expires_at;
    Some(LeasedJob { record, token, expires_at })
}

/// Each job of a call with a key has a name of its own: who asks again is given those that were leased. No key of a caller's
/// has such a name.
fn job_idempotency_id(actor: &Actor, key: &str, index: Option<usize>) -> IdempotencyId {
    let number = index.map(|number| number.to_string()).unwrap_or_default();
    IdempotencyId { owner: Arc::clone(&actor.id), idempotency_key: format!("{key}\u{1f}{number}").into() }
}

/// The jobs that a call with this key was given before, as far as they are still in its hands. `None` where it was given none; an
/// empty list where all are over: such a key gets no others, so there is nothing to wait for.
async fn recall_leases<S: Store>(
    shared: &Shared<S>,
    actor: &Actor,
    idempotency_key: &IdempotencyKey,
    max_jobs: usize,
) -> Result<Option<Vec<LeasedJob>>, EngineError> {
    let (catalog, now) = (shared.store.catalog().await?, shared.store.now().await?);
    let (mut leased, mut is_used) = (Vec::new(), false);
    let names: Vec<IdempotencyId> =
        (0..max_jobs).map(|number| job_idempotency_id(actor, &idempotency_key.text, Some(number))).collect();
    for found in shared.store.idempotency_records(&names).await?.into_iter().flatten() {
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

/// Looks for those who wait: at the times at which jobs are known to become ready, and now and then for what nobody has told of.
pub(crate) async fn run<S: Store>(shared: Arc<Shared<S>>) {
    while !shared.queue.is_closed() {
        let poll = shared.config.poll_interval;
        let delay = shared.store.now().await.map_or(poll, |now| shared.notifier.time_until_ready(now, poll));
        shared.notifier.wait_earlier_ready(delay).await;
        shared.notifier.pollers.wake_one_each();
    }
}
