//! What can be known of a value without running anything: whether it may be null, and a shape that holds whatever else
//! it may be. Every operation here rounds outward, so that what is claimed is true of every run.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::bounds;
use crate::model::{Bounds, Type};
use crate::time::Time;
use crate::value::Value;

/// Values named one by one stay so up to this many; beyond it only their sizes are kept.
const NAMED: usize = 256;
/// What no length of time that we read exceeds: ten thousand years in microseconds.
pub(crate) const LONGEST_DURATION: i128 = 10_000 * 366 * 86_400 * 1_000_000;
pub(crate) const I64: (i128, i128) = (i64::MIN as i128, i64::MAX as i128);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    /// May be null.
    pub(crate) null: bool,
    /// What it may be besides.
    pub(crate) shape: Shape,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    /// No value but null.
    Never,
    Bool {
        yes: bool,
        no: bool,
    },
    /// An int, or a time or a duration in microseconds: least and greatest.
    Number(i128, i128),
    Double(f64, f64),
    Text {
        size: (u64, u64),
        /// One of these, where they can be named.
        of: Option<Arc<BTreeSet<Arc<str>>>>,
        /// A pattern it is sure to match.
        pattern: Option<Arc<str>>,
    },
    Ref(Arc<[Arc<str>]>),
    List {
        size: (u64, u64),
        element: Box<Known>,
    },
    /// At most so many bytes.
    Json(u64),
    /// Nothing is known.
    Any,
}

impl Known {
    pub(crate) fn some(shape: Shape) -> Self {
        Self { null: false, shape }
    }

    pub(crate) fn only_null() -> Self {
        Self { null: true, shape: Shape::Never }
    }

    pub(crate) fn bool(yes: bool, no: bool) -> Self {
        Self::some(Shape::Bool { yes, no })
    }

    pub(crate) fn text(most: u64) -> Self {
        Self::some(Shape::Text { size: (0, most), of: None, pattern: None })
    }

    pub(crate) fn or_null(mut self, null: bool) -> Self {
        self.null |= null;
        self
    }

    pub(crate) fn not_null(mut self) -> Self {
        self.null = false;
        self
    }

    /// No value at all fits: the place is never reached.
    pub(crate) fn is_impossible(&self) -> bool {
        !self.null && self.shape.is_never()
    }

    /// Everything a value of the type and bounds may be, null where `nullable`.
    pub(crate) fn of_type(ty: &Type, bounds: &Bounds, nullable: bool) -> Self {
        Self { null: nullable || matches!(ty, Type::Null), shape: Shape::of_type(ty, bounds) }
    }

    /// Exactly this value.
    pub(crate) fn of_value(value: &Value) -> Self {
        let shape = match value {
            Value::Null => return Self::only_null(),
            Value::Bool(b) => Shape::Bool { yes: *b, no: !*b },
            Value::Int(i) => Shape::Number(i128::from(*i), i128::from(*i)),
            Value::Double(d) => Shape::Double(*d, *d),
            Value::Text(text) => Shape::named([text.clone()]),
            Value::Time(time) => Shape::Number(i128::from(time.micros()), i128::from(time.micros())),
            Value::Duration(length) => Shape::Number(i128::from(length.micros()), i128::from(length.micros())),
            Value::Ref(_) => Shape::Any,
            Value::List(items) => {
                let size = items.len() as u64;
                let element = items.iter().map(Self::of_value).reduce(|a, b| a.join(&b));
                let element = element.unwrap_or(Self::some(Shape::Never));
                Shape::List { size: (size, size), element: Box::new(element) }
            }
            Value::Json(text) => Shape::Json(text.len() as u64),
        };
        Self::some(shape)
    }

    /// What may be either.
    pub(crate) fn join(&self, other: &Self) -> Self {
        Self { null: self.null || other.null, shape: self.shape.join(&other.shape) }
    }

    /// What may be both.
    pub(crate) fn meet(&self, other: &Self) -> Self {
        Self { null: self.null && other.null, shape: self.shape.meet(&other.shape) }
    }

    /// How many bytes it may have as JSON.
    pub(crate) fn json_bytes(&self) -> u64 {
        match &self.shape {
            Shape::Never => 4,
            Shape::Bool { .. } => 5,
            // The longest are a time in RFC 3339, a duration and a ref in quotes, and a number in full.
            Shape::Number(..) | Shape::Double(..) | Shape::Ref(_) => 40,
            // A control character takes six.
            Shape::Text { size, .. } => size.1.saturating_mul(6).saturating_add(2),
            Shape::List { size, element } => {
                size.1.saturating_mul(element.json_bytes().saturating_add(1)).saturating_add(2)
            }
            Shape::Json(bytes) => *bytes,
            Shape::Any => u64::MAX,
        }
    }

    pub(crate) fn number(&self) -> Option<(i128, i128)> {
        match self.shape {
            Shape::Number(least, most) => Some((least, most)),
            _ => None,
        }
    }

    /// The one value it can be, where that is a single one.
    pub(crate) fn is_single(&self) -> bool {
        match &self.shape {
            Shape::Never => self.null,
            _ if self.null => false,
            Shape::Bool { yes, no } => yes != no,
            Shape::Number(least, most) => least == most,
            Shape::Text { of: Some(of), .. } => of.len() == 1,
            _ => false,
        }
    }

