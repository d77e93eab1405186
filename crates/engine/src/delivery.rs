//! Messages to the outside: what lifecycles `start_deliveries` is posted, in order for each record, until it is acknowledged or dead.
//!
//! A delivery is a job like any other, of the built-in lifecycle `onceward.delivery`: its lease, its retries, its budget and
//! its end stand in that file. What is here takes such jobs and posts them.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::FailureReport;
use onceward_core::record::{Actor, Record};
use onceward_core::time::Duration as Span;
use onceward_store::Store;
use serde_json::json;

use crate::engine::Engine;
use crate::in_process_worker::{JobResult, WorkerConfig, WorkerHandle, WorkerJob};

/// The built-in lifecycle.
pub const DELIVERY_LIFECYCLE: &str = "onceward.delivery";

/// A receiver that asks for a longer wait is asked again after so long.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(1);

/// One message, as it is posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRequest {
    /// Where to.
    pub url: Arc<str>,
    /// EXE-16: the same at every try, so that the receiver can tell a repeated message from a new one.
    pub idempotency_key: Arc<str>,
    /// The record that it comes from.
    pub source_record: Arc<str>,
    /// Which try this is, from 1.
    pub attempt: u64,
    pub body: Arc<[u8]>,
}

/// What the receiver answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryResponse {
    /// As HTTP numbers it.
    pub status: u16,
    /// How long it asks to be left alone.
    pub retry_after: Option<Duration>,
}

/// Why a message had no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// Trying again may help. The receiver may have got it.
    #[error("{0}")]
    Retryable(String),
    /// It cannot be posted to such an address, ever.
    #[error("{0}")]
    Permanent(String),
}

/// Something that carries messages out. It must come back in bounded time, with a bounded answer.
pub trait DeliveryTransport: Send + Sync + 'static {
    fn send(&self, request: DeliveryRequest) -> impl Future<Output = Result<DeliveryResponse, DeliveryError>> + Send;
}

impl<S: Store + 'static> Engine<S> {
    /// Post what lifecycles deliver, so many messages at once. Messages of one record go one after the other.
    pub fn start_deliveries(&self, transport: impl DeliveryTransport, concurrency: usize) -> WorkerHandle {
        let config = WorkerConfig {
            concurrency,
            actor: Actor::new(DELIVERY_LIFECYCLE, &["worker"]),
            ..WorkerConfig::for_lifecycle(DELIVERY_LIFECYCLE)
        };
        let transport = Arc::new(transport);
        self.work(config, move |job| {
            let post = Arc::clone(&transport);
            async move { job_result(post.send(delivery_request(&job)).await) }
        })
    }
}

/// Whether a record is a message that was given up.
pub(crate) fn is_dead_delivery(record: &Record) -> bool {
    *record.lifecycle.name == *DELIVERY_LIFECYCLE && **record.state_name() == *"dead"
}

fn delivery_request(job: &WorkerJob) -> DeliveryRequest {
    let text = |name: &str| -> Arc<str> { job.field(name).as_str().unwrap_or_default().into() };
    let body = job.payload.clone().unwrap_or_default();
    let idempotency_key = job.record.id.to_string().into();
    DeliveryRequest {
        url: text("to"),
        idempotency_key,
        source_record: text("source"),
        attempt: job.record.attempt,
        body,
    }
}

/// 2xx acknowledges. 410 says that nobody will ever be there. Anything else may pass: receivers are restarted, put behind the
/// wrong door and brought back.
fn job_result(response: Result<DeliveryResponse, DeliveryError>) -> JobResult {
    let failure = |retryable, code: &str, message: &str, retry_after: Option<Duration>| {
        let retry_after = retry_after.map(|wait| wait.min(MAX_RETRY_AFTER).as_secs());
        let retry_after = retry_after.map(|seconds| Span::from_secs(i64::try_from(seconds).unwrap_or(0)));
        FailureReport { retryable: Some(retryable), retry_after, ..FailureReport::new(code, message) }
    };
    match response {
        Ok(DeliveryResponse { status: status @ 200..=299, .. }) => Ok(json!({ "status": status })),
        Ok(DeliveryResponse { status, retry_after }) => {
            let message = format!("the receiver answered {status}");
            Err(failure(status != 410, "not_acknowledged", &message, retry_after))
        }
        Err(DeliveryError::Retryable(why)) => Err(failure(true, "unreachable", &why, None)),
        Err(DeliveryError::Permanent(why)) => Err(failure(false, "bad_address", &why, None)),
    }
}
