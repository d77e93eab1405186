//! One job from its lease to its report.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

use crate::client::Client;
use crate::error::ClientError;
use crate::payload::Payload;
use crate::reports::ReportKind;
use crate::transport::Backoff;
use crate::types::LeasedJob;
use crate::work::failure::{BAD_RESULT_CODE, EXCEPTION_CODE, Failure, PAYLOAD_UNAVAILABLE_CODE, SIZE_EXCEEDED_CODE};
use crate::work::heartbeat::{Heartbeat, HeartbeatResult};
use crate::work::job::{HeldLease, Job, StopReason};
use crate::work::reporter::Reporter;
use crate::work::worker::{WorkerPhase, wait_for_close};

/// A handler hears that its lease is about to go by this part of it earlier, or by a second.
const EXPIRY_WARNING_DIVISOR: u32 = 6;
const MAX_EXPIRY_WARNING: Duration = Duration::from_secs(1);

/// Tries of a report when the worker's time is over; then the lease must run out.
const MAX_FINAL_REPORT_ATTEMPTS: u32 = 5;

/// What a handler leaves: a result to commit, or why there is none.
pub(crate) type HandlerResult = Result<Option<Payload>, Failure>;

/// A handler, whatever its types were.
pub(crate) type Handler = Arc<dyn Fn(Job) -> Pin<Box<dyn Future<Output = HandlerResult> + Send>> + Send + Sync>;

/// Whoever keeps a job, with all it needs for that.
#[derive(Clone)]
pub(crate) struct JobRunner {
    pub(crate) client: Client,
    pub(crate) reporter: Reporter,
    pub(crate) handler: Handler,
    /// As it was asked for: a heartbeat that does not say so gets the lifecycle's own.
    pub(crate) lease: Option<Duration>,
    /// How long a handler may go on when it was asked to stop.
    pub(crate) stop_grace: Duration,
}

/// How it came to an end.
enum JobEnd {
    Report(ReportKind),
    /// There is nothing to report, and nobody to report to.
    LeaseLost(String),
}

/// What happened next to a job that runs.
enum JobEvent {
    HandlerEnded(Result<HandlerResult, JoinError>),
    HeartbeatAnswered(HeartbeatResult),
    PhaseChanged,
    /// The lease is about to run out.
    ExpiryNear,
    LeaseExpired,
    /// Asked to stop, and still there.
    GraceOver,
}

