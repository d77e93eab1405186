//! Workers that lease jobs.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Workers that asked for jobs within the last day, most recent first, and workers that hold a lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Workers {
    pub workers: Vec<Worker>,
    /// Whether all leases were counted. If false, `holding` may be too low.
    pub complete: bool,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Worker {
    /// The name that the worker gave itself.
    pub worker: String,
    /// The owner of its API key.
    pub owner: String,
    /// The lifecycles of its latest lease request.
    pub lifecycles: Vec<String>,
    /// Time of its latest lease request, accurate to 30 seconds if another process answered it. Null if only its
    /// leases are known.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub last_seen: Option<Timestamp>,
    /// Number of executions that it holds.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub holding: u64,
}
