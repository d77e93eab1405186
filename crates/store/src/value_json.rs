//! Encodes field values as compact, exact JSON that is readable in a database shell. Values with a JSON equivalent are
//! written as such; others become an object with a one-letter tag.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use onceward_core::time::{Duration, Time};
use onceward_core::value::{RecordId, Value};
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value in this encoding.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValueJson(pub(crate) Value);

/// Like [`ValueJson`], but borrowed.
pub(crate) struct ValueJsonRef<'a>(pub(crate) &'a Value);

impl Serialize for ValueJson {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        ValueJsonRef(&self.0).serialize(out)
    }
}

impl Serialize for ValueJsonRef<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        fn serialize_tagged<S: Serializer>(
            out: S,
            kind: &str,
            value: &(impl Serialize + ?Sized),
        ) -> Result<S::Ok, S::Error> {
            let mut map = out.serialize_map(Some(1))?;
            map.serialize_entry(kind, value)?;
            map.end()
        }
        match self.0 {
            Value::Null => out.serialize_unit(),
            Value::Bool(b) => out.serialize_bool(*b),
            Value::Int(i) => out.serialize_i64(*i),
            Value::Text(t) => out.serialize_str(t),
            // As text, because the JSON parser rounds some numbers and Rust's own parser does not.
            Value::Double(d) => serialize_tagged(out, "f", &d.to_string()),
            Value::Time(t) => serialize_tagged(out, "t", &t.micros()),
            Value::Duration(d) => serialize_tagged(out, "d", &d.micros()),
            Value::Ref(id) => serialize_tagged(out, "r", id),
            Value::Json(text) => serialize_tagged(out, "j", &**text),
            Value::List(items) => serialize_tagged(out, "l", &items.iter().map(ValueJsonRef).collect::<Vec<_>>()),
        }
    }
}

impl<'de> Deserialize<'de> for ValueJson {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ValueJsonVisitor).map(Self)
    }
}

struct ValueJsonVisitor;

impl<'de> Visitor<'de> for ValueJsonVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, b: bool) -> Result<Value, E> {
        Ok(Value::Bool(b))
    }

    fn visit_i64<E: Error>(self, i: i64) -> Result<Value, E> {
        Ok(Value::Int(i))
    }

    fn visit_u64<E: Error>(self, u: u64) -> Result<Value, E> {
        i64::try_from(u).map(Value::Int).map_err(|_| E::custom("an integer does not fit 64 bits"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::text(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let kind = map.next_key::<Cow<'de, str>>()?.ok_or_else(|| A::Error::custom("a value has no kind"))?;
        let value = match &*kind {
            "f" => {
                let text: String = map.next_value()?;
                Value::Double(text.parse().map_err(A::Error::custom)?)
            }
            "t" => Value::Time(Time::from_micros(map.next_value()?)),
            "d" => Value::Duration(Duration::from_micros(map.next_value()?)),
            "r" => Value::Ref(map.next_value::<RecordId>()?),
            "j" => Value::Json(map.next_value::<Arc<str>>()?),
            "l" => Value::List(map.next_value::<Vec<ValueJson>>()?.into_iter().map(|item| item.0).collect()),
            other => return Err(A::Error::custom(format!("unknown kind of value `{other}`"))),
        };
        Ok(value)
    }
}

/// Encodes the fields of a record, by slot.
pub(crate) fn write_fields(fields: &[Value]) -> Result<String, serde_json::Error> {
    serde_json::to_string(&fields.iter().map(ValueJsonRef).collect::<Vec<_>>())
}

pub(crate) fn read_fields(text: &str) -> Result<Vec<Value>, serde_json::Error> {
    Ok(serde_json::from_str::<Vec<ValueJson>>(text)?.into_iter().map(|field| field.0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_kind_round_trips_through_json() {
        let id = RecordId(uuid::Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001));
        let values = vec![
            Value::Null,
            Value::Bool(true),
            Value::Int(i64::MIN),
            Value::Int(i64::MAX),
            Value::Double(0.1 + 0.2),
            Value::Double(-0.0),
            Value::Double(5e-324),
            Value::Double(1.797_693_134_862_315_7e308),
            Value::text("a \"quoted\" \u{1f600} text\n"),
            Value::Time(Time::from_micros(-1)),
            Value::Duration(Duration::from_micros(i64::MIN)),
            Value::Ref(id),
            Value::List([Value::Ref(id), Value::Null, Value::text("x")].into()),
            Value::Json("{\"a\": [1, 2.50]}".into()),
        ];
        let text = write_fields(&values).unwrap();
        assert_eq!(format!("{:?}", read_fields(&text).unwrap()), format!("{values:?}"), "{text}");
    }

    #[test]
    fn malformed_field_json_is_rejected() {
        for text in ["", "5", "[{}]", "[{\"x\": 1}]", "[18446744073709551615]", "[1.5]", "[{\"f\": \"half\"}]"] {
            assert!(read_fields(text).is_err(), "{text}");
        }
    }
}
