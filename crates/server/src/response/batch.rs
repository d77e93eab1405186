//! Responses of batches, bounded in bytes.

use std::io::{self, Write};

use axum::body::Bytes;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use onceward_core::record::{Actor, Record};
use onceward_engine::Receipt;
use serde::Serialize;
use uuid::Uuid;

use super::APPLICATION_JSON;
use crate::app::AppState;
use crate::problem::Problem;

/// Id, state and version of the record of an item that was carried out.
#[derive(Debug)]
pub(crate) struct RecordSummary {
    pub(crate) id: Option<Uuid>,
    pub(crate) state: Option<String>,
    pub(crate) version: Option<u64>,
}

/// `record` is what the caller may see now. Without it, a replayed reply still has the version of the first one.
pub(crate) fn record_summary(receipt: &Receipt, record: Option<&Record>) -> RecordSummary {
    RecordSummary {
        id: Some(receipt.subject.0),
        state: record.map(|record| record.state_name().to_string()),
        version: record.map(|record| record.version).or(receipt.version.filter(|_| receipt.replayed)),
    }
}

/// Adds the record to a replayed reply that has none, if the caller may see it. A batch loads these records one by one:
/// they may be large.
pub(crate) async fn with_current_record(app: &AppState, actor: &Actor, receipt: Receipt) -> Result<Receipt, Problem> {
    if receipt.record.is_some() || !receipt.replayed {
        return Ok(receipt);
    }
    let record = app.engine().get(actor, receipt.subject).await?;
    Ok(Receipt { record, ..receipt })
}

/// The results of a batch as JSON. They are added one by one, so that at most one record besides the response is in
/// memory.
#[derive(Debug)]
pub(crate) struct BatchResponse {
    body: Vec<u8>,
    max_bytes: usize,
}

impl BatchResponse {
    /// Records are added in full up to this size; short items and errors also beyond it.
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { body: b"{\"results\":[".to_vec(), max_bytes }
    }

    /// Adds an item if the response has space for it; returns whether it had.
    pub(crate) fn try_push(&mut self, item: &impl Serialize) -> Result<bool, Problem> {
        let start = self.body.len();
        self.push_comma();
        let writer = BoundedWriter { body: &mut self.body, max_bytes: self.max_bytes };
        match serde_json::to_writer(writer, item) {
            Ok(()) => Ok(true),
            Err(error) if error.is_io() => {
                self.body.truncate(start);
                Ok(false)
            }
            Err(error) => Err(serialization_failed(&error)),
        }
    }

    /// Adds a short item.
    pub(crate) fn push(&mut self, item: &impl Serialize) -> Result<(), Problem> {
        self.push_comma();
        serde_json::to_writer(&mut self.body, item).map_err(|error| serialization_failed(&error))
    }

    fn push_comma(&mut self) {
        if self.body.last() != Some(&b'[') {
            self.body.push(b',');
        }
    }

    pub(crate) fn finish(mut self) -> Response {
        self.body.extend_from_slice(b"]}");
        let mut response = Bytes::from(self.body).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, APPLICATION_JSON);
        response
    }
}

fn serialization_failed(error: &serde_json::Error) -> Problem {
    tracing::error!(%error, "serializing a response failed");
    Problem::internal()
}

/// Fails when the body would become larger than the limit.
struct BoundedWriter<'a> {
    body: &'a mut Vec<u8>,
    max_bytes: usize,
}

impl Write for BoundedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.body.len().saturating_add(bytes.len()) > self.max_bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.body.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_over_the_limit_leave_no_trace_in_the_response() {
        let mut response = BatchResponse::new(24);
        assert!(response.try_push(&"abcde").expect("JSON"));
        assert!(!response.try_push(&"too long for it").expect("JSON"));
        response.push(&"short form, beyond the limit").expect("JSON");
        assert!(!response.try_push(&1).expect("JSON"));
        response.body.extend_from_slice(b"]}");
        let json: serde_json::Value = serde_json::from_slice(&response.body).expect("complete JSON");
        assert_eq!(json, serde_json::json!({ "results": ["abcde", "short form, beyond the limit"] }));
    }
}
