//! Why a job was not done.

use std::time::Duration;

/// What a handler reports where it has no result. Any error turns into one with `?`: it may be tried again, as often as the
/// lifecycle has patience.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The lifecycle's `[errors]` may know it, and then says whether it may be tried again.
    pub code: String,
    pub message: String,
    /// The worker's word, for codes that the lifecycle does not know.
    pub retryable: Option<bool>,
    /// Not before this has passed.
    pub retry_after: Option<Duration>,
}

/// The codes that a worker gives by itself, the same in every language: docs/workers.md has the table.
///
/// Of an error that the handler gave no code, and of a panic.
pub(crate) const EXCEPTION_CODE: &str = "EXCEPTION";
/// Of a payload that is not as the handler wants it.
pub(crate) const BAD_PAYLOAD_CODE: &str = "BAD_PAYLOAD";
/// Of one that is missing, harmed, or breaks off each time.
pub(crate) const PAYLOAD_UNAVAILABLE_CODE: &str = "PAYLOAD_UNAVAILABLE";
/// Of a result that cannot be written, or that the server does not take.
pub(crate) const BAD_RESULT_CODE: &str = "BAD_RESULT";
/// Of one that is too large.
pub(crate) const SIZE_EXCEEDED_CODE: &str = "SIZE_EXCEEDED";

/// Gives the job back unharmed.
const YIELDED_CODE: &str = "yielded";

impl Failure {
    /// May go better another time.
    pub fn retryable(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), retryable: Some(true), retry_after: None }
    }

    /// Will never go better.
    pub fn terminal(code: &str, message: impl Into<String>) -> Self {
        Self { retryable: Some(false), ..Self::retryable(code, message) }
    }

    /// No failure: this worker cannot do it now, another may.
    pub fn yielded() -> Self {
        Self::retryable(YIELDED_CODE, "")
    }

    /// Not before this has passed.
    pub fn with_retry_after(self, delay: Duration) -> Self {
        Self { retry_after: Some(delay), ..self }
    }

    pub(crate) fn is_yield(&self) -> bool {
        self.code == YIELDED_CODE
    }

    /// Texts that are not the worker's own may have any length, and characters that no text may have.
    pub(crate) fn sanitized(self) -> Self {
        let sanitize =
            |text: &str, max_chars| text.chars().filter(|char| *char != '\0').take(max_chars).collect::<String>();
        Self { code: sanitize(&self.code, MAX_CODE_CHARS), message: sanitize(&self.message, MAX_MESSAGE_CHARS), ..self }
    }
}

/// The server bounds codes; a longer one is a mistake, and not worth the job.
const MAX_CODE_CHARS: usize = 100;

/// As many as lifecycles keep unless they say more.
const MAX_MESSAGE_CHARS: usize = 1_000;

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        // The causes say more than the outermost.
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
