//! Asking for jobs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::error::ClientError;
use crate::shape::Leased;
use crate::wire::{Again, Ask};

/// Which jobs a worker asks for.
#[derive(Clone, Debug, Serialize)]
pub struct LeaseCall {
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
    pub key: Option<String>,
}

#[derive(Deserialize)]
struct Granted {
    executions: Vec<Leased>,
}

impl Client {
    /// Jobs, or none where there were none all the while.
    pub async fn lease(&self, call: &LeaseCall) -> Result<Vec<Leased>, ClientError> {
        let ask = Ask::post("/v1/leases".to_owned(), call)?.keyed(call.key.as_deref())?;
        let granted: Granted = self.ask(&Ask { wait: Duration::from_millis(call.wait_ms), ..ask }).await?;
        Ok(granted.executions)
    }

    /// The same, tried once: the loop of a worker has a patience of its own.
    pub(crate) async fn lease_once(&self, call: &LeaseCall) -> Result<Vec<Leased>, ClientError> {
        let ask = Ask::post("/v1/leases".to_owned(), call)?.keyed(call.key.as_deref())?;
        let ask = Ask { wait: Duration::from_millis(call.wait_ms), again: Again::Never, ..ask };
        let granted: Granted = self.ask(&ask).await?;
        Ok(granted.executions)
    }
}
