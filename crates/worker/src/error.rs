//! Errors of client calls.

use std::time::Duration;

pub(crate) use onceward_api_types::MAX_RETRY_DELAY;
pub use onceward_api_types::Problem;

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
    #[error("{server} did not respond within {} s", .after.as_secs())]
    TimedOut { server: String, after: Duration },
    /// The response is not Onceward's. Another service may listen at this address.
    #[error("{server} sent an invalid response: {reason}")]
    InvalidResponse { server: String, reason: String },
    #[error("`{url}` is not a valid server URL: {reason}")]
    InvalidUrl { url: String, reason: String },
    /// The request cannot be serialized. It was not sent.
    #[error("the request was not sent: {0}")]
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
            Self::Unreachable { not_sent, .. } => *not_sent,
            _ => false,
        }
    }

    /// Returns the delay that the server asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        self.problem().and_then(|problem| problem.retry_after)
    }
}
