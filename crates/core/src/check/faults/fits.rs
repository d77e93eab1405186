//! Whether a value is sure to keep to a field's type and bounds.

use super::domain::{Known, Shape};
use crate::bounds;
use crate::counted;
use crate::model::{Bounds, Type};

/// Why the value may not fit; nothing where it surely does.
pub(crate) fn misfit(value: &Known, ty: &Type, limits: &Bounds, nullable: bool) -> Option<String> {
    if value.null && !nullable {
        return Some("may be null".to_owned());
    }
    match (&value.shape, ty) {
        (Shape::Number(least, most), Type::Int) => {
            let (low, high) = limits.int.unwrap_or((i64::MIN, i64::MAX));
            if *most > i128::from(high) {
                Some(format!("may be {}, and at most {high} is allowed", number(*most)))
            } else if *least < i128::from(low) {
                Some(format!("may be {}, and at least {low} is allowed", number(*least)))
            } else {
                None
            }
        }
        (Shape::Number(least, most), Type::Duration) => {
            let (low, high) = limits.duration?;
            if *most > i128::from(high.micros()) {
                Some(format!("may be longer than {high}"))
            } else if *least < i128::from(low.micros()) {
                Some(format!("may be shorter than {low}"))
            } else {
                None
            }
        }
        (Shape::Double(least, most), Type::Double) => {
            let (low, high) = limits.double.unwrap_or((f64::MIN, f64::MAX));
            if *most > high {
                Some(format!("may be {most}, and at most {high} is allowed"))
            } else if *least < low {
                Some(format!("may be {least}, and at least {low} is allowed"))
            } else {
                None
            }
        }
        (Shape::Text { of, .. }, Type::Enum(allowed)) => match of {
            Some(of) => of
                .iter()
                .find(|value| !allowed.contains(value))
                .map(|value| format!("may be `{value}`, which is not one of the field's values")),
            None => Some("may be any text, and only some values are allowed".to_owned()),
        },
        (Shape::Text { size, of, pattern }, Type::Text) => text(*size, of.as_deref(), pattern.as_deref(), limits),
        (Shape::List { size, element }, Type::List(inner)) => {
            let (fewest, most) = limits.size.unwrap_or((0, bounds::LIST_ITEMS as u64));
            if size.1 > most {
                return Some(too_many(size.1, "element", "elements", most));
            }
            if size.0 < fewest {
                return Some(too_few(size.0, "element", "elements", fewest));
            }
            if size.1 == 0 {
                return None;
            }
            let none = Bounds::default();
            misfit(element, inner, limits.element.as_deref().unwrap_or(&none), false)
                .map(|why| format!("has an element that {why}"))
        }
        (Shape::Json(bytes), Type::Json) => {
            let most = limits.size.map_or(bounds::JSON_BYTES as u64, |(_, most)| most);
            (*bytes > most).then(|| {
                format!("may take {}, and at most {most} {} allowed", counted(*bytes, "byte", "bytes"), are(most))
            })
        }
        (Shape::Ref(from), Type::Ref(to)) => from
            .iter()
            .find(|name| !to.contains(name))
            .map(|name| format!("may be a record of `{name}`, which the field does not take")),
        (Shape::Any, _) => Some("is not known to fit".to_owned()),
        _ => None,
    }
}

fn too_many(size: u64, one: &str, many: &str, most: u64) -> String {
    format!("may have {}, and at most {most} {} allowed", counted(size, one, many), are(most))
}

fn too_few(size: u64, one: &str, many: &str, fewest: u64) -> String {
    format!("may have {}, and at least {fewest} {} needed", counted(size, one, many), are(fewest))
}

fn are(count: u64) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

fn text(
    size: (u64, u64),
    of: Option<&std::collections::BTreeSet<std::sync::Arc<str>>>,
    pattern: Option<&str>,
    limits: &Bounds,
) -> Option<String> {
    let (fewest, most) = limits.size.unwrap_or((0, bounds::TEXT_CHARS as u64));
    if size.1 > most {
        return Some(too_many(size.1, "character", "characters", most));
    }
    if size.0 < fewest {
        return Some(too_few(size.0, "character", "characters", fewest));
    }
    let wanted = limits.pattern.as_ref()?;
    match of {
        Some(of) => of
            .iter()
            .find(|value| !wanted.is_match(value))
            .map(|value| format!("may be `{value}`, which does not match the field's pattern")),
        None if pattern == Some(wanted.as_str()) => None,
        None => Some("is not known to match the field's pattern".to_owned()),
    }
}

/// The ends of an int's range are named rather than written out.
fn number(value: i128) -> String {
    if super::counters::Counters::is_far(value) {
        "any large number".to_owned()
    } else if super::counters::Counters::is_far(-value) {
        "any number below zero".to_owned()
    } else {
        value.to_string()
    }
}
