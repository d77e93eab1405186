//! Records as JSON.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use onceward_api_types as wire;
use onceward_core::hex;
use onceward_core::record::Record;
use onceward_core::value::Value;
use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::{json_response, timestamp};
use crate::problem::Problem;

/// Serializes a record without copying its text and fields.
pub(crate) type RecordJson<'a> = wire::Record<&'a str, FieldsJson<'a>>;

pub(crate) fn record_json(record: &Record) -> RecordJson<'_> {
    RecordJson {
        id: record.id.0,
        lifecycle: &record.lifecycle.name,
        state: record.state_name(),
        version: record.version,
        owner: &record.owner,
        fields: FieldsJson(record),
        attempt: record.attempt,
        payload: record
            .payload
            .map(|payload| wire::PayloadRef { sha256: hex::encode(&payload.sha256), bytes: payload.bytes }),
        stuck: record.stuck_reason.as_deref(),
        created_at: timestamp(record.created_at),
        updated_at: timestamp(record.updated_at),
        started_at: record.started_at.map(timestamp),
        finished_at: record.finished_at.map(timestamp),
    }
}

/// Responds with the record and its `ETag`.
pub(crate) fn record_response(status: StatusCode, record: &Record) -> Result<Response, Problem> {
    let mut response = json_response(status, &record_json(record))?;
    response.headers_mut().insert(header::ETAG, etag_value(record.version));
    Ok(response)
}

/// Returns a record version as `ETag` value.
pub(crate) fn etag_value(version: u64) -> HeaderValue {
    // Cannot fail: digits in quotes.
    HeaderValue::from_str(&format!("\"{version}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Serializes a record's fields by name.
#[derive(Debug)]
pub(crate) struct FieldsJson<'a>(&'a Record);

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
