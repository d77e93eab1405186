//! Runs one job from its lease to its report.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::client::Client;
use crate::error::ClientError;
use crate::payload::Payload;
use crate::reports::ReportKind;
use crate::transport::Backoff;
use crate::types::{LeasedJob, matches_payload};
use crate::work::failure::{BAD_RESULT_CODE, EXCEPTION_CODE, Failure, PAYLOAD_UNAVAILABLE_CODE, SIZE_EXCEEDED_CODE};
use crate::work::heartbeat::{Heartbeat, HeartbeatResult};
use crate::work::job::{HeldLease, Job, StopReason};
use crate::work::reporter::Reporter;
use crate::work::worker::WorkerPhase;

/// A handler is warned 1/6 of the lease before it expires, but at most one second before.
const EXPIRY_WARNING_DIVISOR: u32 = 6;
const MAX_EXPIRY_WARNING: Duration = Duration::from_secs(1);

/// Attempts of a report after the grace period. Then the lease has to expire.
const MAX_FINAL_REPORT_ATTEMPTS: u32 = 5;

/// A handler's result to commit, or its failure.
pub(crate) type HandlerResult = Result<Option<Payload>, Failure>;

/// A handler with its types erased.
pub(crate) type Handler = Arc<dyn Fn(Job) -> Pin<Box<dyn Future<Output = HandlerResult> + Send>> + Send + Sync>;

/// Runs a job.
#[derive(Clone)]
pub(crate) struct JobRunner {
    pub(crate) client: Client,
    pub(crate) reporter: Reporter,
    pub(crate) handler: Handler,
    /// Requested length of the lease. Heartbeats repeat it; otherwise the server uses that of the lifecycle.
    pub(crate) lease: Option<Duration>,
    /// How long a handler may continue after it was asked to stop.
    pub(crate) stop_grace: Duration,
}

/// How a job ended.
enum JobEnd {
    Report(ReportKind),
    /// The lease is lost, so no report is sent.
    LeaseLost(String),
}

/// An event while a handler runs.
enum JobEvent {
    HandlerEnded(Result<HandlerResult, JoinError>),
    HeartbeatAnswered(HeartbeatResult),
    PhaseChanged,
    /// The lease is about to expire.
    ExpiryNear,
    LeaseExpired,
    /// The grace period after a stop request is over.
    GraceOver,
}

impl JobRunner {
    pub(crate) async fn run_job(
        self,
        leased: LeasedJob,
        received_at: Instant,
        mut phases: watch::Receiver<WorkerPhase>,
    ) {
        let held = Arc::new(HeldLease::new(&leased, self.reporter.clone(), received_at));
        // Heartbeats continue until the report is accepted, so that a slow or retried report does not lose the
        // lease.
        let mut heartbeat = Heartbeat::new(&held, self.lease);
        let end = match self.prepare(&leased, &held, &mut heartbeat, &mut phases).await {
            Ok(payload) => self.run_handler(leased, payload, &held, &mut heartbeat, &mut phases).await,
            Err(end) => end,
        };
        match end {
            JobEnd::Report(verdict) => submit_report(&held, verdict, &phases).await,
            JobEnd::LeaseLost(reason) => {
                tracing::warn!(execution = &*held.execution, reason, "lease was lost; the work was dropped");
            }
        }
    }

    /// Prepares the handler's input. If the worker closes before the handler starts, the job is returned.
    async fn prepare(
        &self,
        leased: &LeasedJob,
        held: &HeldLease,
        heartbeat: &mut Heartbeat,
        phases: &mut watch::Receiver<WorkerPhase>,
    ) -> Result<Option<Payload>, JobEnd> {
        let preparation = async {
            // A lease that was recalled by its idempotency key may be about to expire. Extend it before the handler
            // starts.
            if heartbeat.is_overdue {
                match heartbeat.next_result().await {
                    HeartbeatResult::Extended { stop_requested: false } => {}
                    HeartbeatResult::Extended { stop_requested: true } => {
                        return Err(JobEnd::Report(ReportKind::Yield));
                    }
                    HeartbeatResult::Rejected(error) => return Err(JobEnd::LeaseLost(error.to_string())),
                }
            }
            self.load_payload(leased, held).await.map_err(|error| {
                tracing::warn!(execution = &*held.execution, %error, "fetching the payload failed");
                JobEnd::Report(report_of_payload_error(&error))
            })
        };
        tokio::select! {
            biased;
            _ = phases.wait_for(|phase| *phase >= WorkerPhase::Stopping) => Err(JobEnd::Report(ReportKind::Yield)),
            prepared = preparation => prepared,
        }
    }

