//! In-process workers: run a handler for each job and send heartbeats while it runs.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::{Call, FailureReport};
use onceward_core::record::{Actor, FencingToken, Record};
use onceward_core::value::Value;
use onceward_store::Store;
use serde_json::Value as Json;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tracing::warn;

use crate::background_tasks::spawn_supervised;
use crate::checks::AbortOnDrop;
use crate::dispatch::{self, KeepWaiting, LeaseRequest, LeasedJob};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::log_on_change::LogOnChange;
use crate::notifier::duration_between;
use crate::shared::Shared;
use crate::submission::queue::Submission;

/// Long enough that idle workers cost little.
const LONG_POLL_TIMEOUT: Duration = Duration::from_secs(30);

/// Two heartbeats may fail before the lease expires.
const HEARTBEATS_PER_LEASE: u32 = 3;

/// Bounds the load of very short leases.
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(5);

/// Delay before a report is sent again after `Overloaded` or a store error.
const REPORT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Half a second after the grace period; then the lease must expire.
const MAX_FINAL_REPORT_ATTEMPTS: usize = 10;

/// Limit of an error text that was too large or has a foreign source.
const MAX_ERROR_TEXT_CHARS: usize = 500;

/// A panic message may contain payload data, so it is not stored.
const PANIC_MESSAGE: &str = "the handler panicked";

/// Which jobs an in-process worker leases, and how many at once.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    pub lifecycles: Vec<Arc<str>>,
    /// Shown with its executions.
    pub name: Arc<str>,
    /// The actor of its calls; needs the role `worker`.
    pub actor: Actor,
    /// Jobs at the same time.
    pub concurrency: usize,
    /// Overrides the lifecycle's lease duration.
    pub lease_duration: Option<onceward_core::time::Duration>,
}

impl WorkerConfig {
    /// One job of one lifecycle at a time.
    pub fn for_lifecycle(lifecycle: &str) -> Self {
        Self {
            lifecycles: vec![lifecycle.into()],
            name: lifecycle.into(),
            actor: Actor::new("local", &["worker"]),
            concurrency: 1,
            lease_duration: None,
        }
    }
}

/// A job, as the handler gets it.
#[derive(Clone, Debug)]
pub struct WorkerJob {
    pub record: Arc<Record>,
    pub token: FencingToken,
    pub payload: Option<Arc<[u8]>>,
    stop_requested: watch::Receiver<bool>,
}

impl WorkerJob {
    /// Returns a field's value; null if it is unset or unknown.
    pub fn field(&self, name: &str) -> Json {
        self.record.field(name).map(Value::to_json).unwrap_or_default()
    }

    /// Returns whether the handler should stop: the lifecycle requested it, or the program shuts down.
    pub fn should_stop(&self) -> bool {
        *self.stop_requested.borrow()
    }

    /// Waits until the handler should stop.
    pub async fn wait_stop_requested(&self) {
        let mut stop = self.stop_requested.clone();
        if stop.wait_for(|stop| *stop).await.is_err() {
            // The sender is gone: a stop can no longer be requested.
            std::future::pending::<()>().await;
        }
    }
}

/// A handler's result to commit, or its failure. The error code `yielded` returns the job without counting a failure.
pub type JobResult = Result<Json, FailureReport>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerPhase {
    Running,
    /// Leases no more jobs, and asks running handlers to stop.
    Closing,
    /// Running jobs are yielded.
    GraceExpired,
}

/// A running worker. It closes with the engine; dropping the handle has no effect.
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    phase: watch::Sender<WorkerPhase>,
    task: Arc<tokio::sync::Mutex<Option<JoinHandle<()>>>>,
}

impl WorkerHandle {
    /// Stops leasing. Running handlers are asked to stop and may finish within
    /// [`EngineConfig::shutdown_grace`](crate::EngineConfig); after it they are dropped and their jobs yielded.
    pub async fn close(&self) {
        self.begin_shutdown();
        if let Some(task) = self.task.lock().await.take() {
            let _ = task.await;
        }
    }

