//! How types are named in messages, and which go together.

use std::sync::Arc;

use crate::model::{Type, Typed};

/// A type, and whether null is possible.
pub(super) fn typed(ty: Type, nullable: bool) -> Typed {
    Typed { ty, nullable }
}

/// What a type is called in messages.
pub(super) fn name_of(ty: &Type) -> String {
    match ty {
        Type::Null => "null".to_owned(),
        Type::Bool => "a bool".to_owned(),
        Type::Int => "an int".to_owned(),
        Type::Double => "a double".to_owned(),
        Type::Text => "a string".to_owned(),
        Type::Enum(values) => format!("one of {}", listed(values)),
        Type::Time => "a time".to_owned(),
        Type::Duration => "a duration".to_owned(),
        Type::Json => "json".to_owned(),
        Type::Ref(lifecycles) => format!("a ref to {}", lifecycles.join(" or ")),
        Type::List(element) => match &**element {
            Type::Null => "an empty list".to_owned(),
            element => format!("a list of {}", name_of(element).trim_start_matches("a ").trim_start_matches("an ")),
        },
    }
}

/// The first few names, so that a message stays one line.
pub(super) fn listed(names: &[Arc<str>]) -> String {
    const SHOWN: usize = 8;
    let mut text = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(", …");
    }
    text
}

fn shares(one: &[Arc<str>], other: &[Arc<str>]) -> bool {
    one.iter().any(|name| other.contains(name))
}

fn within(part: &[Arc<str>], whole: &[Arc<str>]) -> bool {
    part.iter().all(|name| whole.contains(name))
}

fn union(one: &[Arc<str>], other: &[Arc<str>]) -> Arc<[Arc<str>]> {
    let mut all = one.to_vec();
    all.extend(other.iter().filter(|name| !one.contains(name)).cloned());
    all.into()
}

/// Whether `==` between them can ever be true.
pub(super) fn comparable(one: &Type, other: &Type) -> bool {
    match (one, other) {
        (Type::Null, _) | (_, Type::Null) | (Type::Enum(_), Type::Text) | (Type::Text, Type::Enum(_)) => true,
        (Type::Json, _) | (_, Type::Json) => false,
        (Type::Enum(one), Type::Enum(other)) | (Type::Ref(one), Type::Ref(other)) => shares(one, other),
        (Type::List(one), Type::List(other)) => comparable(one, other),
        _ => one == other,
    }
}

/// Whether every value of the one type is a value of the other.
pub(super) fn fits(value: &Type, want: &Type) -> bool {
    match (value, want) {
        (Type::Null, _) | (Type::Enum(_), Type::Text) => true,
        (Type::Enum(value), Type::Enum(want)) | (Type::Ref(value), Type::Ref(want)) => within(value, want),
        (Type::List(value), Type::List(want)) => fits(value, want),
        _ => value == want,
    }
}

/// The narrowest type that holds the values of both.
pub(super) fn join(one: &Type, other: &Type) -> Option<Type> {
    Some(match (one, other) {
        (Type::Null, ty) | (ty, Type::Null) => ty.clone(),
        (Type::Enum(one), Type::Enum(other)) => Type::Enum(union(one, other)),
        (Type::Enum(_), Type::Text) | (Type::Text, Type::Enum(_)) => Type::Text,
        (Type::Ref(one), Type::Ref(other)) => Type::Ref(union(one, other)),
        (Type::List(one), Type::List(other)) => Type::List(Box::new(join(one, other)?)),
        (one, other) if one == other => one.clone(),
        _ => return None,
    })
}

/// Text, or a word out of a closed list, which is text too.
pub(super) fn is_text(ty: &Type) -> bool {
    matches!(ty, Type::Text | Type::Enum(_))
}
