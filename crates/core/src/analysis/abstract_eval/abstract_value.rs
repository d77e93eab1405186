//! Abstract values: whether a value may be null, and a shape that covers everything else it may be. Every operation
//! rounds outward, so that the result covers every run.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::bounds;
use crate::model::{DataType, FieldBounds};
use crate::time::Time;
use crate::value::Value;

/// Beyond this many listed texts, only their sizes are kept.
const MAX_NAMED_VALUES: usize = 256;
/// The longest duration that parses: ten thousand years.
pub(crate) const MAX_DURATION_MICROS: i128 = 10_000 * 366 * 86_400 * 1_000_000;
pub(crate) const I64_RANGE: (i128, i128) = (i64::MIN as i128, i64::MAX as i128);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AbstractValue {
    pub(crate) may_be_null: bool,
    /// Possible values besides null.
    pub(crate) shape: AbstractShape,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AbstractShape {
    /// No value except null.
    Never,
    Bool {
        can_be_true: bool,
        can_be_false: bool,
    },
    /// An int, or a time or duration in microseconds: minimum and maximum.
    Number(i128, i128),
    Double(f64, f64),
    Text {
        size: (u64, u64),
        /// The possible texts, if they can be listed.
        allowed_values: Option<Arc<BTreeSet<Arc<str>>>>,
        /// A pattern that the text surely matches.
        pattern: Option<Arc<str>>,
    },
    Ref(Arc<[Arc<str>]>),
    List {
        size: (u64, u64),
        element: Box<AbstractValue>,
    },
    /// Maximum bytes.
    Json(u64),
    /// Unknown.
    Any,
}

impl AbstractValue {
    pub(crate) fn non_null(shape: AbstractShape) -> Self {
        Self { may_be_null: false, shape }
    }

    pub(crate) fn only_null() -> Self {
        Self { may_be_null: true, shape: AbstractShape::Never }
    }

    pub(crate) fn bool(can_be_true: bool, can_be_false: bool) -> Self {
        Self::non_null(AbstractShape::Bool { can_be_true, can_be_false })
    }

    pub(crate) fn text_up_to(max_chars: u64) -> Self {
        Self::non_null(AbstractShape::Text { size: (0, max_chars), allowed_values: None, pattern: None })
    }

    pub(crate) fn or_null(mut self, may_be_null: bool) -> Self {
        self.may_be_null |= may_be_null;
        self
    }

    pub(crate) fn without_null(mut self) -> Self {
        self.may_be_null = false;
        self
    }

    /// Whether no value is possible, so that the code is unreachable.
    pub(crate) fn is_empty(&self) -> bool {
        !self.may_be_null && self.shape.is_never()
    }

    /// Covers all values of the type and bounds, and null if `nullable`.
    pub(crate) fn of_type(ty: &DataType, bounds: &FieldBounds, nullable: bool) -> Self {
        Self { may_be_null: nullable || matches!(ty, DataType::Null), shape: AbstractShape::of_type(ty, bounds) }
    }

    /// Exactly this value.
    pub(crate) fn of_value(value: &Value) -> Self {
        let shape = match value {
            Value::Null => return Self::only_null(),
            Value::Bool(b) => AbstractShape::Bool { can_be_true: *b, can_be_false: !*b },
            Value::Int(i) => AbstractShape::Number(i128::from(*i), i128::from(*i)),
            Value::Double(d) => AbstractShape::Double(*d, *d),
            Value::Text(text) => AbstractShape::one_of([text.clone()]),
            Value::Time(time) => AbstractShape::Number(i128::from(time.micros()), i128::from(time.micros())),
            Value::Duration(length) => AbstractShape::Number(i128::from(length.micros()), i128::from(length.micros())),
            Value::Ref(_) => AbstractShape::Any,
            Value::List(items) => {
                let size = items.len() as u64;
                let element = items.iter().map(Self::of_value).reduce(|a, b| a.join(&b));
                let element = element.unwrap_or(Self::non_null(AbstractShape::Never));
                AbstractShape::List { size: (size, size), element: Box::new(element) }
            }
            Value::Json(text) => AbstractShape::Json(text.len() as u64),
        };
        Self::non_null(shape)
    }

    /// Covers both values.
    pub(crate) fn join(&self, other: &Self) -> Self {
        Self { may_be_null: self.may_be_null || other.may_be_null, shape: self.shape.join(&other.shape) }
    }

    /// Covers the values that both cover.
    pub(crate) fn meet(&self, other: &Self) -> Self {
        Self { may_be_null: self.may_be_null && other.may_be_null, shape: self.shape.meet(&other.shape) }
    }

    /// Returns the maximum bytes as JSON.
    pub(crate) fn max_json_bytes(&self) -> u64 {
        match &self.shape {
            AbstractShape::Never => 4,
            AbstractShape::Bool { .. } => 5,
            // The longest are a quoted RFC 3339 time, duration or ref, and a number in full.
            AbstractShape::Number(..) | AbstractShape::Double(..) | AbstractShape::Ref(_) => 40,
            // A control character takes six bytes.
            AbstractShape::Text { size, .. } => size.1.saturating_mul(6).saturating_add(2),
            AbstractShape::List { size, element } => {
                size.1.saturating_mul(element.max_json_bytes().saturating_add(1)).saturating_add(2)
            }
            AbstractShape::Json(bytes) => *bytes,
            AbstractShape::Any => u64::MAX,
        }
    }

    pub(crate) fn number_range(&self) -> Option<(i128, i128)> {
        match self.shape {
            AbstractShape::Number(least, most) => Some((least, most)),
            _ => None,
        }
    }

    /// Whether exactly one value is possible.
    pub(crate) fn is_single_value(&self) -> bool {
        match &self.shape {
            AbstractShape::Never => self.may_be_null,
            _ if self.may_be_null => false,
            AbstractShape::Bool { can_be_true: yes, can_be_false: no } => yes != no,
            AbstractShape::Number(least, most) => least == most,
            AbstractShape::Text { allowed_values: Some(of), .. } => of.len() == 1,
            _ => false,
        }
    }

    /// Removes the single value `other`, if the shape can express it.
    pub(crate) fn without_value(&self, other: &Self) -> Self {
        if !other.is_single_value() {
            return self.clone();
        }
        if other.may_be_null {
            return self.clone().without_null();
        }
        let shape = match (&self.shape, &other.shape) {
            (
                AbstractShape::Bool { can_be_true: yes, can_be_false: no },
                AbstractShape::Bool { can_be_true: not_yes, can_be_false: not_no },
            ) => AbstractShape::Bool { can_be_true: *yes && !*not_yes, can_be_false: *no && !*not_no },
            (AbstractShape::Number(least, most), AbstractShape::Number(gone, _)) => {
                AbstractShape::Number(least + i128::from(least == gone), most - i128::from(most == gone))
            }
            (
                AbstractShape::Text { allowed_values: Some(of), .. },
                AbstractShape::Text { allowed_values: Some(gone), .. },
            ) => AbstractShape::one_of(of.difference(gone).cloned()),
            (shape, _) => shape.clone(),
        };
        Self { may_be_null: self.may_be_null, shape: shape.normalized() }
    }
}

impl AbstractShape {
    pub(crate) fn is_never(&self) -> bool {
        matches!(self, Self::Never)
    }

    /// Text that is one of these.
    pub(crate) fn one_of(values: impl IntoIterator<Item = Arc<str>>) -> Self {
        let allowed_values: BTreeSet<Arc<str>> = values.into_iter().collect();
        let sizes = || allowed_values.iter().map(|value| value.chars().count() as u64);
        let Some(least) = sizes().min() else { return Self::Never };
        let size = (least, sizes().max().unwrap_or(least));
        Self::Text {
            size,
            allowed_values: (allowed_values.len() <= MAX_NAMED_VALUES).then(|| Arc::new(allowed_values)),
            pattern: None,
        }
    }

    pub(crate) fn of_type(ty: &DataType, bounds: &FieldBounds) -> Self {
        match ty {
            DataType::Null => Self::Never,
            DataType::Bool => Self::Bool { can_be_true: true, can_be_false: true },
            DataType::Int => {
                let (least, most) = bounds.int.unwrap_or((i64::MIN, i64::MAX));
                Self::Number(i128::from(least), i128::from(most))
            }
            DataType::Double => {
                let (least, most) = bounds.double.unwrap_or((f64::MIN, f64::MAX));
                Self::Double(least.max(f64::MIN), most.min(f64::MAX))
            }
            DataType::Text => Self::Text {
                size: bounds.size.unwrap_or((0, bounds::MAX_TEXT_CHARS as u64)),
                allowed_values: None,
                pattern: bounds.pattern.as_ref().map(|pattern| Arc::from(pattern.as_str())),
            },
            DataType::Enum(values) => Self::one_of(values.iter().cloned()),
            DataType::Time => Self::Number(i128::from(Time::MIN.micros()), i128::from(Time::MAX.micros())),
            DataType::Duration => {
                let (least, most) =
                    bounds.duration.map_or((-MAX_DURATION_MICROS, MAX_DURATION_MICROS), |(least, most)| {
                        (i128::from(least.micros()), i128::from(most.micros()))
                    });
                Self::Number(least.max(-MAX_DURATION_MICROS), most.min(MAX_DURATION_MICROS))
            }
            DataType::Json => Self::Json(bounds.size.map_or(bounds::DEFAULT_MAX_JSON_BYTES as u64, |(_, most)| most)),
            DataType::Ref(lifecycles) => Self::Ref(lifecycles.clone()),
            DataType::List(element) => {
                let none = FieldBounds::default();
                let inner = bounds.element.as_deref().unwrap_or(&none);
                Self::List {
                    size: bounds.size.unwrap_or((0, bounds::DEFAULT_MAX_LIST_ITEMS as u64)),
                    element: Box::new(AbstractValue::of_type(element, inner, false)),
                }
            }
        }
    }

    fn join(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Never, shape) | (shape, Self::Never) => shape.clone(),
            (Self::Bool { can_be_true: yes, can_be_false: no }, Self::Bool { can_be_true: y, can_be_false: n }) => {
                Self::Bool { can_be_true: *yes || *y, can_be_false: *no || *n }
            }
            (Self::Number(a, b), Self::Number(c, d)) => Self::Number(*a.min(c), *b.max(d)),
            (Self::Double(a, b), Self::Double(c, d)) => Self::Double(a.min(*c), b.max(*d)),
            (
                Self::Text { size: a, allowed_values: x, pattern },
                Self::Text { size: b, allowed_values: y, pattern: other },
            ) => {
                let of = match (x, y) {
                    (Some(x), Some(y)) if x == y => Some(x.clone()),
                    (Some(x), Some(y)) => Some(Arc::new(x.union(y).cloned().collect::<BTreeSet<_>>())),
                    _ => None,
                };
                Self::Text {
                    size: (a.0.min(b.0), a.1.max(b.1)),
                    allowed_values: of.filter(|of| of.len() <= MAX_NAMED_VALUES),
                    pattern: pattern.clone().filter(|_| pattern == other),
                }
            }
            (Self::Ref(a), Self::Ref(b)) if a == b => Self::Ref(a.clone()),
            (Self::Ref(a), Self::Ref(b)) => {
                Self::Ref(a.iter().chain(b.iter()).collect::<BTreeSet<_>>().into_iter().cloned().collect())
            }
            (Self::List { size: a, element: x }, Self::List { size: b, element: y }) => {
                Self::List { size: (a.0.min(b.0), a.1.max(b.1)), element: Box::new(x.join(y)) }
            }
            (Self::Json(a), Self::Json(b)) => Self::Json(*a.max(b)),
            _ => Self::Any,
        }
    }

    fn meet(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::Bool { can_be_true: yes, can_be_false: no }, Self::Bool { can_be_true: y, can_be_false: n }) => {
                Self::Bool { can_be_true: *yes && *y, can_be_false: *no && *n }
            }
            (Self::Number(a, b), Self::Number(c, d)) => Self::Number(*a.max(c), *b.min(d)),
            (Self::Double(a, b), Self::Double(c, d)) => Self::Double(a.max(*c), b.min(*d)),
            (
                Self::Text { size: a, allowed_values: x, pattern },
                Self::Text { size: b, allowed_values: y, pattern: other },
            ) => {
                let size = (a.0.max(b.0), a.1.min(b.1));
                let fits = |value: &&Arc<str>| {
                    let chars = value.chars().count() as u64;
                    size.0 <= chars && chars <= size.1
                };
                let of: Option<BTreeSet<Arc<str>>> = match (x, y) {
                    (Some(x), Some(y)) => Some(x.intersection(y).filter(fits).cloned().collect()),
                    (Some(x), None) | (None, Some(x)) => Some(x.iter().filter(fits).cloned().collect()),
                    (None, None) => None,
                };
                let pattern = pattern.clone().or_else(|| other.clone());
                match of {
                    Some(of) if of.is_empty() => Self::Never,
                    of => Self::Text { size, allowed_values: of.map(Arc::new), pattern },
                }
            }
            (Self::List { size: a, element: x }, Self::List { size: b, element: y }) => {
                Self::List { size: (a.0.max(b.0), a.1.min(b.1)), element: Box::new(x.meet(y)) }
            }
            (Self::Json(a), Self::Json(b)) => Self::Json(*a.min(b)),
            (Self::Any, shape) | (shape, _) => shape.clone(),
        }
        .normalized()
    }

    /// Turns an empty range into `Never`.
    fn normalized(self) -> Self {
        match self {
            Self::Bool { can_be_true: false, can_be_false: false } => Self::Never,
            Self::Number(least, most) if least > most => Self::Never,
            Self::Double(least, most) if least > most => Self::Never,
            Self::Text { size, .. } | Self::List { size, .. } if size.0 > size.1 => Self::Never,
            shape => shape,
        }
    }
}
