//! How large a record is in an answer.

use onceward_core::record::Record;
use onceward_core::value::Value;

/// Its id, times and numbers, and the names that they have there.
const FRAME: usize = 512;

/// A number, a time or an id.
const SHORT: usize = 40;

/// About as many bytes as it takes as JSON, and not many fewer.
pub(crate) fn weight(record: &Record) -> usize {
    let texts = record.owner.len() + record.stuck.as_ref().map_or(0, |stuck| text(stuck));
    let fields = record.lifecycle.fields.iter().zip(&record.fields);
    fields.map(|(field, value)| field.name.len() + 4 + bytes(value)).fold(FRAME + texts, usize::saturating_add)
}

fn bytes(value: &Value) -> usize {
    match value {
        Value::Text(words) => text(words),
        Value::Json(json) => json.len(),
        Value::List(items) => items.iter().map(|item| bytes(item) + 1).fold(2, usize::saturating_add),
        Value::Null
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Double(_)
        | Value::Time(_)
        | Value::Duration(_)
        | Value::Ref(_) => SHORT,
    }
}

/// Between quotes, with what cannot stand there as it is.
fn text(words: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        0..=0x1f => 6,
        _ => 1,
    };
    words.bytes().map(escaped).sum::<usize>() + 2
}
