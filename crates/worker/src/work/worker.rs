//! The loop that leases jobs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onceward_api_types::LeaseBody;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::client::Client;
use crate::error::ClientError;
use crate::leases::LeaseRequest;
use crate::payload::Payload;
use crate::reports::{Report, ReportKind, duration_millis};
use crate::transport::{Backoff, new_idempotency_key};
use crate::types::LeasedJob;
use crate::work::failure::{BAD_RESULT_CODE, Failure};
use crate::work::job::Job;
use crate::work::job_runner::{Handler, HandlerResult, JobRunner};
use crate::work::reporter::Reporter;

/// How long one lease call waits for a first job.
const LONG_POLL_TIMEOUT: Duration = Duration::from_secs(30);

/// The server's limit for a request with an idempotency key.
const MAX_JOBS_PER_REQUEST: u32 = 100;

/// Time to recall and return the jobs of a canceled lease call.
const RECALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Time to return running jobs after the grace period. If the server does not answer, their leases expire.
const YIELD_TIMEOUT: Duration = Duration::from_secs(5);

/// Configuration of a worker.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    pub lifecycles: Vec<String>,
    /// The worker's name, shown with its executions.
    pub name: String,
    /// Maximum number of concurrent jobs.
    pub concurrency: usize,
    /// Length of the leases, instead of that of the lifecycle.
    pub lease: Option<Duration>,
    /// How long handlers may continue when the worker closes or their job should stop.
    pub shutdown_grace: Duration,
    /// End when no job is ready, instead of waiting.
    pub until_idle: bool,
}

impl WorkerConfig {
    /// Configures a worker for one lifecycle, with one job at a time.
    pub fn for_lifecycle(lifecycle: &str) -> Self {
        Self {
            lifecycles: vec![lifecycle.to_owned()],
            name: format!("{lifecycle}@{}", std::process::id()),
            concurrency: 1,
            lease: None,
            shutdown_grace: Duration::from_secs(10),
            until_idle: false,
        }
    }

    /// Sets the maximum number of concurrent jobs.
    pub fn concurrency(self, concurrency: usize) -> Self {
        Self { concurrency, ..self }
    }

    fn new_lease_request(&self, free_slots: usize) -> Result<LeaseRequest, ClientError> {
        let body = LeaseBody {
            lifecycles: self.lifecycles.clone(),
            worker: self.name.clone(),
            max: u32::try_from(free_slots).unwrap_or(u32::MAX).clamp(1, MAX_JOBS_PER_REQUEST),
            lease_ms: self.lease.map(duration_millis),
            wait_ms: Some(if self.until_idle { 0 } else { duration_millis(LONG_POLL_TIMEOUT) }),
            start: Some(true),
            again: None,
        };
        Ok(LeaseRequest { body, idempotency_key: Some(new_idempotency_key()?) })
    }
}

/// The phase of a worker's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum WorkerPhase {
    Running,
    /// Leases no more jobs: cancels its lease call and returns the jobs that the call leased.
    Closing,
    /// Asks running handlers to stop. Follows the canceled lease call, which would lease the returned jobs again.
    Stopping,
    /// Returns the jobs that still run.
    GraceOver,
}

/// Handle of a running worker. Dropping it does not stop the worker, which runs until it is closed or its runtime
/// ends.
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    phase: watch::Sender<WorkerPhase>,
    task: Arc<Mutex<Option<WorkerTask>>>,
}

type WorkerTask = JoinHandle<Result<(), ClientError>>;

impl WorkerHandle {
    /// Stops leasing, asks running handlers to stop, and waits. Handlers may finish within the grace period; after
    /// it, the worker drops them and returns their jobs.
    pub async fn close(&self) -> Result<(), ClientError> {
        self.start_close();
        self.wait().await
    }

    /// Like [`close`](Self::close), but does not wait.
    pub fn start_close(&self) {
        self.phase.send_if_modified(|phase| {
            let is_first_close = *phase == WorkerPhase::Running;
            if is_first_close {
                *phase = WorkerPhase::Closing;
            }
            is_first_close
        });
    }

