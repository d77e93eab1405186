//! Errors as `application/problem+json` (RFC 9457).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// Longest delay that a client takes from a response body. Servers restart within seconds; a longer delay would keep
/// callers waiting after that.
pub const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Why a call failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Path of the documentation of `code` on this server; `about:blank` if a lifecycle defines the code.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub title: String,
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(minimum = 400, maximum = 599, required = true))]
    pub status: u16,
    /// Stable identifier for programs.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub code: String,
    /// Explanation for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, required = true))]
    pub detail: Option<String>,
    /// How long to wait before a retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub retry_after_ms: Option<u64>,
    /// The record's state, if an event was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub state: Option<String>,
    /// The refused event.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub event: Option<String>,
    /// Why the event was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub reason: Option<String>,
    /// How long a client waits before it retries, from the `Retry-After` header or the body. Not part of the body.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
    /// Members that depend on `code`: a refusal has `record` and `lifecycle` if known; `already_committed` has the
    /// winning `effect`; `pruned` has `oldest`, the `seq` after which the log is available.
    #[serde(flatten)]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub extra: Map<String, Json>,
}

impl Problem {
    /// Returns the best explanation for people.
    pub fn message(&self) -> &str {
        let explanation = self.reason.as_deref().or(self.detail.as_deref());
        explanation.unwrap_or(if self.title.is_empty() { "the server gave no reason" } else { &self.title })
    }

    /// Takes the delay from the body, which is more precise than the header.
    pub fn with_body_retry_after(mut self) -> Self {
        let delay = self.retry_after_ms.map(Duration::from_millis);
        self.retry_after = delay.or(self.retry_after).map(|delay| delay.min(MAX_RETRY_DELAY));
        self
    }

    /// Returns whether the same call may succeed later without a change.
    pub fn is_retryable(&self) -> bool {
        matches!(self.status, 429 | 502 | 503 | 504 | 507) || self.code == "idempotency_key_in_use"
    }

    /// Returns whether the server refused before execution. `closed` and `store_unavailable` are not included: their
    /// batch may have been written.
    pub fn was_not_executed(&self) -> bool {
        let not_executed_codes = [
            "overloaded",
            "too_many_conflicts",
            "store_busy",
            "store_full",
            "check_unavailable",
            "invalid_check_answer",
        ];
        self.status == 429 || not_executed_codes.contains(&&*self.code)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}: {}", self.status, self.code, self.message())?;
        if let Some(state) = &self.state {
            write!(out, " (state {state}")?;
            if let Some(event) = &self.event {
                write!(out, ", event {event}")?;
            }
            out.write_str(")")?;
        }
        Ok(())
    }
}
