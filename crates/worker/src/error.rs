//! Errors of client calls.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// Servers restart within seconds; a longer delay would keep callers waiting after that.
pub(crate) const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The server refused the call.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// The connection failed or broke. If `not_sent`, the server did not receive the call; otherwise the outcome is
    /// unknown.
    #[error("cannot reach {server}: {reason}")]
    Unreachable { server: String, reason: String, not_sent: bool },
    #[error("no answer from {server} within {} s", .after.as_secs())]
    TimedOut { server: String, after: Duration },
    /// The response is not Onceward's. Another service may listen at this address.
    #[error("{server} gives an answer that is not understood: {reason}")]
    InvalidResponse { server: String, reason: String },
    #[error("`{url}` is no address of a server: {reason}")]
    InvalidUrl { url: String, reason: String },
    /// The request cannot be serialized. It was not sent.
    #[error("this cannot be sent: {0}")]
    InvalidRequest(String),
}

impl ClientError {
    /// Returns the server's refusal, if it is one.
    pub fn problem(&self) -> Option<&Problem> {
        if let Self::Problem(problem) = self { Some(problem) } else { None }
    }

    /// Returns the stable code of the server's refusal.
    pub fn code(&self) -> Option<&str> {
        self.problem().map(|problem| &*problem.code)
    }

    /// Returns whether the same call may succeed later without a change.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.is_retryable(),
            Self::Unreachable { .. } | Self::TimedOut { .. } => true,
            Self::InvalidResponse { .. } | Self::InvalidUrl { .. } | Self::InvalidRequest(_) => false,
        }
    }

    /// Returns whether the server certainly did not execute the call, so that even a call without idempotency key
    /// can be repeated.
    pub fn was_not_executed(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.was_not_executed(),
            Self::Unreachable { not_sent: unheard, .. } => *unheard,
            _ => false,
        }
    }

    /// Returns the delay that the server asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        self.problem().and_then(|problem| problem.retry_after)
    }
}

/// A refusal by the server (`application/problem+json`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Problem {
    pub status: u16,
    /// Stable identifier for programs.
    pub code: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The record's state, if an event was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How long to wait, from the `Retry-After` header or the body.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
    /// Other members, such as the winning effect or the oldest available `seq`.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

impl Problem {
    /// Returns the best explanation for people.
    pub fn message(&self) -> &str {
        let said = self.reason.as_deref().or(self.detail.as_deref());
        said.unwrap_or(if self.title.is_empty() { "no reason was given" } else { &self.title })
    }

    /// Takes the delay from the body, which is more precise than the header.
    pub(crate) fn with_body_retry_after(mut self) -> Self {
        let said = self.extra.get("retry_after_ms").and_then(Json::as_u64).map(Duration::from_millis);
        self.retry_after = said.or(self.retry_after).map(|pause| pause.min(MAX_RETRY_DELAY));
        self
    }

    fn is_retryable(&self) -> bool {
        matches!(self.status, 429 | 502 | 503 | 504 | 507) || self.code == "idempotency_key_in_use"
    }

    /// Returns whether the server refused before execution. `closed` and `store_unavailable` are not included:
    /// their batch may have been written.
    fn was_not_executed(&self) -> bool {
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
