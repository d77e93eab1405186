//! Errors of the engine, with their HTTP statuses and codes.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::count_noun;
use onceward_core::decide::Refusal;
use onceward_core::time::Time;
use onceward_store::StoreError;

use crate::objects::ObjectError;

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    /// A domain refusal. A retry gives the same refusal unless the record changes.
    #[error("{} {}: {}", .0.status, .0.code, .0.reason)]
    Refused(Box<Refusal>),
    /// The queue is full; the call was not queued.
    #[error("the engine is overloaded; retry in {} ms", .retry_after.as_millis())]
    Overloaded { retry_after: Duration },
    #[error("the batch has more than {}; split it", count_noun(*.max_operations, "operation", "operations"))]
    BatchTooLarge { max_operations: usize },
    #[error("the call has more than {}; send less, or put large data into a payload", count_noun(*.max_bytes, "byte", "bytes"))]
    RequestTooLarge { max_bytes: usize },
    /// The log and replies wrap the value in a few more levels, and JSON parsers have a depth limit.
    #[error("fields, input and result must be nested at most {max_depth} levels deep")]
    NestingTooDeep { max_depth: usize },
    /// The hash or length of the bytes differs from the payload that the call names.
    #[error("the bytes of the payload do not match the hash and length that the call declares")]
    PayloadMismatch,
    #[error("an idempotency key must have 1 to 255 characters and no control characters")]
    InvalidIdempotencyKey,
    /// The caller used one idempotency key for two different requests.
    #[error("the idempotency key was used for a different call; use a new idempotency key for each call")]
    IdempotencyKeyReused,
    /// The first call with this idempotency key has no reply yet.
    #[error("a call with the same idempotency key is still running; retry")]
    IdempotencyKeyInUse,
    /// Each attempt to save found a changed read. Nothing was written.
    #[error(
        "gave up after repeated write conflicts; nothing was written; retry, or send fewer concurrent calls per record"
    )]
    TooManyConflicts,
    /// `decide` kept asking for data that was already loaded. This is a bug of the engine; the loop is bounded.
    #[error("the engine could not decide the operation; nothing was written; report the bug")]
    Undecided,
    /// A panic ended the operation or the read. The other operations of the batch are not affected.
    #[error("a bug in Onceward ended the call; nothing was written; report the bug with the server's log")]
    Panicked,
    /// The engine is shutting down, or has shut down.
    #[error("the engine is closed; send the call to another server, or again after the restart")]
    Closed,
    /// The group-commit task ended because of a bug. Nothing more is written; the outcome of this operation is unknown.
    #[error("the engine's writer has stopped; restart the process, then check whether the call took effect")]
    WriterDied,
    /// Pruning deleted a part of the log that was requested; the log is available after `oldest_seq`.
    #[error("the log is pruned up to seq {oldest_seq}; start reading after it")]
    Pruned { oldest_seq: u64 },
    /// Whether the operation was written is known only if the store's error says so.
    #[error(transparent)]
    Store(Arc<StoreError>),
    /// An error of the object storage.
    #[error(transparent)]
    ObjectStorage(Arc<ObjectError>),
    #[error("the operating system gives no random numbers: {0}")]
    RandomUnavailable(String),
    /// The API key is missing, unknown, revoked or expired. The message does not say which.
    #[error("the API key is missing, unknown, revoked or expired")]
    Unauthorized,
    /// The API key lacks the role.
    #[error("{0}")]
    Forbidden(String),
    #[error("the API key cannot be created: {0}")]
    InvalidApiKey(String),
    /// The first API key ends open access, so it must be one that can create others.
    #[error(
        "the first API key ends open access, so it must be an operator's; create that first: onceward key create --owner ops --role operator"
    )]
    OperatorKeyRequired,
    #[error("no API key has the given id; `onceward key list` prints all ids")]
    ApiKeyNotFound,
    #[error("the database has the maximum of {max_keys} live API keys; revoke unused ones")]
    TooManyApiKeys { max_keys: usize },
    /// The owner's webhook secret was rotated less than a day ago.
    #[error(
        "the webhook secret was rotated recently, and the previous one still signs until {until}; use the current secret, or \
         rotate it after that time"
    )]
    SecretRotationPending { until: Time },
    /// The stored API keys contradict each other. The engine authenticates no caller.
    #[error("the API keys in the database are inconsistent: {0}; run `onceward verify`")]
    ApiKeysInconsistent(String),
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::LogPruned { oldest } => Self::Pruned { oldest_seq: oldest },
            StoreError::Panicked => Self::Panicked,
            error => Self::Store(Arc::new(error)),
        }
    }
}

impl From<ObjectError> for EngineError {
    fn from(error: ObjectError) -> Self {
        Self::ObjectStorage(Arc::new(error))
    }
}

