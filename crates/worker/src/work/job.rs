//! A job, as a handler gets it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::ClientError;
use crate::payload::Payload;
use crate::reports::{Report, ReportKind};
use crate::transport::Backoff;
use crate::types::{LeasedJob, Record, ReportResult};
use crate::work::failure::{BAD_PAYLOAD_CODE, Failure};
use crate::work::reporter::Reporter;

/// After the lease is gone by our clock, the server's may be a little behind.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(2);

/// Why a handler is to come to an end; the later ones outweigh the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopReason {
    /// The worker shuts down. What ends within its grace is still reported.
    Closing,
    /// The job's lifecycle says so: it was cancelled, perhaps.
    Requested,
    /// The lease is lost, or will be in a moment: another may have the job. Whatever is still done comes to nothing.
    LeaseLost,
}

/// A job in a handler's hands. Clones are of the same job.
#[derive(Clone, Debug)]
pub struct Job {
    pub record: Arc<Record>,
    /// The execution's id.
    pub execution: Arc<str>,
    /// Fences out whoever had the job before. The same as the attempt.
    pub token: u64,
    /// W3C trace context, where the one who made the job brought some.
    pub traceparent: Option<Arc<str>>,
    pub(crate) payload: Option<Payload>,
    pub(crate) held_lease: Arc<HeldLease>,
    pub(crate) stop_receiver: watch::Receiver<Option<StopReason>>,
}

/// The commit was taken: the effect has landed, once and for all.
#[derive(Clone, Debug)]
pub struct CommitResult {
    /// The record as the commit left it, where the server shows it.
    pub record: Option<Record>,
}

impl Job {
    /// A field's value; null where it is not set or there is none of this name.
    pub fn field(&self, name: &str) -> Json {
        self.record.field(name)
    }

    pub fn attempt(&self) -> u64 {
        self.token
    }

    pub fn payload(&self) -> Option<&Payload> {
        self.payload.as_ref()
    }

    /// The payload with a type; none at all reads as null. One of another shape fails the job for good: it will not change.
    pub fn input<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let read = match &self.payload {
            Some(payload) => payload.parse(),
            None => serde_json::from_value(Json::Null),
        };
        read.map_err(|error| Failure::terminal(BAD_PAYLOAD_CODE, format!("the payload is not as expected: {error}")))
    }

    /// Whether the job is to be given up.
    pub fn should_stop(&self) -> bool {
        self.stop_receiver.borrow().is_some()
    }

    /// Why, if it is.
    pub fn stop_reason(&self) -> Option<StopReason> {
        *self.stop_receiver.borrow()
    }

    /// Waits until it is to be given up. A handler that does nothing about it is dropped when its time is over.
    pub async fn wait_for_stop(&self) -> StopReason {
        let mut stop = self.stop_receiver.clone();
        let stopped = stop.wait_for(Option::is_some).await.ok().and_then(|stopped| *stopped);
        match stopped {
            Some(reason) => reason,
            // Nobody is left who could say so.
            None => std::future::pending().await,
        }
    }

    /// Commit what was prepared, and stay to tidy up. From here on the work is done and is not run again; when the handler
    /// returns, the job is finished, whatever it returns. Tried until it is taken, or refused, or the lease is surely gone.
    pub async fn commit(&self, result: &impl Serialize) -> Result<CommitResult, ClientError> {
        let result = Payload::json(result).map_err(|error| ClientError::InvalidRequest(error.to_string()))?;
        let reported = self
            .held_lease
            .report_with_retries(ReportKind::Commit { result: Some(result), finish: false }, || true)
            .await?;
        self.held_lease.has_committed.store(true, Ordering::SeqCst);
        Ok(CommitResult { record: reported.record })
    }
}

/// A lease, and the way to report on it.
#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(crate) execution: Arc<str>,
    pub(crate) token: u64,
    pub(crate) lease_duration: Duration,
    pub(crate) traceparent: Option<Arc<str>>,
    pub(crate) reporter: Reporter,
    pub(crate) has_committed: AtomicBool,
    /// When the lease is surely gone, by our own clock.
    expires_at: watch::Sender<Instant>,
}

impl HeldLease {
    pub(crate) fn new(leased: &LeasedJob, reporter: Reporter, received_at: Instant) -> Self {
        let lease_duration = leased.lease_duration();
        Self {
            execution: leased.id.as_str().into(),
            token: leased.token,
            lease_duration,
            traceparent: leased.traceparent.as_deref().map(Into::into),
            reporter,
            has_committed: AtomicBool::new(false),
            expires_at: watch::Sender::new(received_at + leased.remaining_lease()),
        }
    }

    pub(crate) fn expires_at(&self) -> Instant {
        *self.expires_at.borrow()
    }

    /// Tells each time that the lease lasts longer.
    pub(crate) fn subscribe_expiry(&self) -> watch::Receiver<Instant> {
        self.expires_at.subscribe()
    }

    /// A heartbeat that was sent then has been taken.
    pub(crate) fn extend(&self, heartbeat_sent_at: Instant) {
        self.expires_at.send_replace(heartbeat_sent_at + self.lease_duration);
    }

    pub(crate) fn is_committed(&self) -> bool {
        self.has_committed.load(Ordering::SeqCst)
    }

    pub(crate) fn build_report(&self, kind: ReportKind) -> Report {
        let traceparent = self.traceparent.clone();
        Report { execution: self.execution.to_string(), token: self.token, kind, traceparent }
    }

    /// Until it is taken or refused, as long as the lease may last and the worker has time. The same report twice does no harm:
    /// its token sees to that.
    pub(crate) async fn report_with_retries(
        &self,
        kind: ReportKind,
        mut should_retry: impl FnMut() -> bool,
    ) -> Result<ReportResult, ClientError> {
        let mut backoff = Backoff::default();
        loop {
            let error = match self.reporter.submit(self.build_report(kind.clone())).await {
                Ok(reported) => return Ok(reported),
                Err(error) => error,
            };
            if !error.is_retryable() || Instant::now() > self.expires_at() + MAX_CLOCK_SKEW || !should_retry() {
                return Err(error);
            }
            let delay = error.retry_after().unwrap_or_else(|| backoff.next_delay());
            tracing::debug!(execution = &*self.execution, report = kind.name(), %error, "reporting again");
            tokio::time::sleep(delay.min(self.lease_duration / 4)).await;
        }
    }
}
