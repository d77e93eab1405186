//! What goes out: records, executions and log entries as JSON, written straight from what the engine gives.

mod bytes;
mod entry;
mod execution;
mod record;

use axum::body::Bytes;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use onceward_core::time::Time;
use serde::{Serialize, Serializer};

pub use bytes::{bytes, result};
pub(crate) use entry::EntryShape;
pub(crate) use execution::{EffectShape, ExecutionShape, bytes_of, is_bytes, of_bytes};
pub(crate) use record::{RecordShape, etag};

use crate::problem::Problem;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An answer of JSON.
pub fn answer(status: StatusCode, shape: &impl Serialize) -> Result<Response, Problem> {
    let mut body = Vec::with_capacity(512);
    serde_json::to_writer(&mut body, shape).map_err(|error| {
        tracing::error!("an answer cannot be written: {error}");
        Problem::new(500, "internal", "something is wrong inside; the server's log says more")
    })?;
    let mut response = (status, Bytes::from(body)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    Ok(response)
}

/// The same, as it went well.
pub fn ok(shape: &impl Serialize) -> Result<Response, Problem> {
    answer(StatusCode::OK, shape)
}

/// RFC 3339, in UTC.
#[derive(Clone, Copy, Debug)]
pub struct When(pub Time);

impl Serialize for When {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&self.0)
    }
}

/// Anything that is shown as its text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<T>(pub(crate) T);

impl<T: std::fmt::Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&self.0)
    }
}
