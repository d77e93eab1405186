//! Asking for jobs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::error::ClientError;
use crate::transport::{ApiRequest, RetrySafety};
use crate::types::LeasedJob;

/// Which jobs a worker asks for.
#[derive(Clone, Debug, Serialize)]
pub struct LeaseRequest {
    pub lifecycles: Vec<String>,
    /// What the worker calls itself.
    pub worker: String,
    /// At most so many; with a key, at most 100.
    pub max: usize,
    /// Shorter or longer than the lifecycle's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// How long to wait for a first job where there is none.
    pub wait_ms: u64,
    /// Start at once: saves a report.
    pub start: bool,
    /// Only what this key was given before: nothing more is leased.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// Asked again with the same one, the same jobs are given and no others.
    #[serde(skip)]
    pub idempotency_key: Option<String>,
}

#[derive(Deserialize)]
struct LeaseResponse {
    executions: Vec<LeasedJob>,
}

impl Client {
    /// Jobs, or none where there were none all the while.
    pub async fn lease(&self, request: &LeaseRequest) -> Result<Vec<LeasedJob>, ClientError> {
        let api_request = ApiRequest::post("/v1/leases".to_owned(), request)?
            .with_idempotency_key(request.idempotency_key.as_deref())?;
        let response: LeaseResponse = self
            .send_json(&ApiRequest { max_server_wait: Duration::from_millis(request.wait_ms), ..api_request })
            .await?;
        Ok(response.executions)
    }

    /// The same, tried once: the loop of a worker has a patience of its own.
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