    /// Like [`close`](Self::close), but does not wait.
    pub(crate) fn begin_shutdown(&self) {
        self.phase.send_if_modified(|phase| {
            let is_running = *phase == WorkerPhase::Running;
            if is_running {
                *phase = WorkerPhase::Closing;
            }
            is_running
        });
    }

    /// Aborts at once, without yielding jobs.
    pub(crate) fn abort(&self) {
        if let Ok(mut task) = self.task.try_lock()
            && let Some(task) = task.take()
        {
            task.abort();
        }
    }
}

impl<S: Store + 'static> Engine<S> {
    /// Runs a handler for each job in this process. Its result is committed and the execution finished. An error, a
    /// panic or a result that can never be accepted fails the job. If the lease is lost, the handler is dropped.
    pub fn work<F>(
        &self,
        config: WorkerConfig,
        handler: impl Fn(WorkerJob) -> F + Send + Sync + 'static,
    ) -> WorkerHandle
    where
        F: Future<Output = JobResult> + Send + 'static,
    {
        let (phase, phase_updates) = watch::channel(WorkerPhase::Running);
        let name = Arc::clone(&config.name);
        let run = run_worker(Arc::clone(&self.shared), config, Arc::new(handler), phase_updates, phase.clone());
        let task = spawn_supervised(&self.shared, name, run);
        let worker = WorkerHandle { phase, task: Arc::new(tokio::sync::Mutex::new(Some(task))) };
        self.register_worker(worker.clone());
        worker
    }
}

async fn run_worker<S, R, F>(
    shared: Arc<Shared<S>>,
    config: WorkerConfig,
    handler: Arc<R>,
    phase_updates: watch::Receiver<WorkerPhase>,
    phase: watch::Sender<WorkerPhase>,
) where
    S: Store + 'static,
    R: Fn(WorkerJob) -> F + Send + Sync + 'static,
    F: Future<Output = JobResult> + Send + 'static,
{
    let mut jobs: JoinSet<()> = JoinSet::new();
    // The instance in the name lets the next process detect that this worker is gone.
    let worker = match shared.store.instance() {
        Some(instance) => onceward_store::in_process_worker_name(&instance, &config.name),
        None => Arc::clone(&config.name),
    };
    let concurrency = config.concurrency.max(1);
    let keep_waiting: KeepWaiting = {
        let phase = phase_updates.clone();
        Arc::new(move || *phase.borrow() == WorkerPhase::Running)
    };
    let mut error_log = LogOnChange::default();
    let wake_task = tokio::spawn(wake_pollers_on_close(phase_updates.clone(), Arc::clone(&shared)));
    while keep_waiting() && !shared.queue.is_closed() {
        while jobs.try_join_next().is_some() {}
        if jobs.len() >= concurrency {
            let mut closing = phase_updates.clone();
            tokio::select! {
                _ = jobs.join_next() => {}
                _ = closing.wait_for(|phase| *phase != WorkerPhase::Running) => {}
            }
            continue;
        }
        let request = LeaseRequest {
            lifecycles: config.lifecycles.clone(),
            worker: Arc::clone(&worker),
            max_jobs: concurrency - jobs.len(),
            lease_duration: config.lease_duration,
            start: true,
            max_wait: LONG_POLL_TIMEOUT,
            max_bytes: usize::MAX,
            replay_only: false,
            idempotency_key: None,
        };
        match dispatch::lease_while(&shared, &config.actor, &request, &keep_waiting).await {
            Ok(jobs_leased) => {
                error_log.reset();
                for leased_job in jobs_leased {
                    let (shared, run, actor) = (Arc::clone(&shared), Arc::clone(&handler), config.actor.clone());
                    jobs.spawn(run_job(shared, actor, leased_job, run, phase_updates.clone()));
                }
            }
            Err(error) if error.is_engine_closed() => break,
            Err(error) => {
                if error_log.should_log(error.code()) {
                    warn!(worker = %config.name, code = error.code(), "in-process worker could not lease jobs");
                }
                let _ = tokio::time::timeout(shared.config.poll_interval, phase_updates.clone().changed()).await;
            }
        }
    }
    wake_task.abort();
    let all_jobs = async { while jobs.join_next().await.is_some() {} };
    if tokio::time::timeout(shared.config.shutdown_grace, all_jobs).await.is_err() {
        phase.send_replace(WorkerPhase::GraceExpired);
        while jobs.join_next().await.is_some() {}
    }
}

