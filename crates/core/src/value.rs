//! Runtime values of fields, inputs and expressions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::time::{Duration, Time};

/// Public id of a record: a `UUIDv7`. Aligned like the other payloads of [`Value`], so that the compiler copies values
/// by words instead of bytes.
#[repr(align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecordId(pub Uuid);

impl std::fmt::Display for RecordId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// One value. States and enum values are text; a `refs` field is a list of `Ref`; JSON is opaque text that expressions
/// cannot read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    /// Never NaN or infinite: an operation that would produce one faults.
    Double(f64),
    Text(Arc<str>),
    Time(Time),
    Duration(Duration),
    Ref(RecordId),
    List(Arc<[Value]>),
    Json(Arc<str>),
}

impl Value {
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Returns the type's name for messages.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Time(_) => "time",
            Self::Duration(_) => "duration",
            Self::Ref(_) => "ref",
            Self::List(_) => "list",
            Self::Json(_) => "json",
        }
    }

    /// Converts to the JSON used in HTTP responses and delivery bodies.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            Self::Null => Json::Null,
            Self::Bool(b) => Json::Bool(*b),
            Self::Int(i) => Json::from(*i),
            Self::Double(d) => Json::from(*d),
            Self::Text(t) => Json::from(&**t),
            Self::Time(t) => Json::from(t.to_string()),
            Self::Duration(d) => Json::from(d.to_string()),
            Self::Ref(id) => Json::from(id.to_string()),
            Self::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Self::Json(text) => serde_json::from_str(text).unwrap_or(Json::Null),
        }
    }
}
