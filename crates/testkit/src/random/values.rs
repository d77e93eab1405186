//! Random input that a field may well take, and some that it will not.

use onceward_core::model::{Field, Type};
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use serde_json::{Value as Json, json};

use super::chance::Chance;

/// A value for a field: mostly one that fits.
pub(crate) fn plausible(chance: &mut Chance, field: &Field, now: Time, records: &[RecordId]) -> Json {
    if chance.yes(4) {
        return json!({ "no": "such shape" });
    }
    if field.nullable && chance.yes(15) {
        return Json::Null;
    }
    if let (Type::Duration, Some((least, _))) = (&field.ty, field.bounds.duration) {
        return json!(least.max(Duration::from_secs(1)).to_string());
    }
    of_type(chance, &field.ty, field.bounds.int, now, records)
}

fn of_type(chance: &mut Chance, ty: &Type, bounds: Option<(i64, i64)>, now: Time, records: &[RecordId]) -> Json {
    match ty {
        Type::Null => Json::Null,
        Type::Bool => json!(chance.yes(50)),
        Type::Int => {
            let (least, most) = bounds.unwrap_or((0, 10));
            // One beyond, now and then.
            json!(chance.between(least, most.min(least + 50)) + i64::from(chance.yes(3)) * 1_000)
        }
        Type::Double => json!(0.5),
        // Few words, so that keys meet.
        Type::Text => json!(chance.word(&["x", "y", "z", "ann", "bob"])),
        Type::Enum(values) => json!(chance.pick(values).map_or("none", |value| value)),
        Type::Time => {
            let away = chance.between(-20, 100);
            json!(Time::from_micros(now.micros() + away * 1_000_000).to_string())
        }
        Type::Duration => json!(chance.word(&["1s", "10s", "2m"])),
        Type::Json => json!({ "any": 1 }),
        Type::Ref(_) => chance.pick(records).map_or(Json::Null, |id| json!(id.to_string())),
        Type::List(element) => {
            let count = chance.below(3);
            let mut items: Vec<Json> = (0..count).map(|_| of_type(chance, element, bounds, now, records)).collect();
            items.retain(|item| !item.is_null());
            Json::Array(items)
        }
    }
}
