//! The secrets that sign an owner's deliveries.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The secrets that sign the deliveries of the caller's owner. `Debug` hides them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WebhookSecretJson {
    /// The secret, as `whsec_` and base64.
    pub secret: String,
    /// The secret before the last rotation, while it signs, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_secret: Option<String>,
    /// The time until which the previous secret signs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub previous_until: Option<Timestamp>,
}

impl fmt::Debug for WebhookSecretJson {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("WebhookSecretJson").field("previous_until", &self.previous_until).finish_non_exhaustive()
    }
}