    /// Waits until the worker has ended: closed, idle, or rejected by the server. Returns the error once; later
    /// calls return `Ok`.
    pub async fn wait(&self) -> Result<(), ClientError> {
        let mut task = self.task.lock().await;
        let Some(join_handle) = task.as_mut() else { return Ok(()) };
        let ended = join_handle.await;
        *task = None;
        ended.unwrap_or_else(|error| Err(ClientError::InvalidRequest(error.to_string())))
    }
}

impl Client {
    /// Runs a closure for each job. Its result is committed, and the job finished. The job fails if the closure
    /// returns a failure or panics, or if the server rejects its result. The closure is dropped when its lease is
    /// lost.
    pub fn work<F, R>(&self, config: WorkerConfig, handler: impl Fn(Job) -> F + Send + Sync + 'static) -> WorkerHandle
    where
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Serialize + 'static,
    {
        let handler: Handler = Arc::new(move |job| {
            let future = handler(job);
            Box::pin(async move { future.await.and_then(|result| serialize_result(&result)) })
        });
        self.start_worker(config, handler)
    }

    /// Like [`work`](Self::work), but parses the payload. If the type does not match, the job fails without
    /// retries.
    pub fn work_with<I, F, R>(
        &self,
        config: WorkerConfig,
        handler: impl Fn(I, Job) -> F + Send + Sync + 'static,
    ) -> WorkerHandle
    where
        I: DeserializeOwned + Send + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Serialize + 'static,
    {
        let handler = Arc::new(handler);
        let handler: Handler = Arc::new(move |job| {
            let handler = Arc::clone(&handler);
            Box::pin(async move {
                let input = job.input()?;
                handler(input, job).await.and_then(|result| serialize_result(&result))
            })
        });
        self.start_worker(config, handler)
    }

    pub(crate) fn start_worker(&self, config: WorkerConfig, handler: Handler) -> WorkerHandle {
        let (phase_sender, phases) = watch::channel(WorkerPhase::Running);
        let (reporter, lease, grace) = (Reporter::start(self), config.lease, config.shutdown_grace);
        let job_runner = JobRunner { client: self.clone(), reporter, handler, lease, stop_grace: grace };
        let worker_loop = WorkerLoop {
            job_runner,
            config,
            phases,
            phase_sender: phase_sender.clone(),
            jobs: JoinSet::new(),
            was_unavailable: false,
        };
        WorkerHandle { phase: phase_sender, task: Arc::new(Mutex::new(Some(tokio::spawn(worker_loop.run())))) }
    }
}

/// Waits until the worker leases no more jobs.
async fn wait_for_close(phases: &mut watch::Receiver<WorkerPhase>) {
    // Cannot fail: the sender lives as long as the loop.
    let _ = phases.wait_for(|phase| *phase != WorkerPhase::Running).await;
}

fn serialize_result(result: &impl Serialize) -> HandlerResult {
    Payload::json(result)
        .map(Some)
        .map_err(|error| Failure::terminal(BAD_RESULT_CODE, format!("the result cannot be serialized: {error}")))
}

struct WorkerLoop {
    job_runner: JobRunner,
    config: WorkerConfig,
    phases: watch::Receiver<WorkerPhase>,
    phase_sender: watch::Sender<WorkerPhase>,
    jobs: JoinSet<()>,
    /// Whether the server was unavailable, to log it only once.
    was_unavailable: bool,
}

impl fmt::Debug for WorkerLoop {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("WorkerLoop").field("config", &self.config).finish_non_exhaustive()
    }
}

impl WorkerLoop {
    async fn run(mut self) -> Result<(), ClientError> {
        let ended = self.lease_until_closed().await;
        self.phase_sender.send_replace(WorkerPhase::Stopping);
        let shutdown_grace = self.config.shutdown_grace;
        let all_jobs = async { while self.jobs.join_next().await.is_some() {} };
        if tokio::time::timeout(shutdown_grace, all_jobs).await.is_err() {
            self.phase_sender.send_replace(WorkerPhase::GraceOver);
            let all_jobs = async { while self.jobs.join_next().await.is_some() {} };
            if tokio::time::timeout(YIELD_TIMEOUT, all_jobs).await.is_err() {
                tracing::warn!(jobs = self.jobs.len(), "yielding jobs timed out; their leases will expire");
            }
        }
        ended
    }

