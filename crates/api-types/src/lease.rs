//! Requests for jobs, and the leased jobs in the response.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Record;

/// A worker's request for jobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeaseBody {
    /// Lease jobs of these lifecycles.
    #[serde(deserialize_with = "crate::bounded::names")]
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 100))]
    pub lifecycles: Vec<String>,
    /// The name that the worker gives itself.
    #[cfg_attr(feature = "openapi", schema(max_length = 1000))]
    pub worker: String,
    /// Maximum number of jobs; 1 by default. With an `Idempotency-Key`, at most 100 jobs are leased. Fewer are leased
    /// if the response cannot hold more.
    #[serde(default = "one")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000))]
    pub max: u32,
    /// Length of the lease; defaults to that of the lifecycle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86_400_000))]
    pub lease_ms: Option<u64>,
    /// How long to wait for a first job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 300_000))]
    pub wait_ms: Option<u64>,
    /// Only return the jobs leased earlier with this `Idempotency-Key`; lease no new ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<bool>,
    /// Also start the executions, which saves a report. A commit starts an execution implicitly, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<bool>,
}

impl Default for LeaseBody {
    fn default() -> Self {
        let (lifecycles, worker) = (Vec::new(), String::new());
        Self { lifecycles, worker, max: one(), lease_ms: None, wait_ms: None, again: None, start: None }
    }
}

const fn one() -> u32 {
    1
}

/// Leased jobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(bound = ""))]
pub struct LeasedJobs<Job = Lease> {
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Lease>))]
    pub executions: Vec<Job>,
}

/// A leased job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(bound = ""))]
pub struct Lease<R = Record, Payload = Box<RawValue>> {
    /// Identifies the execution in reports.
    pub id: String,
    /// The fencing token. Send it with every report.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    pub token: u64,
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub attempt: u64,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub expires_at: Timestamp,
    /// Remaining time of the lease by the server's clock. Less than the lease's length if the server returns the jobs
    /// of an earlier call again.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub expires_in_ms: u64,
    #[cfg_attr(feature = "openapi", schema(value_type = Record))]
    pub record: R,
    /// Trace context of the execution, in the trace of the request that created the job. Send it with the reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub traceparent: Option<String>,
    /// The payload as it was written when the record was created. A payload that is larger than 64 KB, or that does
    /// not fit into the response, is omitted: the record's `payload` has hash and size; download the bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    pub payload: Option<Payload>,
    /// Replaces `payload` if it is not JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(content_encoding = "base64"))]
    pub payload_base64: Option<String>,
}
