//! Whether a value surely fits a field's type and bounds.

use super::abstract_value::{AbstractShape, AbstractValue};
use crate::bounds;
use crate::model::{DataType, FieldBounds};
use crate::plural::count_noun;

/// Returns why the value may not fit; `None` if it surely fits.
pub(crate) fn find_misfit(
    value: &AbstractValue,
    ty: &DataType,
    bounds: &FieldBounds,
    nullable: bool,
) -> Option<String> {
    if value.may_be_null && !nullable {
        return Some("may be null".to_owned());
    }
    match (&value.shape, ty) {
        (AbstractShape::Number(least, most), DataType::Int) => {
            let (min, max) = bounds.int.unwrap_or((i64::MIN, i64::MAX));
            if *most > i128::from(max) {
                Some(format!("may be {}, but at most {max} is allowed", describe_number(*most)))
            } else if *least < i128::from(min) {
                Some(format!("may be {}, but at least {min} is required", describe_number(*least)))
            } else {
                None
            }
        }
        (AbstractShape::Number(least, most), DataType::Duration) => {
            let (low, high) = bounds.duration?;
            if *most > i128::from(high.micros()) {
                Some(format!("may be longer than {high}"))
            } else if *least < i128::from(low.micros()) {
                Some(format!("may be shorter than {low}"))
            } else {
                None
            }
        }
        (AbstractShape::Double(least, most), DataType::Double) => {
            let (low, high) = bounds.double.unwrap_or((f64::MIN, f64::MAX));
            if *most > high {
                Some(format!("may be {most}, but at most {high} is allowed"))
            } else if *least < low {
                Some(format!("may be {least}, but at least {low} is required"))
            } else {
                None
            }
        }
        (AbstractShape::Text { allowed_values: of, .. }, DataType::Enum(allowed)) => match of {
            Some(of) => of
                .iter()
                .find(|value| !allowed.contains(value))
                .map(|value| format!("may be `{value}`, which is not one of the field's values")),
            None => Some("may be any text, but only some values are allowed".to_owned()),
        },
        (AbstractShape::Text { size, allowed_values: of, pattern }, DataType::Text) => {
            find_text_misfit(*size, of.as_deref(), pattern.as_deref(), bounds)
        }
        (AbstractShape::List { size, element }, DataType::List(inner)) => {
            let (min_items, max_items) = bounds.size.unwrap_or((0, bounds::DEFAULT_MAX_LIST_ITEMS as u64));
            if size.1 > max_items {
                return Some(too_many_message(size.1, "element", "elements", max_items));
            }
            if size.0 < min_items {
                return Some(too_few_message(size.0, "element", "elements", min_items));
            }
            if size.1 == 0 {
                return None;
            }
            let none = FieldBounds::default();
            find_misfit(element, inner, bounds.element.as_deref().unwrap_or(&none), false)
                .map(|why| format!("has an element that {why}"))
        }
        (AbstractShape::Json(bytes), DataType::Json) => {
            let max_bytes = bounds.size.map_or(bounds::DEFAULT_MAX_JSON_BYTES as u64, |(_, most)| most);
            (*bytes > max_bytes).then(|| {
                format!(
                    "may take {}, but at most {max_bytes} {} allowed",
                    count_noun(*bytes, "byte", "bytes"),
                    be_verb(max_bytes)
                )
            })
        }
        (AbstractShape::Ref(from), DataType::Ref(to)) => from
            .iter()
            .find(|name| !to.contains(name))
            .map(|name| format!("may be a record of `{name}`, which the field does not accept")),
        (AbstractShape::Any, _) => Some("may not fit".to_owned()),
        _ => None,
    }
}

fn too_many_message(size: u64, singular: &str, plural: &str, max: u64) -> String {
    format!("may have {}, but at most {max} {} allowed", count_noun(size, singular, plural), be_verb(max))
}

fn too_few_message(size: u64, singular: &str, plural: &str, min: u64) -> String {
    format!("may have {}, but at least {min} {} needed", count_noun(size, singular, plural), be_verb(min))
}

fn be_verb(count: u64) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

fn find_text_misfit(
    size: (u64, u64),
    allowed_values: Option<&std::collections::BTreeSet<std::sync::Arc<str>>>,
    pattern: Option<&str>,
    bounds: &FieldBounds,
) -> Option<String> {
    let (min_chars, max_chars) = bounds.size.unwrap_or((0, bounds::MAX_TEXT_CHARS as u64));
    if size.1 > max_chars {
        return Some(too_many_message(size.1, "character", "characters", max_chars));
    }
    if size.0 < min_chars {
        return Some(too_few_message(size.0, "character", "characters", min_chars));
    }
    let required_pattern = bounds.pattern.as_ref()?;
    match allowed_values {
        Some(of) => of
            .iter()
            .find(|value| !required_pattern.is_match(value))
            .map(|value| format!("may be `{value}`, which does not match the field's pattern")),
        None if pattern == Some(required_pattern.as_str()) => None,
        None => Some("may not match the field's pattern".to_owned()),
    }
}

/// Names the ends of the int range instead of writing them out.
fn describe_number(value: i128) -> String {
    if super::counters::CounterFields::is_unreachable(value) {
        "any large number".to_owned()
    } else if super::counters::CounterFields::is_unreachable(-value) {
        "any number below zero".to_owned()
    } else {
        value.to_string()
    }
}