    /// Leases jobs until the worker closes or the server rejects it.
    async fn lease_until_closed(&mut self) -> Result<(), ClientError> {
        let mut backoff = Backoff::default();
        // A request whose response was lost. Repeating it with the same idempotency key returns the same jobs.
        let mut unanswered_request: Option<LeaseRequest> = None;
        loop {
            while self.jobs.try_join_next().is_some() {}
            if !self.is_running() {
                if let Some(request) = unanswered_request {
                    self.recall_and_yield(request).await;
                }
                return Ok(());
            }
            let free_slots = self.config.concurrency.max(1).saturating_sub(self.jobs.len());
            if free_slots == 0 {
                self.wait_for_job_end().await;
                continue;
            }
            let is_repeated = unanswered_request.is_some();
            let request = match unanswered_request.take() {
                Some(call) => call,
                None => self.config.new_lease_request(free_slots)?,
            };
            let mut closing = self.phases.clone();
            let client = self.job_runner.client.clone();
            let answer = tokio::select! {
                biased;
                answer = client.lease_once(&request) => answer,
                () = wait_for_close(&mut closing) => {
                    self.recall_and_yield(request).await;
                    return Ok(());
                }
            };
            match answer {
                Ok(leased) => {
                    self.log_available();
                    backoff.reset();
                    // An empty answer to a repeated request does not mean idle: it returns only jobs of the first
                    // call, which may have expired.
                    if leased.is_empty() && self.config.until_idle && !is_repeated {
                        if self.jobs.is_empty() {
                            return Ok(());
                        }
                        self.wait_for_job_end().await;
                    }
                    self.start_jobs(leased);
                }
                Err(error) if error.problem().is_some_and(|problem| problem.status < 500) && !error.is_retryable() => {
                    return Err(error);
                }
                Err(error) => {
                    self.log_unavailable(&error);
                    let pause = error.retry_after().unwrap_or_else(|| backoff.next_delay());
                    let _ = tokio::time::timeout(pause, wait_for_close(&mut closing)).await;
                    unanswered_request = Some(request);
                }
            }
        }
    }

    fn is_running(&self) -> bool {
        *self.phases.borrow() == WorkerPhase::Running
    }

    fn start_jobs(&mut self, leased: Vec<LeasedJob>) {
        let received_at = Instant::now();
        for job in leased {
            self.jobs.spawn(self.job_runner.clone().run_job(job, received_at, self.phases.clone()));
        }
    }

    async fn wait_for_job_end(&mut self) {
        let mut closing = self.phases.clone();
        tokio::select! {
            _ = self.jobs.join_next() => {}
            () = wait_for_close(&mut closing) => {}
        }
    }

    /// Returns jobs that a canceled lease call may have leased, so that they need not wait for their lease to
    /// expire.
    async fn recall_and_yield(&self, request: LeaseRequest) {
        let body = LeaseBody { wait_ms: Some(0), again: Some(true), ..request.body };
        let request = LeaseRequest { body, ..request };
        let recall = async {
            let mut backoff = Backoff::default();
            let leased = loop {
                match self.job_runner.client.lease_once(&request).await {
                    Ok(leased) => break leased,
                    Err(error) if error.is_retryable() => tokio::time::sleep(backoff.next_delay()).await,
                    Err(_) => return,
                }
            };
            for job in leased {
                if let Err(error) = self.job_runner.reporter.submit(Report::for_job(&job, ReportKind::Yield)).await {
                    tracing::warn!(execution = job.id, %error, "yielding the job failed");
                }
            }
        };
        // The shutdown must not wait long for an unresponsive server.
        let _ = tokio::time::timeout(RECALL_TIMEOUT, recall).await;
    }

    fn log_unavailable(&mut self, error: &ClientError) {
        if !std::mem::replace(&mut self.was_unavailable, true) {
            tracing::warn!(%error, "leasing jobs failed; retrying");
        }
    }

    fn log_available(&mut self) {
        if std::mem::replace(&mut self.was_unavailable, false) {
            tracing::info!("leasing jobs works again");
        }
    }
}