/// Wakes the worker's own poller when it closes.
async fn wake_pollers_on_close<S>(mut phase_updates: watch::Receiver<WorkerPhase>, shared: Arc<Shared<S>>) {
    if phase_updates.wait_for(|phase| *phase != WorkerPhase::Running).await.is_ok() {
        shared.notifier.pollers.wake_all();
    }
}

enum JobEvent {
    Finished(Result<JobResult, tokio::task::JoinError>),
    HeartbeatDue,
    PhaseChanged,
}

/// Runs one job from its lease to its report.
async fn run_job<S, R, F>(
    shared: Arc<Shared<S>>,
    actor: Actor,
    leased_job: LeasedJob,
    handler: Arc<R>,
    mut phase_updates: watch::Receiver<WorkerPhase>,
) where
    S: Store + 'static,
    R: Fn(WorkerJob) -> F + Send + Sync + 'static,
    F: Future<Output = JobResult> + Send + 'static,
{
    let (id, token) = (leased_job.record.id, leased_job.token);
    let heartbeat_interval = leased_job.record.execution.as_ref().map_or(MIN_HEARTBEAT_INTERVAL, |execution| {
        (duration_between(execution.leased_at, execution.expires_at) / HEARTBEATS_PER_LEASE).max(MIN_HEARTBEAT_INTERVAL)
    });
    let payload = match leased_job.record.payload {
        Some(payload) => match shared.read_payload(payload).await {
            Ok(content) => content,
            // The next attempt may succeed.
            Err(_) => return send_report(&shared, &actor, Call::Yield { record: id, token }, &phase_updates).await,
        },
        None => None,
    };
    let (stop_sender, stop_receiver) = watch::channel(*phase_updates.borrow_and_update() != WorkerPhase::Running);
    let job = WorkerJob { record: leased_job.record, token, payload, stop_requested: stop_receiver };
    // In its own task, so that a panic is reported as a failure.
    let mut task = AbortOnDrop(tokio::spawn(async move { handler(job).await }));
    let (mut was_asked_to_stop, mut delay) = (false, heartbeat_interval);
    let call = loop {
        let event = tokio::select! {
            // A handler that has ended is reported, even if the phase changed too.
            biased;
            ended = &mut task => JobEvent::Finished(ended),
            () = tokio::time::sleep(delay) => JobEvent::HeartbeatDue,
            changed = phase_updates.changed() => {
                // The sender lives as long as the task that spawned this one.
                if changed.is_err() { JobEvent::HeartbeatDue } else { JobEvent::PhaseChanged }
            }
        };
        match event {
            JobEvent::Finished(Ok(Ok(result))) => break Call::Commit { record: id, token, result, finish: true },
            JobEvent::Finished(Ok(Err(error))) if *error.code == *"yielded" => break Call::Yield { record: id, token },
            JobEvent::Finished(Ok(Err(error))) => break Call::Fail { record: id, token, error },
            JobEvent::Finished(Err(_)) => {
                // Like a crash: retryable, because the lifecycle bounds the attempts. The panic message may quote a
                // payload, so the record does not store it.
                let error = FailureReport { retryable: Some(true), ..FailureReport::new("EXCEPTION", PANIC_MESSAGE) };
                break Call::Fail { record: id, token, error };
            }
            JobEvent::PhaseChanged if *phase_updates.borrow_and_update() == WorkerPhase::GraceExpired => {
                break Call::Yield { record: id, token };
            }
            JobEvent::PhaseChanged => {
                stop_sender.send_replace(true);
            }
            JobEvent::HeartbeatDue => {
                match send_heartbeat(&shared, &actor, &Call::Heartbeat { record: id, token, lease: None }).await {
                    // Asked to stop at the last heartbeat, and still running.
                    Ok(true) if was_asked_to_stop => break Call::Yield { record: id, token },
                    Ok(stop_requested) => {
                        delay = heartbeat_interval;
                        was_asked_to_stop |= stop_requested;
                        if stop_requested {
                            stop_sender.send_replace(true);
                        }
                    }
                    // The lease is lost: the job's effect can no longer be committed.
                    Err(EngineError::Refused(_) | EngineError::Closed | EngineError::WriterDied) => return,
                    // Retry sooner than the next heartbeat: two missed ones expire the lease.
                    Err(EngineError::Overloaded { retry_after }) => delay = retry_after.min(heartbeat_interval),
                    Err(error) => {
                        delay = if error.is_retryable() {
                            REPORT_RETRY_DELAY.min(heartbeat_interval)
                        } else {
                            heartbeat_interval
                        }
                    }
                }
            }
        }
    };
    drop(task);
    send_report(&shared, &actor, call, &phase_updates).await;
}

