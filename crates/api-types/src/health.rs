//! Liveness and readiness.

use serde::{Deserialize, Serialize};

/// `live` or `ready`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HealthStatus {
    pub status: String,
}
