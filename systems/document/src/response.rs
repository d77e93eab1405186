//! JSON representation of a document job.

use onceward_core::record::Record;
use onceward_server::Rfc3339;
use serde::Serialize;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

/// Schema of a document in the OpenAPI contract: at least one byte, any content.
#[derive(Debug)]
pub(crate) struct DocumentBytes;

impl PartialSchema for DocumentBytes {
    fn schema() -> RefOr<Schema> {
        let binary = SchemaFormat::KnownFormat(KnownFormat::Binary);
        ObjectBuilder::new().schema_type(Type::String).format(Some(binary)).min_length(Some(1)).build().into()
    }
}

impl ToSchema for DocumentBytes {}

/// A document job. It contains neither the document nor other fields of the record (DOC-12, DOC-15).
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DocumentJob)]
pub(crate) struct DocumentJobJson<'a> {
    #[schema(value_type = String, format = Uuid)]
    job_id: String,
    #[schema(value_type = DocumentState)]
    state: &'a str,
    #[schema(value_type = String, format = DateTime)]
    created_at: Rfc3339,
    /// When a worker first leased the job.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    started_at: Option<Rfc3339>,
    /// When the job ended.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    completed_at: Option<Rfc3339>,
    /// Number of retries so far, including a scheduled one.
    #[schema(minimum = 0, maximum = 3)]
    retry_count: i64,
    #[schema(minimum = 3, maximum = 3)]
    max_retries: i64,
    /// The last error's message, or its code if it has no message; null after a success.
    #[schema(required = true)]
    last_error: Option<&'a str>,
    /// The last error's code; null after a success.
    #[schema(required = true)]
    error_code: Option<&'a str>,
    /// Whether the last error is retryable; null after a success.
    #[schema(value_type = Option<DocumentErrorType>, required = true)]
    error_type: Option<&'a str>,
}

/// State of a document job.
#[derive(ToSchema)]
#[schema(as = DocumentState, rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(dead_code, reason = "documents the lifecycle's values in the contract")]
enum DocumentState {
    Created,
    Queued,
    Running,
    Retrying,
    Succeeded,
    Failed,
}

/// Whether an error is retryable.
#[derive(ToSchema)]
#[schema(as = DocumentErrorType, rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(dead_code, reason = "documents the lifecycle's values in the contract")]
enum DocumentErrorType {
    Retryable,
    Terminal,
}

impl<'a> DocumentJobJson<'a> {
    pub(crate) fn from_record(record: &'a Record) -> Self {
        Self {
            job_id: record.id.to_string(),
            state: record.state_name(),
            created_at: Rfc3339(record.created_at),
            started_at: record.started_at.map(Rfc3339),
            completed_at: record.finished_at.map(Rfc3339),
            retry_count: record.int_field("retryCount").unwrap_or_default(),
            max_retries: record.int_field("maxRetries").unwrap_or_default(),
            last_error: record.text_field("lastError"),
            error_code: record.text_field("errorCode"),
            error_type: record.text_field("errorType"),
        }
    }
}
