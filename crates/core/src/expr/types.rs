//! Names of types in messages, and relations between types.

use std::sync::Arc;

use crate::model::{DataType, ValueType};

pub(super) fn value_type(ty: DataType, nullable: bool) -> ValueType {
    ValueType { ty, nullable }
}

/// Returns the name of a type for messages.
pub(super) fn type_name(ty: &DataType) -> String {
    match ty {
        DataType::Null => "null".to_owned(),
        DataType::Bool => "a bool".to_owned(),
        DataType::Int => "an int".to_owned(),
        DataType::Double => "a double".to_owned(),
        DataType::Text => "a string".to_owned(),
        DataType::Enum(values) => format!("one of {}", list_names(values)),
        DataType::Time => "a time".to_owned(),
        DataType::Duration => "a duration".to_owned(),
        DataType::Json => "json".to_owned(),
        DataType::Ref(lifecycles) => format!("a ref to {}", lifecycles.join(" or ")),
        DataType::List(element) => match &**element {
            DataType::Null => "an empty list".to_owned(),
            element => format!("a list of {}", type_name(element).trim_start_matches("a ").trim_start_matches("an ")),
        },
    }
}

/// Lists the first names, so that a message stays on one line.
pub(super) fn list_names(names: &[Arc<str>]) -> String {
    const MAX_LISTED_NAMES: usize = 8;
    let mut text = names.iter().take(MAX_LISTED_NAMES).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if names.len() > MAX_LISTED_NAMES {
        text.push_str(", …");
    }
    text
}

fn intersects(one: &[Arc<str>], other: &[Arc<str>]) -> bool {
    one.iter().any(|name| other.contains(name))
}

fn is_subset(part: &[Arc<str>], whole: &[Arc<str>]) -> bool {
    part.iter().all(|name| whole.contains(name))
}

fn union_names(one: &[Arc<str>], other: &[Arc<str>]) -> Arc<[Arc<str>]> {
    let mut all = one.to_vec();
    all.extend(other.iter().filter(|name| !one.contains(name)).cloned());
    all.into()
}

/// Returns whether `==` between the types can be true.
pub(super) fn is_comparable(one: &DataType, other: &DataType) -> bool {
    match (one, other) {
        (DataType::Null, _)
        | (_, DataType::Null)
        | (DataType::Enum(_), DataType::Text)
        | (DataType::Text, DataType::Enum(_)) => true,
        (DataType::Json, _) | (_, DataType::Json) => false,
        (DataType::Enum(one), DataType::Enum(other)) | (DataType::Ref(one), DataType::Ref(other)) => {
            intersects(one, other)
        }
        (DataType::List(one), DataType::List(other)) => is_comparable(one, other),
        _ => one == other,
    }
}

/// Returns whether every value of the first type is a value of the second.
pub(super) fn is_assignable(value: &DataType, expected: &DataType) -> bool {
    match (value, expected) {
        (DataType::Null, _) | (DataType::Enum(_), DataType::Text) => true,
        (DataType::Enum(value), DataType::Enum(want)) | (DataType::Ref(value), DataType::Ref(want)) => {
            is_subset(value, want)
        }
        (DataType::List(value), DataType::List(want)) => is_assignable(value, want),
        _ => value == expected,
    }
}

/// Returns the narrowest type that contains both types.
pub(super) fn join_types(one: &DataType, other: &DataType) -> Option<DataType> {
    Some(match (one, other) {
        (DataType::Null, ty) | (ty, DataType::Null) => ty.clone(),
        (DataType::Enum(one), DataType::Enum(other)) => DataType::Enum(union_names(one, other)),
        (DataType::Enum(_), DataType::Text) | (DataType::Text, DataType::Enum(_)) => DataType::Text,
        (DataType::Ref(one), DataType::Ref(other)) => DataType::Ref(union_names(one, other)),
        (DataType::List(one), DataType::List(other)) => DataType::List(Box::new(join_types(one, other)?)),
        (one, other) if one == other => one.clone(),
        _ => return None,
    })
}

/// Returns whether the type is text or an enum, whose values are text.
pub(super) fn is_text(ty: &DataType) -> bool {
    matches!(ty, DataType::Text | DataType::Enum(_))
}
