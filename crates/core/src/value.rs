//! What a field, an input or an expression holds at run time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::time::{Duration, Time};

/// The public name of a record: a `UUIDv7`. Aligned like all else that a [`Value`] may hold, so that values are copied by
/// words and not by bytes.
#[repr(align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecordId(pub Uuid);

impl std::fmt::Display for RecordId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// One value. States and enum values are text; `ref_type` is a list of `Ref`; JSON is opaque text that no expression
/// reads into.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    /// Never NaN nor infinite: both are faults where they would arise.
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

    /// What the value is called in messages.
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

    /// As it appears in an answer over HTTP and in a message's body.
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
