//! Leases jobs.

use std::time::Duration;

use onceward_api_types::{LeaseBody, LeasedJobs};

use crate::client::Client;
use crate::error::ClientError;
use crate::transport::{ApiRequest, RetrySafety};
use crate::types::LeasedJob;

/// A request for jobs.
#[derive(Clone, Debug, Default)]
pub struct LeaseRequest {
    pub body: LeaseBody,
    /// A repeated request with the same key returns the same jobs.
    pub idempotency_key: Option<String>,
}

impl LeaseRequest {
    fn to_api_request(&self) -> Result<ApiRequest, ClientError> {
        let max_server_wait = Duration::from_millis(self.body.wait_ms.unwrap_or(0));
        let request = ApiRequest::post("/v1/leases".to_owned(), &self.body)?;
        Ok(ApiRequest { max_server_wait, ..request.with_idempotency_key(self.idempotency_key.as_deref())? })
    }
}

impl Client {
    /// Leases jobs. Returns none if no job became ready within the wait.
    pub async fn lease(&self, request: &LeaseRequest) -> Result<Vec<LeasedJob>, ClientError> {
        let response: LeasedJobs<LeasedJob> = self.send_json(&request.to_api_request()?).await?;
        Ok(response.executions)
    }

    /// Like [`lease`](Self::lease), but without retries: the worker loop has its own.
    pub(crate) async fn lease_once(&self, request: &LeaseRequest) -> Result<Vec<LeasedJob>, ClientError> {
        let api_request = ApiRequest { retry_safety: RetrySafety::Never, ..request.to_api_request()? };
        let response: LeasedJobs<LeasedJob> = self.send_json(&api_request).await?;
        Ok(response.executions)
    }
}
