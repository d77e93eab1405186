//! Leases jobs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::error::ClientError;
use crate::transport::{ApiRequest, RetrySafety};
use crate::types::LeasedJob;

/// A request for jobs.
#[derive(Clone, Debug, Serialize)]
pub struct LeaseRequest {
    pub lifecycles: Vec<String>,
    /// The name that the worker gives itself.
    pub worker: String,
    /// Maximum number of jobs; at most 100 with an idempotency key.
    pub max: usize,
    /// Length of the lease, instead of that of the lifecycle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// How long to wait for a first job.
    pub wait_ms: u64,
    /// Also start the executions, which saves a report.
    pub start: bool,
    /// Only return jobs leased earlier with this idempotency key; lease no new ones.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// A repeated request with the same key returns the same jobs.
    #[serde(skip)]
    pub idempotency_key: Option<String>,
}

#[derive(Deserialize)]
struct LeaseResponse {
    executions: Vec<LeasedJob>,
}

impl Client {
    /// Leases jobs. Returns none if no job became ready within the wait.
    pub async fn lease(&self, request: &LeaseRequest) -> Result<Vec<LeasedJob>, ClientError> {
        let api_request = ApiRequest::post("/v1/leases".to_owned(), request)?
            .with_idempotency_key(request.idempotency_key.as_deref())?;
        let response: LeaseResponse = self
            .send_json(&ApiRequest { max_server_wait: Duration::from_millis(request.wait_ms), ..api_request })
            .await?;
        Ok(response.executions)
    }

    /// Like [`lease`](Self::lease), but without retries: the worker loop has its own.
    pub(crate) async fn lease_once(&self, request: &LeaseRequest) -> Result<Vec<LeasedJob>, ClientError> {
        let api_request = ApiRequest::post("/v1/leases".to_owned(), request)?
            .with_idempotency_key(request.idempotency_key.as_deref())?;
        let api_request = ApiRequest {
            max_server_wait: Duration::from_millis(request.wait_ms),
            retry_safety: RetrySafety::Never,
            ..api_request
        };
        let response: LeaseResponse = self.send_json(&api_request).await?;
        Ok(response.executions)
    }
}
