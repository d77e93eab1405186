//! Data types and field definitions.

use std::sync::Arc;

use serde::Serialize;

use crate::diagnostic::Span;
use crate::time::Duration;
use crate::value::Value;

/// Type of a value, apart from null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum DataType {
    /// Type of the literal `null` only.
    Null,
    Bool,
    Int,
    Double,
    Text,
    /// Text from a closed list: enum fields and states.
    Enum(Arc<[Arc<str>]>),
    Time,
    Duration,
    /// Opaque: may be copied and compared with null, never read.
    Json,
    /// A record of one of these lifecycles.
    Ref(Arc<[Arc<str>]>),
    List(Box<DataType>),
}

/// A type with its nullability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ValueType {
    pub ty: DataType,
    pub nullable: bool,
}

/// A declared field of a record, an input, a result or a check's answer.
#[derive(Clone, Debug, Serialize)]
pub struct FieldDef {
    pub name: Arc<str>,
    #[serde(skip)]
    pub about: Arc<str>,
    pub ty: DataType,
    /// `optional`: may be null.
    pub nullable: bool,
    /// Value of a new record; for a `const` field, its value always.
    pub default: Option<Value>,
    pub is_constant: bool,
    pub bounds: FieldBounds,
    #[serde(skip)]
    pub span: Span,
}

/// Bounds on a field's values. The type decides which apply.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FieldBounds {
    /// Int: minimum and maximum.
    pub int: Option<(i64, i64)>,
    /// Double: minimum and maximum.
    pub double: Option<(f64, f64)>,
    /// Duration: minimum and maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<(Duration, Duration)>,
    /// Text: minimum and maximum characters. List: minimum and maximum elements. JSON: maximum bytes.
    pub size: Option<(u64, u64)>,
    /// Text: matches anywhere in the value unless the pattern has anchors.
    #[serde(serialize_with = "pattern_text")]
    pub pattern: Option<regex::Regex>,
    /// List of text: the bounds of each element.
    pub element: Option<Box<FieldBounds>>,
}

#[expect(clippy::ref_option, reason = "serde requires the signature")]
fn pattern_text<S: serde::Serializer>(pattern: &Option<regex::Regex>, out: S) -> Result<S::Ok, S::Error> {
    pattern.as_ref().map(regex::Regex::as_str).serialize(out)
}
