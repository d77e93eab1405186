//! Liveness and readiness.

use serde::{Deserialize, Serialize};

/// `live` or `ready`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HealthStatus {
    pub status: String,
    /// `held` while the engine does not follow its clock, because the clock jumped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
}
