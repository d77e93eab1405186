//! JSON responses for records, executions and log entries, converted from the engine's types.

mod batch;
mod bytes;
mod entry;
mod execution;
mod record;

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use onceward_core::time::Time;
use serde::{Serialize, Serializer};

pub(crate) use batch::{BatchResponse, RecordSummary, record_summary, with_current_record};
pub use bytes::{bytes_response, effect_response};
pub(crate) use entry::log_entry_json;
pub(crate) use execution::{effect_json, execution_json, is_wrapped_base64, unwrap_base64, wrap_base64};
pub(crate) use record::{RecordJson, etag_value, record_json, record_response};

use crate::problem::Problem;

const APPLICATION_JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Builds a JSON response.
pub fn json_response(status: StatusCode, value: &impl Serialize) -> Result<Response, Problem> {
    let mut body = Vec::with_capacity(512);
    serde_json::to_writer(&mut body, value).map_err(|error| {
        tracing::error!(%error, "serializing a response failed");
        Problem::internal()
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

/// Converts a time for a response body. A time outside the range of RFC 3339 becomes the nearest one.
pub(crate) fn timestamp(time: Time) -> Timestamp {
    let nearest = if time.micros() < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_microsecond(time.micros()).unwrap_or(nearest)
}

/// Copies names for a response body.
pub(crate) fn texts(names: &[Arc<str>]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}
