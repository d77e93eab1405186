//! What is shown of a job.

use onceward_core::record::Record;
use onceward_server::When;
use serde::Serialize;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

/// A document in the contract: bytes of any kind, one at least.
#[derive(Debug)]
pub(crate) struct Document;

impl PartialSchema for Document {
    fn schema() -> RefOr<Schema> {
        let binary = SchemaFormat::KnownFormat(KnownFormat::Binary);
        ObjectBuilder::new().schema_type(Type::String).format(Some(binary)).min_length(Some(1)).build().into()
    }
}

impl ToSchema for Document {}

/// A document on its way through processing. Nothing of the document itself, and nothing else of the job, is shown (DOC-12, DOC-15).
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DocumentJob)]
pub(crate) struct JobShape<'a> {
    #[schema(value_type = String, format = Uuid)]
    job_id: String,
    #[schema(value_type = State)]
    state: &'a str,
    #[schema(value_type = String, format = DateTime)]
    created_at: When,
    /// The first time that a worker took it.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    started_at: Option<When>,
    /// When it came to its end.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    completed_at: Option<When>,
    /// How often it was, or is to be, tried again.
    #[schema(minimum = 0, maximum = 3)]
    retry_count: i64,
    #[schema(minimum = 3, maximum = 3)]
    max_retries: i64,
    /// What went wrong last; null after a success.
    #[schema(required = true)]
    last_error: Option<&'a str>,
    /// Whether that could pass; null after a success.
    #[schema(value_type = Option<ErrorType>, required = true)]
    error_type: Option<&'a str>,
}

/// Where a job stands.
#[derive(ToSchema)]
#[schema(as = DocumentState, rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(dead_code, reason = "names the lifecycle's own in the contract")]
enum State {
    Created,
    Queued,
    Running,
    Retrying,
    Succeeded,
    Failed,
}

/// Whether an error may pass.
#[derive(ToSchema)]
#[schema(as = DocumentErrorType, rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(dead_code, reason = "names the lifecycle's own in the contract")]
enum ErrorType {
    Retryable,
    Terminal,
}

impl<'a> JobShape<'a> {
    pub(crate) fn of(record: &'a Record) -> Self {
        Self {
            job_id: record.id.to_string(),
            state: record.state_name(),
            created_at: When(record.created_at),
            started_at: record.started_at.map(When),
            completed_at: record.finished_at.map(When),
            retry_count: record.int("retryCount").unwrap_or_default(),
            max_retries: record.int("maxRetries").unwrap_or_default(),
            last_error: record.text("lastError"),
            error_type: record.text("errorType"),
        }
    }
}