    /// Without the single value `other`, as far as the shape can say so.
    pub(crate) fn without(&self, other: &Self) -> Self {
        if !other.is_single() {
            return self.clone();
        }
        if other.null {
            return self.clone().not_null();
        }
        let shape = match (&self.shape, &other.shape) {
            (Shape::Bool { yes, no }, Shape::Bool { yes: not_yes, no: not_no }) => {
                Shape::Bool { yes: *yes && !*not_yes, no: *no && !*not_no }
            }
            (Shape::Number(least, most), Shape::Number(gone, _)) => {
                Shape::Number(least + i128::from(least == gone), most - i128::from(most == gone))
            }
            (Shape::Text { of: Some(of), .. }, Shape::Text { of: Some(gone), .. }) => {
                Shape::named(of.difference(gone).cloned())
            }
            (shape, _) => shape.clone(),
        };
        Self { null: self.null, shape: shape.settled() }
    }
}

impl Shape {
    pub(crate) fn is_never(&self) -> bool {
        matches!(self, Self::Never)
    }

    /// Text that is one of these.
    pub(crate) fn named(values: impl IntoIterator<Item = Arc<str>>) -> Self {
        let of: BTreeSet<Arc<str>> = values.into_iter().collect();
        let sizes = || of.iter().map(|value| value.chars().count() as u64);
        let Some(least) = sizes().min() else { return Self::Never };
        let size = (least, sizes().max().unwrap_or(least));
        Self::Text { size, of: (of.len() <= NAMED).then(|| Arc::new(of)), pattern: None }
    }

    pub(crate) fn of_type(ty: &Type, bounds: &Bounds) -> Self {
        match ty {
            Type::Null => Self::Never,
            Type::Bool => Self::Bool { yes: true, no: true },
            Type::Int => {
                let (least, most) = bounds.int.unwrap_or((i64::MIN, i64::MAX));
                Self::Number(i128::from(least), i128::from(most))
            }
            Type::Double => {
                let (least, most) = bounds.double.unwrap_or((f64::MIN, f64::MAX));
                Self::Double(least.max(f64::MIN), most.min(f64::MAX))
            }
            Type::Text => Self::Text {
                size: bounds.size.unwrap_or((0, bounds::TEXT_CHARS as u64)),
                of: None,
                pattern: bounds.pattern.as_ref().map(|pattern| Arc::from(pattern.as_str())),
            },
            Type::Enum(values) => Self::named(values.iter().cloned()),
            Type::Time => Self::Number(i128::from(Time::MIN.micros()), i128::from(Time::MAX.micros())),
            Type::Duration => {
                let (least, most) = bounds.duration.map_or((-LONGEST_DURATION, LONGEST_DURATION), |(least, most)| {
                    (i128::from(least.micros()), i128::from(most.micros()))
                });
                Self::Number(least.max(-LONGEST_DURATION), most.min(LONGEST_DURATION))
            }
            Type::Json => Self::Json(bounds.size.map_or(bounds::JSON_BYTES as u64, |(_, most)| most)),
            Type::Ref(lifecycles) => Self::Ref(lifecycles.clone()),
            Type::List(element) => {
                let none = Bounds::default();
                let inner = bounds.element.as_deref().unwrap_or(&none);
                Self::List {
                    size: bounds.size.unwrap_or((0, bounds::LIST_ITEMS as u64)),
                    element: Box::new(Known::of_type(element, inner, false)),
                }
            }
        }
    }

    fn join(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Never, shape) | (shape, Self::Never) => shape.clone(),
            (Self::Bool { yes, no }, Self::Bool { yes: y, no: n }) => Self::Bool { yes: *yes || *y, no: *no || *n },
            (Self::Number(a, b), Self::Number(c, d)) => Self::Number(*a.min(c), *b.max(d)),
            (Self::Double(a, b), Self::Double(c, d)) => Self::Double(a.min(*c), b.max(*d)),
            (Self::Text { size: a, of: x, pattern }, Self::Text { size: b, of: y, pattern: other }) => {
                let of = match (x, y) {
                    (Some(x), Some(y)) if x == y => Some(x.clone()),
                    (Some(x), Some(y)) => Some(Arc::new(x.union(y).cloned().collect::<BTreeSet<_>>())),
                    _ => None,
                };
                Self::Text {
                    size: (a.0.min(b.0), a.1.max(b.1)),
                    of: of.filter(|of| of.len() <= NAMED),
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
            (Self::Bool { yes, no }, Self::Bool { yes: y, no: n }) => Self::Bool { yes: *yes && *y, no: *no && *n },
            (Self::Number(a, b), Self::Number(c, d)) => Self::Number(*a.max(c), *b.min(d)),
            (Self::Double(a, b), Self::Double(c, d)) => Self::Double(a.max(*c), b.min(*d)),
            (Self::Text { size: a, of: x, pattern }, Self::Text { size: b, of: y, pattern: other }) => {
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
                    of => Self::Text { size, of: of.map(Arc::new), pattern },
                }
            }
            (Self::List { size: a, element: x }, Self::List { size: b, element: y }) => {
                Self::List { size: (a.0.max(b.0), a.1.min(b.1)), element: Box::new(x.meet(y)) }
            }
            (Self::Json(a), Self::Json(b)) => Self::Json(*a.min(b)),
            (Self::Any, shape) | (shape, _) => shape.clone(),
        }
        .settled()
    }

    /// An empty range is no value.
    fn settled(self) -> Self {
        match self {
            Self::Bool { yes: false, no: false } => Self::Never,
            Self::Number(least, most) if least > most => Self::Never,
            Self::Double(least, most) if least > most => Self::Never,
            Self::Text { size, .. } | Self::List { size, .. } if size.0 > size.1 => Self::Never,
            shape => shape,
        }
    }
}
