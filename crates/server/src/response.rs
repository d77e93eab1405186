//! JSON responses for records, executions and log entries, serialized directly from the engine's types.

mod bytes;
mod entry;
mod execution;
mod record;

use axum::body::Bytes;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use onceward_core::time::Time;
use serde::{Serialize, Serializer};

pub use bytes::{bytes_response, effect_response};
pub(crate) use entry::LogEntryJson;
pub(crate) use execution::{EffectJson, ExecutionJson, is_wrapped_base64, unwrap_base64, wrap_base64};
pub(crate) use record::{RecordJson, etag_value};

use crate::problem::Problem;

const APPLICATION_JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Builds a JSON response.
pub fn json_response(status: StatusCode, value: &impl Serialize) -> Result<Response, Problem> {
    let mut body = Vec::with_capacity(512);
    serde_json::to_writer(&mut body, value).map_err(|error| {
        tracing::error!("an answer cannot be written: {error}");
        Problem::new(500, "internal", "something is wrong inside; the server's log says more")
    })?;
    let mut response = (status, Bytes::from(body)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, APPLICATION_JSON);
    Ok(response)
}

/// Like [`json_response`], with status 200.
pub fn json_ok(value: &impl Serialize) -> Result<Response, Problem> {
    json_response(StatusCode::OK, value)
}

/// A time formatted as RFC 3339 in UTC.
#[derive(Clone, Copy, Debug)]
pub struct Rfc3339(pub Time);

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&self.0)
    }
}

/// Serializes a value as its `Display` text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DisplayText<T>(pub(crate) T);

impl<T: std::fmt::Display> Serialize for DisplayText<T> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&self.0)
    }
}
