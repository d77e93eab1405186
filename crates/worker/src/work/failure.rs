//! Failures of jobs.

use std::time::Duration;

/// Why a handler has no result. The `?` operator converts any error into a retryable failure; the lifecycle limits
/// the retries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// If the lifecycle's `[errors]` lists the code, it decides whether the job is retried.
    pub code: String,
    pub message: String,
    /// Used if the lifecycle does not list the code.
    pub retryable: Option<bool>,
    /// Shortest delay before the next attempt.
    pub retry_after: Option<Duration>,
}

/// Codes that workers report themselves, equal in every language; `docs/workers.md` lists them.
///
/// An error without a code, or a panic.
pub(crate) const EXCEPTION_CODE: &str = "EXCEPTION";
/// The payload does not have the type that the handler expects.
pub(crate) const BAD_PAYLOAD_CODE: &str = "BAD_PAYLOAD";
/// The payload is missing or corrupt, or its download always breaks.
pub(crate) const PAYLOAD_UNAVAILABLE_CODE: &str = "PAYLOAD_UNAVAILABLE";
/// The result cannot be serialized, or the server rejects it.
pub(crate) const BAD_RESULT_CODE: &str = "BAD_RESULT";
/// The result is too large.
pub(crate) const SIZE_EXCEEDED_CODE: &str = "SIZE_EXCEEDED";

/// Marks a failure that returns the job instead of failing it.
const YIELDED_CODE: &str = "yielded";

impl Failure {
    /// A failure that another attempt may avoid.
    pub fn retryable(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), retryable: Some(true), retry_after: None }
    }

    /// A failure that no retry can avoid.
    pub fn terminal(code: &str, message: impl Into<String>) -> Self {
        Self { retryable: Some(false), ..Self::retryable(code, message) }
    }

    /// Not a failure: returns the job, so that another worker can take it.
    pub fn yielded() -> Self {
        Self::retryable(YIELDED_CODE, "")
    }

    /// Sets the shortest delay before the next attempt.
    pub fn with_retry_after(self, delay: Duration) -> Self {
        Self { retry_after: Some(delay), ..self }
    }

    pub(crate) fn is_yield(&self) -> bool {
        self.code == YIELDED_CODE
    }

    /// Truncates code and message, which may be foreign text, and removes NUL characters.
    pub(crate) fn sanitized(self) -> Self {
        let sanitize =
            |text: &str, max_chars| text.chars().filter(|char| *char != '\0').take(max_chars).collect::<String>();
        Self { code: sanitize(&self.code, MAX_CODE_CHARS), message: sanitize(&self.message, MAX_MESSAGE_CHARS), ..self }
    }
}

/// The server's limit on codes. A longer code must not cost the job its report.
const MAX_CODE_CHARS: usize = 100;

/// The limit of lifecycles that do not set their own.
const MAX_MESSAGE_CHARS: usize = 1_000;

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        // The causes say more than the outermost error.
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            message.push_str(": ");
            message.push_str(&inner.to_string());
            cause = inner.source();
        }
        Self::retryable(EXCEPTION_CODE, message)
    }
}
