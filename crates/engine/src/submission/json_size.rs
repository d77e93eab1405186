//! Estimates the size of a record as JSON.

use onceward_core::record::Record;
use onceward_core::value::Value;

/// Id, times, numbers and their names.
const RECORD_OVERHEAD_BYTES: usize = 512;

/// A number, a time or an id.
const SCALAR_BYTES: usize = 40;

/// Estimates the record's JSON length. The estimate is rarely much too low.
pub(crate) fn estimated_json_bytes(record: &Record) -> usize {
    let text_bytes = record.owner.len() + record.stuck_reason.as_ref().map_or(0, |stuck| text_json_bytes(stuck));
    let fields = record.lifecycle.fields.iter().zip(&record.fields);
    fields
        .map(|(field, value)| field.name.len() + 4 + value_json_bytes(value))
        .fold(RECORD_OVERHEAD_BYTES + text_bytes, usize::saturating_add)
}

fn value_json_bytes(value: &Value) -> usize {
    match value {
        Value::Text(text) => text_json_bytes(text),
        Value::Json(json) => json.len(),
        Value::List(items) => items.iter().map(|item| value_json_bytes(item) + 1).fold(2, usize::saturating_add),
        Value::Null
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Double(_)
        | Value::Time(_)
        | Value::Duration(_)
        | Value::Ref(_) => SCALAR_BYTES,
    }
}

/// Returns the length of the quoted and escaped text.
fn text_json_bytes(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        0..=0x1f => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum::<usize>() + 2
}
