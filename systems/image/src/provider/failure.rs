//! What went wrong, in the words of the lifecycle's error table. Each sentence is ours: a service's own may quote the
//! prompt, and whoever owns the job reads what stands here.

use std::error::Error;
use std::io;

use http::{HeaderMap, StatusCode};
use onceward_core::decide::ErrorReport;
use serde_json::Value;

use super::reach::NotPublic;
use super::retry_after::retry_after;

/// Why there is no answer to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    TimeOut,
    /// Nobody heard the question.
    Unreachable,
    /// The answer broke off, or is none.
    Broken,
    TooLarge,
    /// What should be a picture is none, or not all of one.
    NotAPicture,
    /// An address that is not asked.
    OffLimits,
    TooManyRedirects,
}

impl Trouble {
    /// From the innermost error that tells.
    pub(super) fn of(error: &(dyn Error + 'static), connecting: bool) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if error.is::<NotPublic>() {
                return Self::OffLimits;
            }
            if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
                return Self::TimeOut;
            }
            cause = error.source();
        }
        if connecting { Self::Unreachable } else { Self::Broken }
    }

    /// IMG-4 and IMG-12: all of this may pass, but for an address that is never asked.
    pub(super) fn report(self) -> ErrorReport {
        match self {
            Self::TimeOut => ErrorReport::new("timeout", "the provider took too long"),
            Self::Unreachable => ErrorReport::new("503", "the provider cannot be reached"),
            Self::Broken => ErrorReport::new("502", "the provider's answer broke off or cannot be read"),
            Self::TooLarge => ErrorReport::new("502", "the provider's answer is too large"),
            Self::NotAPicture => {
                ErrorReport::new("502", "the provider answered with something that is no whole picture")
            }
            Self::TooManyRedirects => ErrorReport::new("502", "the provider's picture was sent from place to place"),
            Self::OffLimits => {
                ErrorReport::new("403", "the provider's picture lies at an address that this server does not ask")
            }
        }
    }
}

/// Codes by which services say that their safety filter objects. The first two are OpenAI's, the next two Azure's.
const POLICY: [&str; 8] = [
    "content_policy_violation",
    "moderation_blocked",
    "content_filter",
    "responsibleaipolicyviolation",
    "contentfilter",
    "content_moderation",
    "policy_violation",
    "safety_violation",
];

/// What an answer that is no success comes to.
pub(super) fn refused(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ErrorReport {
    let number = status.as_u16();
    // IMG-6: whatever the status, a safety filter's word is final.
    if status.is_client_error() && objects(body) {
        return ErrorReport::new("policy", "policy violation");
    }
    // IMG-12: the table's codes by their own names, others by the one that means the same to us.
    let (code, message) = match number {
        429 => ("429", "the provider has too many requests"),
        500 => ("500", "the provider failed"),
        503 | 529 => ("503", "the provider is not available"),
        504 => ("504", "the provider's own service took too long"),
        408 | 425 => ("timeout", "the provider took too long"),
        401 => ("401", "the provider does not accept the key"),
        402 | 403 => ("403", "the provider does not allow this"),
        _ if status.is_server_error() => ("502", "the provider failed"),
        _ if status.is_redirection() => ("400", "the provider is at another address than the configured one"),
        404 => ("400", "the provider does not know this address or this model"),
        _ => (
            "400",
            "the provider does not take the order: perhaps its model draws no picture of this size, or reads no prompt of this length",
        ),
    };
    ErrorReport { retry_after: retry_after(headers), ..ErrorReport::new(code, message) }
}

/// What a file's host answers when it has no picture to give.
///
/// That the address has run out or is not allowed says nothing of our key: drawn again, the picture has a new address.
pub(super) fn not_there(status: StatusCode, headers: &HeaderMap) -> ErrorReport {
    match status.as_u16() {
        408 | 429 => refused(status, headers, &[]),
        _ if status.is_server_error() => refused(status, headers, &[]),
        _ => ErrorReport::new("502", "the provider's picture was not at its address"),
    }
}

/// Whether the body of an answer names one of the codes of a safety filter.
fn objects(body: &[u8]) -> bool {
    let Ok(Value::Object(answer)) = serde_json::from_slice(body) else { return false };
    let Some(error) = answer.get("error") else { return false };
    let inner = ["inner_error", "innererror"].iter().find_map(|name| error.get(name));
    [error.get("code"), error.get("type"), inner.and_then(|inner| inner.get("code"))]
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .any(|code| POLICY.contains(&code.to_ascii_lowercase().as_str()))
}
