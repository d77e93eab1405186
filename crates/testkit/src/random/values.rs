//! Random values for fields, mostly valid.

use onceward_core::model::{DataType, FieldDef};
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use serde_json::{Value as Json, json};

use super::rng::Rng;

/// Returns a value for a field, mostly a valid one.
pub(crate) fn random_value(rng: &mut Rng, field: &FieldDef, now: Time, records: &[RecordId]) -> Json {
    if rng.percent(4) {
        return json!({ "no": "a valid type" });
    }
    if field.nullable && rng.percent(15) {
        return Json::Null;
    }
    if let (DataType::Duration, Some((least, _))) = (&field.ty, field.bounds.duration) {
        return json!(least.max(Duration::from_secs(1)).to_string());
    }
    random_value_of_type(rng, &field.ty, field.bounds.int, now, records)
}

fn random_value_of_type(
    rng: &mut Rng,
    ty: &DataType,
    bounds: Option<(i64, i64)>,
    now: Time,
    records: &[RecordId],
) -> Json {
    match ty {
        DataType::Null => Json::Null,
        DataType::Bool => json!(rng.percent(50)),
        DataType::Int => {
            let (min, max) = bounds.unwrap_or((0, 10));
            // Sometimes out of bounds.
            json!(rng.between(min, max.min(min + 50)) + i64::from(rng.percent(3)) * 1_000)
        }
        DataType::Double => json!(0.5),
        // Few words, so that unique keys conflict.
        DataType::Text => json!(rng.pick_word(&["x", "y", "z", "ann", "bob"])),
        DataType::Enum(values) => json!(rng.pick(values).map_or("none", |value| value)),
        DataType::Time => {
            let away = rng.between(-20, 100);
            json!(Time::from_micros(now.micros() + away * 1_000_000).to_string())
        }
        DataType::Duration => json!(rng.pick_word(&["1s", "10s", "2m"])),
        DataType::Json => json!({ "any": 1 }),
        DataType::Ref(_) => rng.pick(records).map_or(Json::Null, |id| json!(id.to_string())),
        DataType::List(element) => {
            let count = rng.below(3);
            let mut items: Vec<Json> =
                (0..count).map(|_| random_value_of_type(rng, element, bounds, now, records)).collect();
            items.retain(|item| !item.is_null());
            Json::Array(items)
        }
    }
}