async fn send_heartbeat<S: Store>(shared: &Shared<S>, actor: &Actor, call: &Call) -> Result<bool, EngineError> {
    Ok(submit(shared, Submission::new(actor, call.clone())).await?.stop_requested)
}

async fn submit<S: Store>(shared: &Shared<S>, submission: Submission) -> Result<crate::Receipt, EngineError> {
    let mut receivers = shared.queue.submit(vec![submission])?;
    match receivers.pop() {
        Some(receiver) => shared.queue.wait_reply(receiver).await,
        None => Err(shared.queue.stopped_error()),
    }
}

/// Sends a report until it is accepted or refused, while a retry may help and the grace period lasts. A repeated report
/// is harmless: the fencing token makes it a no-op.
async fn send_report<S: Store>(
    shared: &Shared<S>,
    actor: &Actor,
    mut call: Call,
    phase_updates: &watch::Receiver<WorkerPhase>,
) {
    let (mut attempts_left, mut is_substitute) = (MAX_FINAL_REPORT_ATTEMPTS, false);
    loop {
        let Err(error) = submit(shared, Submission::new(actor, call.clone())).await else { return };
        if error.is_retryable() {
            if *phase_updates.borrow() == WorkerPhase::GraceExpired {
                attempts_left -= 1;
                if attempts_left == 0 {
                    return;
                }
            }
            tokio::time::sleep(REPORT_RETRY_DELAY).await;
            continue;
        }
        match substitute_report(call, &error) {
            Some(other) if !is_substitute => (call, is_substitute) = (other, true),
            _ => return,
        }
    }
}

/// Returns the failure to report instead of a report that can never be accepted. Otherwise the job would run again
/// after each lease expiry.
fn substitute_report(call: Call, error: &EngineError) -> Option<Call> {
    let failure = |code: &str, message: &str| FailureReport {
        retryable: Some(false),
        ..FailureReport::new(code, truncate_text(message))
    };
    let (record, token, error) = match (call, error) {
        (Call::Commit { record, token, .. }, EngineError::Refused(refusal)) => match refusal.status {
            413 | 422 => (record, token, failure("BAD_RESULT", &refusal.reason)),
            _ => return None,
        },
        (Call::Commit { record, token, .. }, EngineError::RequestTooLarge { max_bytes }) => {
            (record, token, failure("SIZE_EXCEEDED", &format!("the result has more than {max_bytes} bytes")))
        }
        (_, error) if error.is_engine_closed() => return None,
        (Call::Commit { record, token, .. }, other) => (record, token, failure(other.code(), &other.to_string())),
        (Call::Fail { record, token, error }, EngineError::RequestTooLarge { .. }) => {
            let (code, message) = (truncate_text(&error.code).into(), truncate_text(&error.message).into());
            (record, token, FailureReport { code, message, ..error })
        }
        _ => return None,
    };
    Some(Call::Fail { record, token, error })
}

fn truncate_text(text: &str) -> &str {
    text.char_indices().nth(MAX_ERROR_TEXT_CHARS).map_or(text, |(end, _)| &text[..end])
}
