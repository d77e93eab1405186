//! Why there is no answer, or why it was no.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// Servers come back within seconds; nobody should wait much longer than they take.
pub(crate) const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Why a call did not get what it asked for.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The server said no, and why.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// No connection, or it broke. Whether the server has done what was asked is known only where it never heard of it.
    #[error("cannot reach {server}: {reason}")]
    Unreachable { server: String, reason: String, not_sent: bool },
    #[error("no answer from {server} within {} s", .after.as_secs())]
    TimedOut { server: String, after: Duration },
    /// Not an answer of Onceward's; something else may listen there.
    #[error("{server} gives an answer that is not understood: {reason}")]
    InvalidResponse { server: String, reason: String },
    #[error("`{url}` is no address of a server: {reason}")]
    InvalidUrl { url: String, reason: String },
    /// Not sent: what was to be asked cannot be written.
    #[error("this cannot be sent: {0}")]
    InvalidRequest(String),
}

impl ClientError {
    /// The server's own answer, where it was one.
    pub fn problem(&self) -> Option<&Problem> {
        if let Self::Problem(problem) = self { Some(problem) } else { None }
    }

    /// The stable code of the server's answer.
    pub fn code(&self) -> Option<&str> {
        self.problem().map(|problem| &*problem.code)
    }

    /// Whether the same may be taken when it is tried again, though nobody changes it meanwhile.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.is_retryable(),
            Self::Unreachable { .. } | Self::TimedOut { .. } => true,
            Self::InvalidResponse { .. } | Self::InvalidUrl { .. } | Self::InvalidRequest(_) => false,
        }
    }

    /// Whether the server has surely not done what was asked, so that even a call without a key may be sent again.
    pub fn was_not_executed(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.was_not_executed(),
            Self::Unreachable { not_sent: unheard, .. } => *unheard,
            _ => false,
        }
    }

    /// When to come back, where the server said so.
    pub fn retry_after(&self) -> Option<Duration> {
        self.problem().and_then(|problem| problem.retry_after)
    }
}

/// A refusal as the server words it (`application/problem+json`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Problem {
    pub status: u16,
    /// Stable, for programs.
    pub code: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The record's state, where a move was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When to come back; of the header `Retry-After`, or of the answer itself.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
    /// Whatever else was said: the effect that won, the oldest sequence.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

impl Problem {
    /// For people: the reason, or what else comes nearest to one.
    pub fn message(&self) -> &str {
        let said = self.reason.as_deref().or(self.detail.as_deref());
        said.unwrap_or(if self.title.is_empty() { "no reason was given" } else { &self.title })
    }

    /// With what the answer itself says of when to come back.
    pub(crate) fn with_body_retry_after(mut self) -> Self {
        let said = self.extra.get("retry_after_ms").and_then(Json::as_u64).map(Duration::from_millis);
        self.retry_after = said.or(self.retry_after).map(|pause| pause.min(MAX_RETRY_DELAY));
        self
    }

    fn is_retryable(&self) -> bool {
        matches!(self.status, 429 | 502 | 503 | 504 | 507) || self.code == "still_running"
    }

    /// Those that are turned away at the door. `closed` and `store_unavailable` are not among them: their batch may have been
    /// written all the same.
    fn was_not_executed(&self) -> bool {
        let not_executed_codes =
            ["overloaded", "contended", "store_busy", "store_full", "check_unavailable", "bad_answer"];
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
