//! Errors as `application/problem+json` (RFC 9457), each with a stable code.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
pub use onceward_api_types::Problem as ProblemBody;
use onceward_core::decide::Refusal;
use onceward_core::execution_id::ExecutionId;
use onceward_core::value::RecordId;
use onceward_engine::EngineError;
use serde_json::{Map, Value as Json, json};

use crate::error_pages;

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// `Retry-After` of 429 and 503 responses if no better value is known.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// `detail` of errors whose cause only the server's log tells.
const INTERNAL_ERROR_DETAIL: &str = "internal error; the server's log has the cause";

/// An error response.
#[derive(Debug)]
pub struct Problem {
    status: u16,
    code: Cow<'static, str>,
    detail: String,
    /// Additional members, such as `state`, `event` and `reason` of a refusal.
    extra: Map<String, Json>,
    retry_after: Option<Duration>,
}

impl Problem {
    pub fn new(status: u16, code: &'static str, detail: impl Into<String>) -> Self {
        let retry_after = matches!(status, 429 | 503).then_some(DEFAULT_RETRY_AFTER);
        Self { status, code: Cow::Borrowed(code), detail: detail.into(), extra: Map::new(), retry_after }
    }

    pub fn with_member(mut self, name: &str, value: impl Into<Json>) -> Self {
        self.extra.insert(name.to_owned(), value.into());
        self
    }

    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    pub(crate) fn code(&self) -> &str {
        &self.code
    }

    /// 404: the record does not exist, or the caller may not see it.
    pub fn not_found() -> Self {
        Self::new(404, "not_found", "the record does not exist, or the caller may not read it")
    }

    /// 410: an earlier call with this idempotency key succeeded, but the caller cannot see its record any more.
    pub fn gone(record: RecordId) -> Self {
        let detail = "an earlier call with this idempotency key succeeded, but its record was pruned or the caller may no longer read it";
        Self::new(410, "gone", detail).with_member("record", record.to_string())
    }

    /// 422: the request can be parsed but is invalid.
    pub fn invalid_input(detail: impl Into<String>) -> Self {
        Self::new(422, "invalid_input", detail)
    }

    pub(crate) fn draining() -> Self {
        Self::new(503, "draining", "the server is shutting down and leases no more jobs; retry in a moment")
    }

    /// 500: the server's log has the cause.
    pub(crate) fn internal() -> Self {
        Self::new(500, "internal", INTERNAL_ERROR_DETAIL)
    }

    pub(crate) fn timed_out() -> Self {
        Self::new(503, "timed_out", "the server timed out; whether the request was carried out is unknown")
    }

    /// Returns the JSON body, for a response or a batch item.
    pub fn body(&self) -> ProblemBody {
        let kind =
            if error_pages::has_page(&self.code) { format!("/errors/{}", self.code) } else { "about:blank".into() };
        let retry_after_ms = self.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let title = self.code.replace('_', " ");
        ProblemBody {
            kind,
            title,
            status: self.status,
            code: self.code.to_string(),
            detail: Some(self.detail.clone()),
            retry_after_ms,
            extra: self.extra.clone(),
            ..ProblemBody::default()
        }
    }
}

impl Problem {
    /// Formats the complete HTTP response, for a connection without a readable request. The response closes it.
    pub(crate) fn to_http_response(&self) -> Vec<u8> {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // Cannot fail: text and numbers only.
        let body = serde_json::to_vec(&self.body()).unwrap_or_default();
        let retry =
            self.retry_after.map(|wait| format!("retry-after: {}\r\n", whole_seconds(wait))).unwrap_or_default();
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\n{retry}connection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        [head.into_bytes(), body].concat()
    }
}

/// Rounds up to whole seconds, at least one.
fn whole_seconds(wait: Duration) -> u128 {
    wait.as_millis().div_ceil(1_000).max(1)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        // Cannot fail: text, numbers and values that were JSON already.
        let body = serde_json::to_vec(&self.body()).unwrap_or_default();
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, body).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, PROBLEM_JSON);
        if let Some(Ok(seconds)) = self.retry_after.map(|wait| HeaderValue::from_str(&whole_seconds(wait).to_string()))
        {
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        let problem = Self {
            status: error.status(),
            code: Cow::Owned(error.code().to_owned()),
            detail: public_detail(&error),
            extra: Map::new(),
            retry_after: matches!(error.status(), 429 | 503).then_some(DEFAULT_RETRY_AFTER),
        };
        match error {
            EngineError::Refused(refusal) => with_refusal(problem, &refusal),
            EngineError::Overloaded { retry_after } => Self { retry_after: Some(retry_after), ..problem },
            EngineError::Pruned { oldest_seq: oldest } => problem.with_member("oldest", oldest),
            _ => problem,
        }
    }
}

impl From<onceward_store::StoreError> for Problem {
    fn from(error: onceward_store::StoreError) -> Self {
        EngineError::from(error).into()
    }
}

/// Returns the `detail` for the caller and logs internal errors, whose text may name hosts, files and other owners'
/// records.
fn public_detail(error: &EngineError) -> String {
    match error {
        EngineError::Refused(refusal) => refusal.reason.clone(),
        EngineError::Store(store) => {
            // The log omits the message, because it may quote data that was being written.
            tracing::error!(code = store.code(), "store failed");
            match store.status() {
                507 => "the database is full; nothing was written".to_owned(),
                503 => "the database is unavailable; retry".to_owned(),
                _ => INTERNAL_ERROR_DETAIL.to_owned(),
            }
        }
        EngineError::ObjectStorage(objects) => {
            tracing::error!(code = objects.code(), error = %objects, "object storage failed");
            match objects.status() {
                507 => "the object storage is full; nothing was written".to_owned(),
                503 => "the object storage is unavailable; retry".to_owned(),
                _ => INTERNAL_ERROR_DETAIL.to_owned(),
            }
        }
        EngineError::Undecided
        | EngineError::Panicked
        | EngineError::WriterDied
        | EngineError::RandomUnavailable(_) => {
            tracing::error!(code = error.code(), "{error}");
            error.to_string()
        }
        error => error.to_string(),
    }
}

fn with_refusal(problem: Problem, refusal: &Refusal) -> Problem {
    let mut problem = problem.with_member("event", &*refusal.event).with_member("reason", &*refusal.reason);
    if let Some(wait) = refusal.retry_after {
        problem = problem.retry_after(Duration::from_micros(wait.micros().unsigned_abs()));
    }
    problem = problem.with_member("state", refusal.state.as_deref().map_or(Json::Null, Json::from));
    if let Some(record) = refusal.record {
        problem = problem.with_member("record", record.to_string());
        if let Some(token) = refusal.committed_token {
            let execution = ExecutionId { record, token }.to_string();
            problem = problem.with_member("effect", json!({ "execution": execution, "token": token.0 }));
        }
    }
    if let Some(lifecycle) = &refusal.lifecycle {
        problem = problem.with_member("lifecycle", &**lifecycle);
    }
    problem
}
