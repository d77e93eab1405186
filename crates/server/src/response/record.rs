//! Records as JSON.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use onceward_core::hex;
use onceward_core::record::{PayloadRef, Record};
use onceward_core::value::{RecordId, Value};
use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{DisplayText, Rfc3339, json_response};
use crate::problem::Problem;

/// An instance of a lifecycle.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Record)]
pub(crate) struct RecordJson<'a> {
    #[schema(value_type = String, format = Uuid)]
    id: DisplayText<RecordId>,
    lifecycle: &'a str,
    state: &'a str,
    /// Increases by one with each operation that changes the record. Also its `ETag`.
    #[schema(minimum = 1)]
    version: u64,
    owner: &'a str,
    /// Values of the fields that the lifecycle declares, by name.
    #[schema(value_type = Object)]
    fields: FieldsJson<'a>,
    /// How often the record was leased.
    #[schema(minimum = 0)]
    attempt: u64,
    /// Download the bytes from `/v1/records/{id}/payload`.
    payload: Option<PayloadJson>,
    /// Why the engine no longer fires timers and other engine events on this record: one of them failed.
    stuck: Option<&'a str>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Rfc3339,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Rfc3339,
    /// When it was first leased.
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<Rfc3339>,
    /// When it entered a final state.
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Rfc3339>,
}

impl<'a> RecordJson<'a> {
    pub(crate) fn new(record: &'a Record) -> Self {
        Self {
            id: DisplayText(record.id),
            lifecycle: &record.lifecycle.name,
            state: record.state_name(),
            version: record.version,
            owner: &record.owner,
            fields: FieldsJson(record),
            attempt: record.attempt,
            payload: record.payload.map(PayloadJson::new),
            stuck: record.stuck_reason.as_deref(),
            created_at: Rfc3339(record.created_at),
            updated_at: Rfc3339(record.updated_at),
            started_at: record.started_at.map(Rfc3339),
            finished_at: record.finished_at.map(Rfc3339),
        }
    }

    /// Responds with the record and its `ETag`.
    pub(crate) fn response_with_etag(status: StatusCode, record: &'a Record) -> Result<Response, Problem> {
        let mut response = json_response(status, &Self::new(record))?;
        response.headers_mut().insert(header::ETAG, etag_value(record.version));
        Ok(response)
    }
}

/// Returns a record version as `ETag` value.
pub(crate) fn etag_value(version: u64) -> HeaderValue {
    // Cannot fail: digits in quotes.
    HeaderValue::from_str(&format!("\"{version}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Hash and size of a payload.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PayloadRef)]
pub(crate) struct PayloadJson {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    sha256: String,
    #[schema(minimum = 0)]
    bytes: u64,
}

impl PayloadJson {
    pub(crate) fn new(payload: PayloadRef) -> Self {
        Self { sha256: hex::encode(&payload.sha256), bytes: payload.bytes }
    }
}

/// Serializes a record's fields by name.
#[derive(Debug)]
struct FieldsJson<'a>(&'a Record);

impl Serialize for FieldsJson<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(Some(self.0.fields.len()))?;
        for (field, value) in self.0.lifecycle.fields.iter().zip(&self.0.fields) {
            map.serialize_entry(&*field.name, &FieldValueJson(value))?;
        }
        map.end()
    }
}

/// Serializes a field's value.
#[derive(Debug)]
pub(super) struct FieldValueJson<'a>(pub(super) &'a Value);

impl Serialize for FieldValueJson<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => out.serialize_unit(),
            Value::Bool(flag) => out.serialize_bool(*flag),
            Value::Int(int) => out.serialize_i64(*int),
            Value::Double(double) => out.serialize_f64(*double),
            Value::Text(text) => out.serialize_str(text),
            Value::Time(time) => out.collect_str(time),
            Value::Duration(length) => out.collect_str(length),
            Value::Ref(id) => out.collect_str(id),
            Value::List(items) => {
                let mut list = out.serialize_seq(Some(items.len()))?;
                for item in items.iter() {
                    list.serialize_element(&FieldValueJson(item))?;
                }
                list.end()
            }
            // Stored as JSON text; invalid text becomes null.
            Value::Json(text) => serde_json::from_str::<&RawValue>(text).ok().serialize(out),
        }
    }
}