impl EngineError {
    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::Refused(refusal) => refusal.status,
            Self::RequestTooLarge { .. } => 413,
            Self::PayloadMismatch
            | Self::InvalidIdempotencyKey
            | Self::IdempotencyKeyReused
            | Self::BatchTooLarge { .. }
            | Self::NestingTooDeep { .. }
            | Self::InvalidApiKey(_) => 422,
            Self::IdempotencyKeyInUse
            | Self::OperatorKeyRequired
            | Self::TooManyApiKeys { .. }
            | Self::SecretRotationPending { .. } => 409,
            Self::Pruned { .. } => 410,
            Self::Overloaded { .. } | Self::TooManyConflicts | Self::Closed => 503,
            Self::Store(error) => error.status(),
            Self::ObjectStorage(error) => error.status(),
            Self::Unauthorized => 401,
            Self::Forbidden(_) => 403,
            Self::ApiKeyNotFound => 404,
            Self::Undecided
            | Self::Panicked
            | Self::WriterDied
            | Self::RandomUnavailable(_)
            | Self::ApiKeysInconsistent(_) => 500,
        }
    }

    /// Returns the stable code for programs. A refusal has the code of the lifecycle or of core; docs/errors explains
    /// the others.
    pub fn code(&self) -> &str {
        match self {
            Self::Refused(refusal) => &refusal.code,
            Self::Overloaded { .. } => "overloaded",
            Self::BatchTooLarge { .. } => "batch_too_large",
            Self::RequestTooLarge { .. } => "request_too_large",
            Self::NestingTooDeep { .. } => "invalid_input",
            Self::PayloadMismatch => "payload_mismatch",
            Self::InvalidIdempotencyKey => "invalid_idempotency_key",
            Self::IdempotencyKeyReused => "idempotency_key_reused",
            Self::IdempotencyKeyInUse => "idempotency_key_in_use",
            Self::TooManyConflicts => "too_many_conflicts",
            Self::Undecided => "undecided",
            Self::Panicked => "panicked",
            Self::Closed => "closed",
            Self::WriterDied => "writer_died",
            Self::Pruned { .. } => "pruned",
            Self::Store(error) => error.code(),
            Self::ObjectStorage(error) => error.code(),
            Self::RandomUnavailable(_) => "random_unavailable",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden(_) => "forbidden",
            Self::InvalidApiKey(_) => "invalid_api_key",
            Self::OperatorKeyRequired => "operator_key_required",
            Self::ApiKeyNotFound => "api_key_not_found",
            Self::TooManyApiKeys { .. } => "too_many_api_keys",
            Self::ApiKeysInconsistent(_) => "api_keys_inconsistent",
            Self::SecretRotationPending { .. } => "secret_rotation_pending",
        }
    }

    /// Returns whether a retry can succeed without a change of the call or the record.
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            Self::Overloaded { .. }
            | Self::IdempotencyKeyInUse
            | Self::TooManyConflicts
            | Self::RandomUnavailable(_) => true,
            Self::Store(error) => matches!(
                **error,
                StoreError::Busy
                    | StoreError::DiskFull
                    | StoreError::ReadOnly(_)
                    | StoreError::Unavailable(_)
                    | StoreError::Locked { .. }
            ),
            Self::ObjectStorage(error) => matches!(**error, ObjectError::Unavailable(_)),
            Self::Refused(_)
            | Self::BatchTooLarge { .. }
            | Self::RequestTooLarge { .. }
            | Self::NestingTooDeep { .. }
            | Self::PayloadMismatch
            | Self::InvalidIdempotencyKey
            | Self::IdempotencyKeyReused
            | Self::Undecided
            | Self::Panicked
            | Self::Closed
            | Self::WriterDied
            | Self::Unauthorized
            | Self::Forbidden(_)
            | Self::InvalidApiKey(_)
            | Self::OperatorKeyRequired
            | Self::ApiKeyNotFound
            | Self::TooManyApiKeys { .. }
            | Self::SecretRotationPending { .. }
            | Self::ApiKeysInconsistent(_)
            | Self::Pruned { .. } => false,
        }
    }

    /// Returns whether this engine accepts no more operations.
    pub(crate) fn is_engine_closed(&self) -> bool {
        matches!(self, Self::Closed | Self::WriterDied)
    }

    /// Returns whether a single operation or record may be the cause. The batch is then split, so that only that
    /// operation fails.
    pub(crate) fn is_single_operation_fault(&self) -> bool {
        match self {
            Self::Undecided | Self::Panicked => true,
            Self::Store(error) => {
                matches!(**error, StoreError::Corrupt(_) | StoreError::Rejected(_) | StoreError::UnknownVersion { .. })
            }
            _ => false,
        }
    }

    /// Returns whether the store was too busy and did nothing.
    pub(crate) fn is_store_busy(&self) -> bool {
        matches!(self, Self::Store(error) if matches!(**error, StoreError::Busy))
    }

    /// Returns the domain refusal, if this is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        if let Self::Refused(refusal) = self { Some(refusal) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Returns the codes in the `fn code` of a source file.
    fn error_codes_in(source: &str) -> BTreeSet<String> {
        let from = source.find("fn code(").expect("`code` exists");
        let lines = source[from..].lines().take_while(|line| *line != "    }");
        lines.filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
    }

    /// The server's test finds pages without a code, because it has codes of its own.
    #[test]
    fn every_error_code_has_documentation_page() {
        let mut codes = error_codes_in(include_str!("error.rs"));
        codes.extend(error_codes_in(include_str!("../../store/src/error.rs")));
        codes.extend(error_codes_in(include_str!("objects/mod.rs")));
        assert!(codes.len() > 20, "{codes:?}");
        let pages = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
        codes.retain(|code| !pages.join(format!("{code}.md")).is_file());
        assert_eq!(codes, BTreeSet::new());
    }
}
