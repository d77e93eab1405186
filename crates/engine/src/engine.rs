//! [`Engine`]: the public API and the background tasks.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use onceward_core::decide::{Call, CreateRecord, FailureReport};
use onceward_core::diagnostic::InputFiles;
use onceward_core::record::{Actor, FencingToken};
use onceward_core::value::RecordId;
use onceward_store::{Catalog, PayloadBytes, Store};
use serde_json::{Map, Value as Json};
use tokio::runtime::Handle;
use tracing::info;

use crate::api_keys::ApiKeyCache;
use crate::background_tasks::{BackgroundTasks, DeadTask, drain_handles};
use crate::checks::CheckFailureLog;
use crate::config::EngineConfig;
use crate::dispatch::{self, CandidateBroker, KeepWaiting, LeaseRequest, LeasedJob};
use crate::error::EngineError;
use crate::fair_semaphore::FairSemaphore;
use crate::in_process_worker::WorkerHandle;
use crate::metrics::{EngineCounters, EngineMetrics, MetricsSnapshot};
use crate::notifier::Notifier;
use crate::objects::{ObjectStorage, PayloadUpload, UploadedPayload};
use crate::refusal_limiter::RefusalLogLimiter;
use crate::retention::RetentionPolicy;
use crate::retention::prune;
use crate::retention::prune::{PruneOptions, PruneReport};
use crate::scheduler::BlockedRecords;
use crate::shared::Shared;
use crate::stream::LogStream;
use crate::submission::queue::{Receipt, Submission, SubmissionQueue};
use crate::worker_registry::WorkerRegistry;
use crate::{objects, preflight, stream};

/// An engine on a store. Clones share one engine. [`close`](Self::close) drains it. Dropping the last clone aborts it;
/// operations that were answered stay durable.
#[derive(Debug)]
pub struct Engine<S> {
    pub(crate) shared: Arc<Shared<S>>,
    tasks: Arc<BackgroundTasks>,
    runtime: Handle,
}

impl<S> Clone for Engine<S> {
    fn clone(&self) -> Self {
        let runtime = self.runtime.clone();
        Self { shared: Arc::clone(&self.shared), tasks: Arc::clone(&self.tasks), runtime }
    }
}

