//! Maps provider failures to codes of the lifecycle's error table. Messages are fixed texts, because the job's owner
//! reads them and a service's own message may quote the prompt.

use std::io;

use http::{HeaderMap, StatusCode};
use onceward_core::decide::FailureReport;
use onceward_http_client::SendError;
use serde_json::Value;

use super::retry_after::parse_retry_after;

/// Why a request to a provider produced no usable response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProviderError {
    Timeout,
    Unreachable,
    /// The response was cut off or cannot be parsed.
    InvalidResponse,
    ResponseTooLarge,
    /// The response is not an image, or an incomplete one.
    NotAnImage,
    /// The URL is forbidden by the address policy.
    AddressNotAllowed,
    TooManyRedirects,
}

impl ProviderError {
    /// Classifies the error of a response body that broke off.
    pub(super) fn from_broken_body(cause: &io::Error) -> Self {
        if cause.kind() == io::ErrorKind::TimedOut { Self::Timeout } else { Self::InvalidResponse }
    }

    /// IMG-4 and IMG-12: all of these errors are retryable, except for a forbidden address.
    pub(super) fn to_failure_report(self) -> FailureReport {
        match self {
            Self::Timeout => FailureReport::new("timeout", "the provider did not answer in time"),
            Self::Unreachable => FailureReport::new("503", "the provider is unreachable"),
            Self::InvalidResponse => FailureReport::new("502", "the provider's answer is incomplete or unreadable"),
            Self::ResponseTooLarge => FailureReport::new("502", "the provider's answer is too large"),
            Self::NotAnImage => FailureReport::new("502", "the provider's answer is not a complete image"),
            Self::TooManyRedirects => FailureReport::new("502", "the provider's image URL redirects too often"),
            Self::AddressNotAllowed => FailureReport::new("403", "the address policy forbids the provider's image URL"),
        }
    }
}

impl From<SendError> for ProviderError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::AddressRefused(_) => Self::AddressNotAllowed,
            SendError::Timeout => Self::Timeout,
            SendError::Connect(cause) if cause.kind() == io::ErrorKind::TimedOut => Self::Timeout,
            SendError::Connect(_) => Self::Unreachable,
            SendError::Interrupted(cause) => Self::from_broken_body(&cause),
        }
    }
}

/// Error codes with which services report a safety filter. The first two are OpenAI's, the next two Azure's.
const POLICY_ERROR_CODES: [&str; 8] = [
    "content_policy_violation",
    "moderation_blocked",
    "content_filter",
    "responsibleaipolicyviolation",
    "contentfilter",
    "content_moderation",
    "policy_violation",
    "safety_violation",
];

/// Maps an error response of the provider to a failure report.
pub(super) fn status_failure(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> FailureReport {
    let number = status.as_u16();
    // IMG-6: a safety filter's refusal is permanent, whatever the status.
    if status.is_client_error() && is_policy_error(body) {
        return FailureReport::new("policy", "policy violation");
    }
    // IMG-12: statuses of the error table map to their own code, others to the code with the same meaning.
    let (code, message) = match number {
        429 => ("429", "the provider got too many requests"),
        500 => ("500", "the provider failed"),
        503 | 529 => ("503", "the provider is unavailable"),
        504 => ("504", "a service behind the provider did not answer in time"),
        408 | 425 => ("timeout", "the provider did not answer in time"),
        401 => ("401", "the provider rejected the API key"),
        402 | 403 => ("403", "the provider refused access"),
        _ if status.is_server_error() => ("502", "the provider failed"),
        _ if status.is_redirection() => ("400", "the provider redirects to another URL than the configured one"),
        404 => ("400", "the provider does not know the URL or the model"),
        _ => {
            ("400", "the provider rejected the request; its model may not support the size or the length of the prompt")
        }
    };
    FailureReport { retry_after: parse_retry_after(headers), ..FailureReport::new(code, message) }
}

/// Maps a failed download to a failure report.
///
/// An expired or forbidden URL says nothing about the API key: a retry generates the image again, with a new URL.
pub(super) fn download_failure(status: StatusCode, headers: &HeaderMap) -> FailureReport {
    match status.as_u16() {
        408 | 429 => status_failure(status, headers, &[]),
        _ if status.is_server_error() => status_failure(status, headers, &[]),
        _ => FailureReport::new("502", "the image was not found at the provider's URL"),
    }
}

/// Returns whether an error body contains an error code of a safety filter.
fn is_policy_error(body: &[u8]) -> bool {
    let Ok(Value::Object(answer)) = serde_json::from_slice(body) else { return false };
    let Some(error) = answer.get("error") else { return false };
    let inner = ["inner_error", "innererror"].iter().find_map(|name| error.get(name));
    [error.get("code"), error.get("type"), inner.and_then(|inner| inner.get("code"))]
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .any(|code| POLICY_ERROR_CODES.contains(&code.to_ascii_lowercase().as_str()))
}