    async fn load_payload(&self, leased: &LeasedJob, held: &HeldLease) -> Result<Option<Payload>, ClientError> {
        if !leased.needs_payload_fetch() {
            return Ok(leased.payload());
        }
        // Half of the lease leaves time to work. If the download takes longer, another attempt may be faster.
        let timeout = held.lease_duration / 2;
        match tokio::time::timeout(timeout, self.fetch_payload(leased)).await {
            Ok(fetched) => fetched.map(Some),
            Err(_) => Err(ClientError::TimedOut { server: self.client.server_url(), after: timeout }),
        }
    }

    /// Downloads the payload and verifies its hash, because bytes may be corrupted on the way.
    async fn fetch_payload(&self, leased: &LeasedJob) -> Result<Payload, ClientError> {
        let mut backoff = Backoff::default();
        for is_last in [false, true] {
            let Some(bytes) = self.client.fetch_payload_bytes(leased.record.id).await? else {
                return Err(self.client.invalid_response(&"the payload of the job is missing"));
            };
            if leased.record.payload.as_ref().is_none_or(|payload| matches_payload(payload, &bytes)) {
                return Ok(Payload::from_stored_bytes(bytes));
            }
            if !is_last {
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
        Err(self.client.invalid_response(&"the payload does not match its hash"))
    }

    async fn run_handler(
        &self,
        leased: LeasedJob,
        payload: Option<Payload>,
        held: &Arc<HeldLease>,
        heartbeat: &mut Heartbeat,
        phases: &mut watch::Receiver<WorkerPhase>,
    ) -> JobEnd {
        let (stop_sender, stop_receiver) = watch::channel(None);
        let job = Job {
            execution: Arc::clone(&held.execution),
            token: held.token,
            traceparent: leased.traceparent.as_deref().map(Into::into),
            record: Arc::new(leased.into_record()),
            payload,
            held_lease: Arc::clone(held),
            stop_receiver,
        };
        let handler = Arc::clone(&self.handler);
        // The handler is called within its own task, so that a panic becomes a failure report. The set aborts the task
        // when dropped.
        let mut task = JoinSet::new();
        task.spawn(async move { handler(job).await });
        let warning = (held.lease_duration / EXPIRY_WARNING_DIVISOR).min(MAX_EXPIRY_WARNING);
        let mut grace_deadline = None;
        loop {
            let is_warned = *stop_sender.borrow() == Some(StopReason::LeaseLost);
            let wake_at = if is_warned { held.expires_at() } else { held.expires_at() - warning };
            let next = tokio::select! {
                biased;
                Some(ended) = task.join_next() => JobEvent::HandlerEnded(ended),
                result = heartbeat.next_result() => JobEvent::HeartbeatAnswered(result),
                changed = phases.changed() => if changed.is_ok() { JobEvent::PhaseChanged } else { JobEvent::GraceOver },
                () = tokio::time::sleep_until(wake_at) => if is_warned { JobEvent::LeaseExpired } else { JobEvent::ExpiryNear },
                () = sleep_until_deadline(grace_deadline) => JobEvent::GraceOver,
            };
            match next {
                JobEvent::HandlerEnded(ended) => return JobEnd::Report(report_of_result(held, ended)),
                JobEvent::HeartbeatAnswered(HeartbeatResult::Extended { stop_requested: says_stop }) => {
                    if says_stop && grace_deadline.is_none() {
                        grace_deadline = Some(Instant::now() + self.stop_grace);
                        set_stop_reason(&stop_sender, StopReason::Requested);
                    }
                }
                JobEvent::HeartbeatAnswered(HeartbeatResult::Rejected(error)) => {
                    set_stop_reason(&stop_sender, StopReason::LeaseLost);
                    return JobEnd::LeaseLost(error.to_string());
                }
                JobEvent::PhaseChanged => match *phases.borrow_and_update() {
                    WorkerPhase::Running | WorkerPhase::Closing => {}
                    WorkerPhase::Stopping => {
                        set_stop_reason(&stop_sender, StopReason::Closing);
                    }
                    WorkerPhase::GraceOver => return JobEnd::Report(yield_or_finish(held)),
                },
                JobEvent::ExpiryNear => {
                    set_stop_reason(&stop_sender, StopReason::LeaseLost);
                }
                JobEvent::LeaseExpired => {
                    return JobEnd::LeaseLost("no heartbeat succeeded before the lease expired".to_owned());
                }
                JobEvent::GraceOver => return JobEnd::Report(yield_or_finish(held)),
            }
        }
    }
}

fn report_of_result(held: &HeldLease, ended: Result<HandlerResult, JoinError>) -> ReportKind {
    match ended {
        _ if held.is_committed() => ReportKind::Finish,
        Ok(Ok(result)) => ReportKind::Commit { result, finish: true },
        Ok(Err(failure)) if failure.is_yield() => ReportKind::Yield,
        Ok(Err(failure)) => ReportKind::Fail(failure.sanitized()),
        // Like the death of a process: another attempt may succeed, and the lifecycle limits the attempts. The
        // panic message may quote a payload, so it is not stored.
        Err(_) => ReportKind::Fail(Failure::retryable(EXCEPTION_CODE, "the handler panicked").sanitized()),
    }
}

/// If the server is unavailable or busy, the job is returned. If the payload is missing or corrupt, or its download
/// always breaks, other workers would fail, too, so the job fails and the lifecycle limits the retries.
fn report_of_payload_error(error: &ClientError) -> ReportKind {
    let is_temporary = match error {
        ClientError::Unreachable { not_sent, .. } => *not_sent,
        ClientError::Problem(_) => error.is_retryable(),
        _ => false,
    };
    if is_temporary {
        return ReportKind::Yield;
    }
    ReportKind::Fail(Failure::retryable(PAYLOAD_UNAVAILABLE_CODE, error.to_string()).sanitized())
}

/// Sets the reason unless a more severe one is set.
fn set_stop_reason(stop_sender: &watch::Sender<Option<StopReason>>, reason: StopReason) {
    stop_sender.send_if_modified(|current| {
        let is_worse = *current < Some(reason);
        if is_worse {
            *current = Some(reason);
        }
        is_worse
    });
}

/// A committed job is finished, not returned.
fn yield_or_finish(held: &HeldLease) -> ReportKind {
    if held.is_committed() { ReportKind::Finish } else { ReportKind::Yield }
}

/// Sleeps until the deadline, or forever if there is none.
pub(crate) async fn sleep_until_deadline(deadline: Option<Instant>) {
    match deadline {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn submit_report(held: &HeldLease, mut kind: ReportKind, phases: &watch::Receiver<WorkerPhase>) {
    let mut final_attempts = MAX_FINAL_REPORT_ATTEMPTS;
    let mut should_retry = || {
        if *phases.borrow() == WorkerPhase::GraceOver {
            final_attempts = final_attempts.saturating_sub(1);
        }
        final_attempts > 0
    };
    let execution = &*held.execution;
    for _ in 0..2 {
        let Err(error) = held.report_with_retries(&kind, &mut should_retry).await else {
            tracing::info!(execution, report = kind.name(), "report was accepted");
            return;
        };
        let report = kind.name();
        if let Some(fallback) = fallback_report(&kind, &error) {
            tracing::warn!(execution, report, %error, "server will never accept the report; the job fails");
            kind = fallback;
        } else if matches!(error.code(), Some("already_committed" | "lease_lost")) {
            // Expected with at-least-once execution.
            tracing::info!(execution, report, %error, "report was refused: the lease is lost, or another execution has committed");
            return;
        } else {
            tracing::warn!(execution, report, %error, "report was rejected");
            return;
        }
    }
}

/// Returns the failure to report if the server will never accept a commit. Without it, the job would run again
/// after each lease.
fn fallback_report(kind: &ReportKind, error: &ClientError) -> Option<ReportKind> {
    if !matches!(kind, ReportKind::Commit { .. }) {
        return None;
    }
    let failure = match error {
        ClientError::Problem(problem) => match problem.status {
            413 => Failure::terminal(SIZE_EXCEEDED_CODE, problem.message()),
            400 | 422 => Failure::terminal(BAD_RESULT_CODE, problem.message()),
            500.. if !error.is_retryable() => Failure::retryable(&problem.code, problem.message()),
            _ => return None,
        },
        ClientError::InvalidRequest(reason) => Failure::terminal(BAD_RESULT_CODE, reason),
        _ => return None,
    };
    Some(ReportKind::Fail(failure.sanitized()))
}
