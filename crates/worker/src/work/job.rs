//! The job that a handler gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onceward_api_types::{Record, ReportResult};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::ClientError;
use crate::payload::Payload;
use crate::reports::{Report, ReportKind};
use crate::transport::Backoff;
use crate::types::LeasedJob;
use crate::work::failure::{BAD_PAYLOAD_CODE, Failure};
use crate::work::reporter::Reporter;

/// Keep reporting for this time after the lease expired by the local clock, because the server's clock may be
/// behind.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(2);

/// Why a handler should stop. Later variants take precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopReason {
    /// The worker shuts down. Results within its grace period are still reported.
    Closing,
    /// The lifecycle asks for it, for example because the job was canceled.
    Requested,
    /// The lease is lost or about to expire, so another worker may get the job. Results will be refused.
    LeaseLost,
}

/// A leased job. Clones refer to the same job.
#[derive(Clone, Debug)]
pub struct Job {
    pub record: Arc<Record>,
    /// Id of the execution.
    pub execution: Arc<str>,
    /// Fencing token that excludes earlier holders. Equal to the attempt.
    pub token: u64,
    /// W3C trace context, if the creator of the job sent one.
    pub traceparent: Option<Arc<str>>,
    pub(crate) payload: Option<Payload>,
    pub(crate) held_lease: Arc<HeldLease>,
    pub(crate) stop_receiver: watch::Receiver<Option<StopReason>>,
}

/// The effect is committed.
#[derive(Clone, Debug)]
pub struct CommitResult {
    /// The record after the commit, if the caller may see it and the response had space for it.
    pub record: Option<Record>,
}

impl Job {
    /// Returns a field's value; null if it is not set or does not exist.
    pub fn field(&self, name: &str) -> Json {
        self.record.field(name)
    }

    pub fn attempt(&self) -> u64 {
        self.token
    }

    pub fn payload(&self) -> Option<&Payload> {
        self.payload.as_ref()
    }

    /// Parses the payload; a missing one is null. If the type does not match, the job fails without retries,
    /// because the payload will not change.
    pub fn input<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let read = match &self.payload {
            Some(payload) => payload.parse(),
            None => serde_json::from_value(Json::Null),
        };
        read.map_err(|error| {
            Failure::terminal(BAD_PAYLOAD_CODE, format!("the payload does not match the expected type: {error}"))
        })
    }

    /// Returns whether the handler should stop.
    pub fn should_stop(&self) -> bool {
        self.stop_receiver.borrow().is_some()
    }

    /// Returns why the handler should stop, if it should.
    pub fn stop_reason(&self) -> Option<StopReason> {
        *self.stop_receiver.borrow()
    }

    /// Waits until the handler should stop. A handler that does not stop is dropped after the grace period.
    pub async fn wait_for_stop(&self) -> StopReason {
        let mut stop = self.stop_receiver.clone();
        let stopped = stop.wait_for(Option::is_some).await.ok().and_then(|stopped| *stopped);
        match stopped {
            Some(reason) => reason,
            // The runner is gone, so no reason will arrive.
            None => std::future::pending().await,
        }
    }

    /// Commits the result and lets the handler clean up. From here on the job is not run again; when the handler
    /// returns, whatever it returns, the job is finished. Retries until the server accepts or refuses the commit,
    /// or the lease has expired.
    pub async fn commit(&self, result: &impl Serialize) -> Result<CommitResult, ClientError> {
        let result = Payload::json(result).map_err(|error| ClientError::InvalidRequest(error.to_string()))?;
        let reported = self
            .held_lease
            .report_with_retries(&ReportKind::Commit { result: Some(result), finish: false }, || true)
            .await?;
        self.held_lease.has_committed.store(true, Ordering::SeqCst);
        Ok(CommitResult { record: reported.record })
    }
}

/// A held lease, and the way to report on it.
#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(crate) execution: Arc<str>,
    pub(crate) token: u64,
    pub(crate) lease_duration: Duration,
    pub(crate) traceparent: Option<Arc<str>>,
    pub(crate) reporter: Reporter,
    pub(crate) has_committed: AtomicBool,
    /// When the lease has certainly expired, by the local clock.
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

    /// Notifies of each extension of the lease.
    pub(crate) fn subscribe_expiry(&self) -> watch::Receiver<Instant> {
        self.expires_at.subscribe()
    }

    /// Extends the lease after an accepted heartbeat, counted from when it was sent.
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

    /// Sends a report until the server accepts or refuses it, the lease has expired, or `should_retry` returns
    /// false. The fencing token makes repeats safe.
    pub(crate) async fn report_with_retries(
        &self,
        kind: &ReportKind,
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
            tracing::debug!(execution = &*self.execution, report = kind.name(), %error, "retrying report");
            tokio::time::sleep(delay.min(self.lease_duration / 4)).await;
        }
    }
}
