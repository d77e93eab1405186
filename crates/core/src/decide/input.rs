//! Parses and validates input from callers as values of the declared types.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use crate::bounds;
use crate::model::{DataType, FieldBounds, FieldDef, Transition};
use crate::plural::count_noun;
use crate::time::Duration;
use crate::value::{RecordId, Value};

/// Input of an event, before it is matched with a transition.
#[derive(Clone, Copy)]
pub(super) enum EventInput<'a> {
    Empty,
    /// From a caller.
    Json(&'a Map<String, Json>),
    /// From another record's transition; already typed.
    Values(&'a [(Arc<str>, Value)]),
}

/// Inputs of one transition by index, and which of them were given.
pub(super) struct ParsedInputs {
    pub(super) values: Vec<Value>,
    pub(super) is_given: Vec<bool>,
}

/// Parses an event's input for a transition. The error is a sentence for the caller.
pub(super) fn parse_inputs(
    transition: &Transition,
    is_creation: bool,
    event_input: EventInput,
) -> Result<ParsedInputs, String> {
    let mut inputs = ParsedInputs {
        values: vec![Value::Null; transition.inputs.len()],
        is_given: vec![false; transition.inputs.len()],
    };
    let index_of = |name: &str| {
        transition.inputs.iter().position(|input| *input.field.name == *name).ok_or_else(|| {
            let input_names: Vec<&str> = transition.inputs.iter().map(|input| &*input.field.name).collect();
            if input_names.is_empty() {
                format!("`{name}` is not accepted; the transition has no inputs")
            } else {
                format!("`{name}` is not accepted; allowed inputs: {}", input_names.join(", "))
            }
        })
    };
    match event_input {
        EventInput::Empty => {}
        EventInput::Json(map) => {
            for (name, json) in map {
                let index = index_of(name)?;
                inputs.values[index] = parse_field(&transition.inputs[index].field, json)?;
                inputs.is_given[index] = true;
            }
        }
        EventInput::Values(values) => {
            for (name, value) in values {
                let index = index_of(name)?;
                validate_value(&transition.inputs[index].field, value)?;
                inputs.values[index] = value.clone();
                inputs.is_given[index] = true;
            }
        }
    }
    for (index, input) in transition.inputs.iter().enumerate() {
        if inputs.is_given[index] {
            continue;
        }
        let field = &input.field;
        if let (None, Some(default)) = (input.target_field, &field.default) {
            inputs.values[index] = default.clone();
        }
        let is_required = match input.target_field {
            // At creation the field needs a value; later an absent input leaves the field unchanged.
            Some(slot) => {
                is_creation
                    && !field.nullable
                    && field.default.is_none()
                    && !transition.set.iter().any(|(set, _)| *set == slot)
            }
            None => !field.nullable && field.default.is_none(),
        };
        if is_required {
            return Err(format!("`{}` is missing", field.name));
        }
    }
    Ok(inputs)
}

/// Whether the name of an owner or worker is within the bound for strings.
pub(super) fn is_valid_name(name: &str) -> bool {
    !name.contains('\0') && (name.len() <= bounds::MAX_TEXT_CHARS || name.chars().count() <= bounds::MAX_TEXT_CHARS)
}

/// Parses an object of declared fields: a result, or a check's answer.
pub(super) fn parse_fields(fields: &[FieldDef], json: &Json) -> Result<Vec<Value>, String> {
    let empty = Map::new();
    let map = match json {
        Json::Object(map) => map,
        Json::Null => &empty,
        _ => return Err("expected an object".to_owned()),
    };
    if let Some(name) = map.keys().find(|name| !fields.iter().any(|field| *field.name == **name)) {
        return Err(format!("`{name}` is not declared"));
    }
    fields
        .iter()
        .map(|field| match map.get(&*field.name) {
            Some(json) => parse_field(field, json),
            None if field.default.is_some() => Ok(field.default.clone().unwrap_or_default()),
            None if field.nullable => Ok(Value::Null),
            None => Err(format!("`{}` is missing", field.name)),
        })
        .collect()
}

/// Parses and validates the value of a declared field.
pub(super) fn parse_field(field: &FieldDef, json: &Json) -> Result<Value, String> {
    let value = if json.is_null() { Value::Null } else { parse_value(&field.name, &field.ty, json)? };
    validate_value(field, &value)?;
    Ok(value)
}

fn parse_value(name: &str, ty: &DataType, json: &Json) -> Result<Value, String> {
    let text = || json.as_str().ok_or_else(|| format!("`{name}` must be a string"));
    Ok(match ty {
        DataType::Null => return Err(format!("`{name}` must be null")),
        DataType::Bool => Value::Bool(json.as_bool().ok_or_else(|| format!("`{name}` must be true or false"))?),
        DataType::Int => Value::Int(json.as_i64().ok_or_else(|| format!("`{name}` must be a whole number"))?),
        DataType::Double => Value::Double(
            json.as_f64().filter(|number| number.is_finite()).ok_or_else(|| format!("`{name}` must be a number"))?,
        ),
        DataType::Text | DataType::Enum(_) => Value::text(text()?),
        DataType::Time => Value::Time(text()?.parse().map_err(|error| format!("`{name}`: {error}"))?),
        DataType::Duration => Value::Duration(text()?.parse().map_err(|error| format!("`{name}`: {error}"))?),
        DataType::Json => Value::Json(json.to_string().into()),
        DataType::Ref(_) => {
            Value::Ref(RecordId(text()?.parse().map_err(|_| format!("`{name}` must be the id of a record"))?))
        }
        DataType::List(element) => {
            let items = json.as_array().ok_or_else(|| format!("`{name}` must be a list"))?;
            Value::List(items.iter().map(|item| parse_value(name, element, item)).collect::<Result<_, _>>()?)
        }
    })
}

/// Checks a value against its field's type and bounds. The error says what is wrong.
pub fn validate_value(field: &FieldDef, value: &Value) -> Result<(), String> {
    if value.is_null() {
        return if field.nullable { Ok(()) } else { Err(format!("`{}` must not be null", field.name)) };
    }
    validate_bounds(&field.name, &field.ty, &field.bounds, value)
}

/// Mentions only the bounds that were declared.
fn duration_bounds_message(name: &str, min: Duration, max: Duration) -> String {
    match (min.micros() == i64::MIN, max.micros() == i64::MAX) {
        (true, _) => format!("`{name}` must be at most {max}"),
        (_, true) => format!("`{name}` must be at least {min}"),
        _ => format!("`{name}` must be from {min} to {max}"),
    }
}

fn validate_bounds(name: &str, ty: &DataType, bounds: &FieldBounds, value: &Value) -> Result<(), String> {
    match (ty, value) {
        (DataType::Int, Value::Int(number)) => match bounds.int {
            Some((min, max)) if !(min..=max).contains(number) => Err(format!("`{name}` must be from {min} to {max}")),
            _ => Ok(()),
        },
        (DataType::Double, Value::Double(number)) => match bounds.double {
            Some((min, max)) if !(min..=max).contains(number) => Err(format!("`{name}` must be from {min} to {max}")),
            _ => Ok(()),
        },
        (DataType::Duration, Value::Duration(length)) => match bounds.duration {
            Some((min, max)) if !(min..=max).contains(length) => Err(duration_bounds_message(name, min, max)),
            _ => Ok(()),
        },
        (DataType::Enum(values), Value::Text(text)) => {
            if values.contains(text) {
                Ok(())
            } else {
                Err(format!("`{name}` must be one of: {}", values.join(", ")))
            }
        }
        (DataType::Text, Value::Text(text)) => validate_text(name, bounds, text),
        (DataType::List(element), Value::List(items)) => {
            if let Some((min, max)) = bounds.size {
                let size = items.len() as u64;
                if size < min || size > max {
                    return Err(format!("`{name}` must have from {min} to {}", count_noun(max, "element", "elements")));
                }
            }
            let no_bounds = FieldBounds::default();
            let element_bounds = bounds.element.as_deref().unwrap_or(&no_bounds);
            items.iter().try_for_each(|item| validate_bounds(name, element, element_bounds, item))
        }
        (DataType::Json, Value::Json(text)) => match bounds.size {
            Some((_, max)) if text.len() as u64 > max => {
                Err(format!("`{name}` must have at most {}", count_noun(max, "byte", "bytes")))
            }
            _ => Ok(()),
        },
        (DataType::Bool, Value::Bool(_)) | (DataType::Time, Value::Time(_)) | (DataType::Ref(_), Value::Ref(_)) => {
            Ok(())
        }
        _ => Err(format!("`{name}` must not be a {}", value.type_name())),
    }
}

fn validate_text(name: &str, bounds: &FieldBounds, text: &str) -> Result<(), String> {
    if text.contains('\0') {
        return Err(format!("`{name}` must not contain NUL"));
    }
    if let Some((min, max)) = bounds.size {
        // A text has at least as many bytes as characters, so a text that is short in bytes needs no counting.
        let bytes = text.len() as u64;
        if bytes > max && text.chars().count() as u64 > max {
            return Err(format!("`{name}` must have at most {}", count_noun(max, "character", "characters")));
        }
        if min > 0 && (text.chars().count() as u64) < min {
            return Err(format!("`{name}` must have at least {}", count_noun(min, "character", "characters")));
        }
    }
    match &bounds.pattern {
        Some(pattern) if !pattern.is_match(text) => Err(format!("`{name}` must match {pattern}")),
        _ => Ok(()),
    }
}