impl<S: Store + 'static> Engine<S> {
    /// Starts the engine on a store; it first fires what became due while no engine was running. Requires a tokio
    /// runtime with time enabled.
    pub fn open(store: S, config: EngineConfig) -> Self {
        let config = EngineConfig {
            max_queued_operations: config.max_queued_operations.max(1),
            max_batch_operations: config.max_batch_operations.max(1),
            ..config
        };
        let (queue, incoming) = SubmissionQueue::new(&config);
        let (check_permits, stream_read_permits) =
            (FairSemaphore::new(config.max_concurrent_checks), FairSemaphore::new(stream::MAX_CONCURRENT_READS));
        let (notifier, candidate_broker, metrics) =
            (Notifier::default(), CandidateBroker::default(), EngineMetrics::default());
        let refusal_limiter = RefusalLogLimiter::new(config.logged_denials_per_minute);
        let (blocked_records, api_keys, worker_registry) =
            (BlockedRecords::default(), ApiKeyCache::default(), WorkerRegistry::default());
        let check_failures = CheckFailureLog::default();
        let shared = Arc::new(Shared {
            store,
            config,
            queue,
            notifier,
            candidate_broker,
            metrics,
            refusal_limiter,
            blocked_records,
            worker_registry,
            api_keys,
            check_permits,
            check_failures,
            stream_read_permits,
            dead_task: DeadTask::default(),
        });
        let EngineConfig { max_batch_operations, max_queued_operations, .. } = shared.config;
        info!(max_batch_operations, max_queued_operations, "engine started");
        let tasks = BackgroundTasks::start(&shared, incoming);
        Self { shared, tasks: Arc::new(tasks), runtime: Handle::current() }
    }

    /// Registers a worker that closes with the engine.
    pub(crate) fn register_worker(&self, worker: WorkerHandle) {
        self.tasks.workers.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
    }

    /// Runs `action` periodically until the engine is dropped: first after `initial_delay`, then `interval` after each
    /// run ends. `name` names the task if it panics.
    pub fn spawn_periodic<F>(
        &self,
        name: &'static str,
        initial_delay: Duration,
        interval: Duration,
        action: impl Fn(Self) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let engine = self.internal_handle();
        self.tasks.spawn(&self.shared, name, async move {
            let mut delay = initial_delay;
            loop {
                tokio::time::sleep(delay).await;
                action(engine.clone()).await;
                delay = interval;
            }
        });
    }

    /// Returns the name of the first engine task that ended although the engine was open. The engine does not do its
    /// duty any more, so the program should exit.
    pub fn dead_task(&self) -> Option<Arc<str>> {
        self.shared.dead_task.name()
    }

    /// Waits until an engine task ends although the engine is open, and returns its name.
    pub async fn wait_dead_task(&self) -> Arc<str> {
        self.shared.dead_task.wait().await
    }

    /// Returns a handle for tasks that the engine itself owns. Unlike a clone, it does not keep the engine's tasks
    /// alive.
    #[must_use]
    pub fn internal_handle(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), tasks: Arc::default(), runtime: self.runtime.clone() }
    }

    /// Returns the runtime that the engine was opened on.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub fn store(&self) -> &S {
        &self.shared.store
    }

    /// Returns the object storage for large payloads, if one is configured.
    pub fn object_storage(&self) -> Option<&ObjectStorage> {
        self.shared.config.object_storage.as_ref()
    }

    /// Returns the retention policy.
    pub fn retention(&self) -> &RetentionPolicy {
        &self.shared.config.retention
    }

    /// Begins the upload of a payload. Pass the result to [`Submission::with_payload`] when all bytes have arrived.
    pub fn begin_payload(&self) -> PayloadUpload {
        PayloadUpload::new(self.shared.config.object_storage.clone())
    }

    /// Analyzes lifecycle files and stores them.
    pub async fn put_lifecycles(&self, files: &InputFiles) -> Result<Arc<Catalog>, EngineError> {
        Ok(self.shared.store.put_lifecycles(files).await?)
    }

    /// Submits one call and returns when it is durable. If the future is dropped, the call may or may not take effect.
    pub async fn submit(&self, submission: Submission) -> Result<Receipt, EngineError> {
        let mut replies = self.submit_all(vec![submission]).await?;
        replies.pop().unwrap_or_else(|| Err(self.shared.queue.stopped_error()))
    }

    /// Submits several calls. All are queued or none; they are decided in order, and each succeeds or is refused on its
    /// own. A call that needs an external check is decided when the answer arrives; later calls do not wait for it.
    pub async fn submit_all(
        &self,
        submissions: Vec<Submission>,
    ) -> Result<Vec<Result<Receipt, EngineError>>, EngineError> {
        if submissions.is_empty() {
            return Ok(Vec::new());
        }
        let mut submissions = submissions;
        let mut rejected = BTreeMap::new();
        if let Some(objects) = &self.shared.config.object_storage {
            rejected = preflight::reject_doomed(&self.shared, &mut submissions).await?;
            objects::offload_payloads(objects, &mut submissions).await?;
        }
        let caller = |call: &Submission| call.idempotency_key.clone().map(|key| (call.actor.clone(), key));
        let callers = submissions.iter().map(caller).collect();
        let receivers = if submissions.is_empty() { Vec::new() } else { self.shared.queue.submit(submissions)? };
        let mut replies = Vec::with_capacity(receivers.len());
        for receiver in receivers {
            replies.push(self.shared.queue.wait_reply(receiver).await);
        }
        self.complete_replies(callers, &mut replies).await;
        // In ascending order, so that each insertion index is final.
        for (index, error) in rejected {
            replies.insert(index, Err(error));
        }
        Ok(replies)
    }

    pub async fn create(
        &self,
        actor: &Actor,
        lifecycle: &str,
        fields: Map<String, Json>,
    ) -> Result<Receipt, EngineError> {
        let create = CreateRecord { lifecycle: lifecycle.into(), id: None, owner: None, fields, payload: None };
        self.submit(Submission::new(actor, Call::Create(create))).await
    }

    /// Creates a record with these bytes as its payload.
    pub async fn create_with_payload(
        &self,
        actor: &Actor,
        create: CreateRecord,
        bytes: impl Into<Arc<[u8]>>,
    ) -> Result<Receipt, EngineError> {
        let payload = UploadedPayload::from(PayloadBytes::from_bytes(bytes));
        self.submit(Submission::new(actor, Call::Create(create)).with_payload(payload)).await
    }

    pub async fn fire(
        &self,
        actor: &Actor,
        record: RecordId,
        event: &str,
        input: Map<String, Json>,
    ) -> Result<Receipt, EngineError> {
        let call = Call::Fire { record, event: event.into(), input, token: None, if_version: None };
        self.submit(Submission::new(actor, call)).await
    }

    /// Leases jobs to a worker, in order of age and priority. Waits up to `max_wait` for a first job.
    pub async fn lease(&self, actor: &Actor, request: &LeaseRequest) -> Result<Vec<LeasedJob>, EngineError> {
        dispatch::lease(&self.shared, actor, request).await
    }

    /// Like [`lease`](Self::lease), but returns no jobs once `keep_waiting` returns false. The engine calls it at the
    /// start, when a job may be ready, and on [`wake_all`](Self::wake_all).
    pub async fn lease_while(
        &self,
        actor: &Actor,
        request: &LeaseRequest,
        keep_waiting: &KeepWaiting,
    ) -> Result<Vec<LeasedJob>, EngineError> {
        dispatch::lease_while(&self.shared, actor, request, keep_waiting).await
    }

    pub async fn start(&self, actor: &Actor, record: RecordId, token: FencingToken) -> Result<Receipt, EngineError> {
        self.submit(Submission::new(actor, Call::Start { record, token })).await
    }

    /// Extends a lease. If [`Receipt::stop_requested`] is set, the worker should stop.
    pub async fn heartbeat(
        &self,
        actor: &Actor,
        record: RecordId,
        token: FencingToken,
    ) -> Result<Receipt, EngineError> {
        self.submit(Submission::new(actor, Call::Heartbeat { record, token, lease: None })).await
    }

    /// Commits the job's effect, at most once for each job. With `finish` the execution ends too.
    pub async fn commit(
        &self,
        actor: &Actor,
        record: RecordId,
        token: FencingToken,
        result: Json,
        finish: bool,
    ) -> Result<Receipt, EngineError> {
        self.submit(Submission::new(actor, Call::Commit { record, token, result, finish })).await
    }

    pub async fn finish(&self, actor: &Actor, record: RecordId, token: FencingToken) -> Result<Receipt, EngineError> {
        self.submit(Submission::new(actor, Call::Finish { record, token })).await
    }

    pub async fn fail(
        &self,
        actor: &Actor,
        record: RecordId,
        token: FencingToken,
        error: FailureReport,
    ) -> Result<Receipt, EngineError> {
        self.submit(Submission::new(actor, Call::Fail { record, token, error })).await
    }

    /// Returns a job to the queue without counting a failure.
    pub async fn yield_job(
        &self,
        actor: &Actor,
        record: RecordId,
        token: FencingToken,
    ) -> Result<Receipt, EngineError> {
        self.submit(Submission::new(actor, Call::Yield { record, token })).await
    }

    /// Prunes records past their retention. The engine also does this periodically, by [`EngineConfig::retention`].
    pub async fn prune(&self, options: &PruneOptions) -> Result<PruneReport, EngineError> {
        let report = prune::prune(&self.shared.store, options).await?;
        prune::report_pruned(&self.shared, &report);
        if !options.dry_run {
            prune::collect_garbage(&self.shared).await?;
        }
        Ok(report)
    }

    /// Accepts the clock's time after a jump, on an operator's decision. Returns false if the engine already follows the
    /// clock.
    pub async fn accept_clock(&self) -> Result<bool, EngineError> {
        let accepted = self.shared.store.accept_clock().await?;
        if accepted {
            info!("an operator accepted the clock's time");
            self.wake_all();
        }
        Ok(accepted)
    }

    /// Streams the log after `after` as it grows: the entries of records that the actor may see. An operator sees all
    /// entries. If pruning deleted entries after `after`, the stream returns [`EngineError::Pruned`] with the oldest
    /// available seq.
    pub fn stream(&self, actor: &Actor, after: u64) -> LogStream<S> {
        LogStream::new(Arc::clone(&self.shared), actor.clone(), after)
    }

    /// Returns the number of operations that are queued or in flight.
    pub fn queued_operations(&self) -> usize {
        self.shared.queue.queued_operations()
    }

    pub fn counters(&self) -> EngineCounters {
        EngineCounters { overloaded: self.shared.queue.overloaded_calls(), ..self.shared.metrics.counters() }
    }

    /// Returns all counters and the fill level of the queue, without a query of the store.
    pub fn metrics(&self) -> MetricsSnapshot {
        let (queue_capacity, queued_bytes) = self.shared.queue.capacity_and_queued_bytes();
        MetricsSnapshot {
            counters: self.counters(),
            commit_times: self.shared.store.commit_latency(),
            queued_operations: self.queued_operations(),
            queue_capacity,
            queued_bytes,
            parked_pollers: self.shared.notifier.pollers.parked_count(),
            blocked_records: self.shared.blocked_records.len(),
            clock_status: self.shared.store.clock_status(),
            ..self.shared.metrics.snapshot()
        }
    }

    /// Wakes all waiters: after a manual clock was set, or when `keep_waiting` of some lease calls turned false.
    pub fn wake_all(&self) {
        self.shared.notifier.wake_all();
    }

    /// Stops in-process workers from leasing more jobs and lets running jobs end. For a program that has work to do
    /// before [`close`](Self::close).
    pub fn begin_shutdown(&self) {
        for worker in self.tasks.workers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            worker.begin_shutdown();
        }
    }

    /// Closes the in-process workers, accepts no more calls, answers all queued ones, and stops.
    pub async fn close(&self) {
        info!(queued_operations = self.queued_operations(), "engine is draining");
        let closing: Vec<_> = drain_handles(&self.tasks.workers)
            .into_iter()
            .map(|worker| tokio::spawn(async move { worker.close().await }))
            .collect();
        for worker in closing {
            let _ = worker.await;
        }
        self.shared.queue.close();
        self.shared.notifier.wake_all();
        self.shared.queue.wait_drained().await;
        self.shared.notifier.wake_all();
        self.tasks.abort_and_wait().await;
        info!("engine drained");
    }
}