/// Stops its task when it is dropped, however that comes.
struct AbortOnDrop(JoinHandle<HandlerResult>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl JobRunner {
    pub(crate) async fn run_job(
        self,
        leased: LeasedJob,
        received_at: Instant,
        mut phases: watch::Receiver<WorkerPhase>,
    ) {
        let held = Arc::new(HeldLease::new(&leased, self.reporter.clone(), received_at));
        // It goes on until the report is made: one that is slow, or is turned away for now, must not cost the lease.
        let mut heartbeat = Heartbeat::new(&held, self.lease);
        let end = match self.prepare(&leased, &held, &mut heartbeat, &mut phases).await {
            Ok(payload) => self.run_handler(leased, payload, &held, &mut heartbeat, &mut phases).await,
            Err(end) => end,
        };
        match end {
            JobEnd::Report(verdict) => submit_report(&held, verdict, &phases).await,
            JobEnd::LeaseLost(why) => {
                tracing::warn!(execution = &*held.execution, why, "the lease is lost: the work was dropped");
            }
        }
    }

    /// All that comes before the handler. A job that has not begun when the worker closes is given back.
    async fn prepare(
        &self,
        leased: &LeasedJob,
        held: &HeldLease,
        heartbeat: &mut Heartbeat,
        phases: &mut watch::Receiver<WorkerPhase>,
    ) -> Result<Option<Payload>, JobEnd> {
        let preparation = async {
            // Found again by its key, long after it began: whether it lasts must be known before anything is started.
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
                tracing::warn!(execution = &*held.execution, %error, "cannot fetch the payload");
                JobEnd::Report(report_of_payload_error(&error))
            })
        };
        tokio::select! {
            biased;
            () = wait_for_close(phases) => Err(JobEnd::Report(ReportKind::Yield)),
            prepared = preparation => prepared,
        }
    }

    async fn load_payload(&self, leased: &LeasedJob, held: &HeldLease) -> Result<Option<Payload>, ClientError> {
        if !leased.needs_payload_fetch() {
            return Ok(leased.payload());
        }
        // Half of the lease is enough for any payload, or the next attempt may have better luck.
        let timeout = held.lease_duration / 2;
        match tokio::time::timeout(timeout, self.fetch_payload(leased)).await {
            Ok(fetched) => fetched.map(Some),
            Err(_) => Err(ClientError::TimedOut { server: self.client.server_url(), after: timeout }),
        }
    }

    /// The bytes of the lease's hash, and no others: whatever stands between the server's disk and here may have harmed them.
    async fn fetch_payload(&self, leased: &LeasedJob) -> Result<Payload, ClientError> {
        let mut backoff = Backoff::default();
        for is_last in [false, true] {
            let Some(bytes) = self.client.fetch_payload_bytes(leased.record.id).await? else {
                return Err(self.client.invalid_response(&"the job has a payload, and it is not there"));
            };
            if leased.record.payload.as_ref().is_none_or(|mark| mark.matches(&bytes)) {
                return Ok(Payload::from_stored_bytes(bytes));
            }
            if !is_last {
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
        Err(self.client.invalid_response(&"the payload is not that of the job's hash"))
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
            record: Arc::new(leased.record),
            execution: Arc::clone(&held.execution),
            token: held.token,
            traceparent: leased.traceparent.map(Into::into),
            payload,
            held_lease: Arc::clone(held),
            stop_receiver,
        };
        let handler = Arc::clone(&self.handler);
        // In a task of its own, and called there: one that panics has its failure reported.
        let mut task = AbortOnDrop(tokio::spawn(async move { handler(job).await }));
        let warning = (held.lease_duration / EXPIRY_WARNING_DIVISOR).min(MAX_EXPIRY_WARNING);
        let mut grace_deadline = None;
        loop {
            let is_warned = *stop_sender.borrow() == Some(StopReason::LeaseLost);
            let wake_at = if is_warned { held.expires_at() } else { held.expires_at() - warning };
            let next = tokio::select! {
                biased;
                ended = &mut task.0 => JobEvent::HandlerEnded(ended),
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
                    WorkerPhase::Running => {}
                    WorkerPhase::Closing => {
                        set_stop_reason(&stop_sender, StopReason::Closing);
                    }
                    WorkerPhase::GraceOver => return JobEnd::Report(yield_or_finish(held)),
                },
                JobEvent::ExpiryNear => {
                    set_stop_reason(&stop_sender, StopReason::LeaseLost);
                }
                JobEvent::LeaseExpired => return JobEnd::LeaseLost("no heartbeat was answered in time".to_owned()),
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
        // As when a process dies: the next attempt may go better, and the lifecycle bounds how many there are. What the panic says
        // may quote a payload, so the record does not keep it.
        Err(_) => ReportKind::Fail(Failure::retryable(EXCEPTION_CODE, "the handler panicked").sanitized()),
    }
}

/// A server that is away or busy is no fault of the job's: it is given back. What is not there, is harmed, or breaks off each time
/// would be so for whoever has it next, too: that is a failure, which the lifecycle's patience bounds.
fn report_of_payload_error(error: &ClientError) -> ReportKind {
    let is_temporary = match error {
        ClientError::Unreachable { not_sent: unheard, .. } => *unheard,
        ClientError::Problem(_) => error.is_retryable(),
        _ => false,
    };
    if is_temporary {
        return ReportKind::Yield;
    }
    ReportKind::Fail(Failure::retryable(PAYLOAD_UNAVAILABLE_CODE, error.to_string()).sanitized())
}

/// The worse reason stays.
fn set_stop_reason(stop_sender: &watch::Sender<Option<StopReason>>, reason: StopReason) {
    stop_sender.send_if_modified(|current| {
        let is_worse = *current < Some(reason);
        if is_worse {
            *current = Some(reason);
        }
        is_worse
    });
}

/// What is committed is not given back.
fn yield_or_finish(held: &HeldLease) -> ReportKind {
    if held.is_committed() { ReportKind::Finish } else { ReportKind::Yield }
}

/// Never, where there is no such time.
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
        let Err(error) = held.report_with_retries(kind.clone(), &mut should_retry).await else {
            tracing::info!(execution, report = kind.name(), "reported");
            return;
        };
        let report = kind.name();
        if let Some(fallback) = fallback_report(&kind, &error) {
            tracing::warn!(execution, report, %error, "will never be taken: the job fails");
            kind = fallback;
        } else if matches!(error.code(), Some("already_committed" | "lease_lost")) {
            // Somebody else had it, too, and was quicker. Nothing is wrong.
            tracing::info!(execution, report, %error, "not ours any more");
            return;
        } else {
            tracing::warn!(execution, report, %error, "the report was not taken");
            return;
        }
    }
}

/// What to report where a report will never be taken: the job fails, which would else run until its lease ends, and again.
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
