//! Delivery (webhooks): sends the messages that lifecycles `deliver`, in order per record, until the receiver acknowledges them or
//! they are dead.
//!
//! A delivery is a job of the built-in lifecycle `onceward.delivery`, whose file declares its lease, retries, budget
//! and end. This module leases such jobs and sends them.

pub(crate) mod http;
pub(crate) mod webhook_secrets;

use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::FailureReport;
use onceward_core::record::{Actor, Record};
use onceward_core::time::Duration as Span;
use onceward_store::Store;
use serde_json::json;

use self::webhook_secrets::DeliverySignature;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::in_process_worker::{JobResult, WorkerConfig, WorkerHandle, WorkerJob};

/// The built-in lifecycle of deliveries.
pub const DELIVERY_LIFECYCLE: &str = "onceward.delivery";

/// Caps the wait that a receiver asks for.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(1);

/// One message as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRequest {
    pub url: Arc<str>,
    /// EXE-16: the same on every attempt, so that the receiver can detect a repeated message.
    pub idempotency_key: Arc<str>,
    /// The record that delivers the message.
    pub source_record: Arc<str>,
    /// Attempt number, from 1.
    pub attempt: u64,
    pub body: Arc<[u8]>,
    pub signature: DeliverySignature,
}

/// The receiver's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryResponse {
    /// HTTP status.
    pub status: u16,
    /// The wait that the receiver asks for.
    pub retry_after: Option<Duration>,
}

/// Why a message got no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// A retry may help. The receiver may have got the message.
    #[error("{0}")]
    Retryable(String),
    /// The address can never work.
    #[error("{0}")]
    Permanent(String),
}

/// Sends messages. An implementation must return in bounded time and read a bounded response.
pub trait DeliveryTransport: Send + Sync + 'static {
    fn send(&self, request: DeliveryRequest) -> impl Future<Output = Result<DeliveryResponse, DeliveryError>> + Send;
}

impl<S: Store + 'static> Engine<S> {
    /// Starts to send deliveries, `concurrency` messages at once. Messages of one record are sent one after the other.
    pub fn start_deliveries(&self, transport: impl DeliveryTransport, concurrency: usize) -> WorkerHandle {
        let config = WorkerConfig {
            concurrency,
            actor: Actor::new(DELIVERY_LIFECYCLE, &["worker"]),
            ..WorkerConfig::for_lifecycle(DELIVERY_LIFECYCLE)
        };
        let (shared, transport) = (Arc::clone(&self.shared), Arc::new(transport));
        self.work(config, move |job| {
            let (shared, transport) = (Arc::clone(&shared), Arc::clone(&transport));
            async move {
                match delivery_request(&shared.store, &job).await {
                    Ok(request) => job_result(transport.send(request).await),
                    // Nothing was sent, so the attempt does not count.
                    Err(error) => Err(FailureReport::new("yielded", error.code())),
                }
            }
        })
    }
}

/// Returns whether a record is a delivery that was given up.
pub(crate) fn is_dead_delivery(record: &Record) -> bool {
    *record.lifecycle.name == *DELIVERY_LIFECYCLE && **record.state_name() == *"dead"
}

async fn delivery_request(store: &impl Store, job: &WorkerJob) -> Result<DeliveryRequest, EngineError> {
    let text = |name: &str| -> Arc<str> { job.field(name).as_str().unwrap_or_default().into() };
    let body = job.payload.clone().unwrap_or_default();
    let idempotency_key: Arc<str> = job.record.id.to_string().into();
    let signature = webhook_secrets::sign(store, &job.record.owner, &idempotency_key, &body).await?;
    Ok(DeliveryRequest {
        url: text("to"),
        idempotency_key,
        source_record: text("source"),
        attempt: job.record.attempt,
        body,
        signature,
    })
}

/// Maps the response to the job's result: 2xx acknowledges; 410 is permanent; any other status is retried, because
/// receivers are restarted and reconfigured.
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
