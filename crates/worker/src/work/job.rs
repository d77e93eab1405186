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
use crate::reports::{Report, Verdict};
use crate::shape::{Leased, Record, Reported};
use crate::wire::Backoff;
use crate::work::failure::{BAD_PAYLOAD, Failure};
use crate::work::reporter::Reporter;

/// After the lease is gone by our clock, the server's may be a little behind.
const SLACK: Duration = Duration::from_secs(2);

/// Why a handler is to come to an end; the later ones outweigh the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stopping {
    /// The worker shuts down. What ends within its grace is still reported.
    Closing,
    /// The job's lifecycle says so: it was cancelled, perhaps.
    Asked,
    /// The lease is lost, or will be in a moment: another may have the job. Whatever is still done comes to nothing.
    Lost,
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
    pub(crate) held: Arc<Held>,
    pub(crate) stop: watch::Receiver<Option<Stopping>>,
}

/// The commit was taken: the effect has landed, once and for all.
#[derive(Clone, Debug)]
pub struct Committed {
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
            Some(payload) => payload.read(),
            None => serde_json::from_value(Json::Null),
        };
        read.map_err(|error| Failure::terminal(BAD_PAYLOAD, format!("the payload is not as expected: {error}")))
    }

    /// Whether the job is to be given up.
    pub fn should_stop(&self) -> bool {
        self.stop.borrow().is_some()
    }

    /// Why, if it is.
    pub fn stopping(&self) -> Option<Stopping> {
        *self.stop.borrow()
    }

    /// Waits until it is to be given up. A handler that does nothing about it is dropped when its time is over.
    pub async fn stopped(&self) -> Stopping {
        let mut stop = self.stop.clone();
        let stopped = stop.wait_for(Option::is_some).await.ok().and_then(|stopped| *stopped);
        match stopped {
            Some(why) => why,
            // Nobody is left who could say so.
            None => std::future::pending().await,
        }
    }

    /// Commit what was prepared, and stay to tidy up. From here on the work is done and is not run again; when the handler
    /// returns, the job is finished, whatever it returns. Tried until it is taken, or refused, or the lease is surely gone.
    pub async fn commit(&self, result: &impl Serialize) -> Result<Committed, ClientError> {
        let result = Payload::json(result).map_err(|error| ClientError::BadCall(error.to_string()))?;
        let reported = self.held.report(Verdict::Commit { result: Some(result), finish: false }, || true).await?;
        self.held.committed.store(true, Ordering::SeqCst);
        Ok(Committed { record: reported.record })
    }
}

/// A lease, and the way to report on it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) execution: Arc<str>,
    pub(crate) token: u64,
    pub(crate) length: Duration,
    pub(crate) traceparent: Option<Arc<str>>,
    pub(crate) reporter: Reporter,
    pub(crate) committed: AtomicBool,
    /// When the lease is surely gone, by our own clock.
    gone: watch::Sender<Instant>,
}

impl Held {
    pub(crate) fn new(leased: &Leased, reporter: Reporter, received: Instant) -> Self {
        let length = leased.length();
        Self {
            execution: leased.id.as_str().into(),
            token: leased.token,
            length,
            traceparent: leased.traceparent.as_deref().map(Into::into),
            reporter,
            committed: AtomicBool::new(false),
            gone: watch::Sender::new(received + leased.left()),
        }
    }

    pub(crate) fn gone(&self) -> Instant {
        *self.gone.borrow()
    }

    /// Tells each time that the lease lasts longer.
    pub(crate) fn watch(&self) -> watch::Receiver<Instant> {
        self.gone.subscribe()
    }

    /// A heartbeat that was sent then has been taken.
    pub(crate) fn prolong(&self, sent: Instant) {
        self.gone.send_replace(sent + self.length);
    }

    pub(crate) fn is_committed(&self) -> bool {
        self.committed.load(Ordering::SeqCst)
    }

    pub(crate) fn about(&self, verdict: Verdict) -> Report {
        let traceparent = self.traceparent.clone();
        Report { execution: self.execution.to_string(), token: self.token, verdict, traceparent }
    }

    /// Until it is taken or refused, as long as the lease may last and the worker has time. The same report twice does no harm:
    /// its token sees to that.
    pub(crate) async fn report(
        &self,
        verdict: Verdict,
        mut may_go_on: impl FnMut() -> bool,
    ) -> Result<Reported, ClientError> {
        let mut backoff = Backoff::default();
        loop {
            let error = match self.reporter.file(self.about(verdict.clone())).await {
                Ok(reported) => return Ok(reported),
                Err(error) => error,
            };
            if !error.may_pass() || Instant::now() > self.gone() + SLACK || !may_go_on() {
                return Err(error);
            }
            let pause = error.retry_after().unwrap_or_else(|| backoff.pause());
            tracing::debug!(execution = &*self.execution, report = verdict.name(), %error, "reporting again");
            tokio::time::sleep(pause.min(self.length / 4)).await;
        }
    }
}
