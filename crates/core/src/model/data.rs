//! Types and fields.

use std::sync::Arc;

use serde::Serialize;

use crate::diagnostic::Span;
use crate::time::Duration;
use crate::value::Value;

/// What a value may be, apart from null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum DataType {
    /// The type of the literal `null` alone.
    Null,
    Bool,
    Int,
    Double,
    Text,
    /// Text out of a closed list: enum fields and states.
    Enum(Arc<[Arc<str>]>),
    Time,
    Duration,
    /// Opaque: may be passed on and compared with null, never read.
    Json,
    /// A record of one of these lifecycles.
    Ref(Arc<[Arc<str>]>),
    List(Box<DataType>),
}

/// A type and whether null is possible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ValueType {
    pub ty: DataType,
    pub nullable: bool,
}

/// A declared field of a record, an input, a result or an answer.
#[derive(Clone, Debug, Serialize)]
pub struct FieldDef {
    pub name: Arc<str>,
    #[serde(skip)]
    pub about: Arc<str>,
    pub ty: DataType,
    /// `optional`: may be null.
    pub nullable: bool,
    /// What a new record starts with; for a `const` field, what it always is.
    pub default: Option<Value>,
    pub is_constant: bool,
    pub bounds: FieldBounds,
    #[serde(skip)]
    pub span: Span,
}

/// What a value of the field's type must keep to. Which of them apply follows from the type; an unset one does not.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FieldBounds {
    /// Int: least and greatest value.
    pub int: Option<(i64, i64)>,
    /// Double: least and greatest value.
    pub double: Option<(f64, f64)>,
    /// Duration: least and greatest length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<(Duration, Duration)>,
    /// Text: fewest and most characters. List: fewest and most elements. Json: most bytes.
    pub size: Option<(u64, u64)>,
    /// Text: must match as a whole where it says so with anchors.
    #[serde(serialize_with = "pattern_text")]
    pub pattern: Option<regex::Regex>,
    /// List of text: the bounds of each element.
    pub element: Option<Box<FieldBounds>>,
}

#[expect(clippy::ref_option, reason = "the shape that serde asks for")]
fn pattern_text<S: serde::Serializer>(pattern: &Option<regex::Regex>, out: S) -> Result<S::Ok, S::Error> {
    pattern.as_ref().map(regex::Regex::as_str).serialize(out)
}
