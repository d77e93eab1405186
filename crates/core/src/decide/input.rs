//! What callers give, made into values of the declared types, or refused with the reason.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use crate::bounds;
use crate::counted;
use crate::model::{Bounds, Field, Row, Type};
use crate::time::Duration;
use crate::value::{RecordId, Value};

/// What came with an event, before any row has looked at it.
#[derive(Clone, Copy)]
pub(super) enum Given<'a> {
    Nothing,
    /// From a caller.
    Json(&'a Map<String, Json>),
    /// From another record's row; already typed.
    Values(&'a [(Arc<str>, Value)]),
}

/// The inputs of one row: by index, with which of them were given at all.
pub(super) struct Inputs {
    pub(super) values: Vec<Value>,
    pub(super) given: Vec<bool>,
}

/// Read what was given as a row's inputs. The error is a sentence for the caller.
pub(super) fn read(row: &Row, creating: bool, given: Given) -> Result<Inputs, String> {
    let mut inputs = Inputs { values: vec![Value::Null; row.inputs.len()], given: vec![false; row.inputs.len()] };
    let find = |name: &str| {
        row.inputs.iter().position(|input| *input.field.name == *name).ok_or_else(|| {
            let known: Vec<&str> = row.inputs.iter().map(|input| &*input.field.name).collect();
            if known.is_empty() {
                format!("`{name}` is given, but nothing is taken here")
            } else {
                format!("`{name}` is not taken here; these are: {}", known.join(", "))
            }
        })
    };
    match given {
        Given::Nothing => {}
        Given::Json(map) => {
            for (name, json) in map {
                let at = find(name)?;
                inputs.values[at] = from_json(&row.inputs[at].field, json)?;
                inputs.given[at] = true;
            }
        }
        Given::Values(values) => {
            for (name, value) in values {
                let at = find(name)?;
                fits(&row.inputs[at].field, value)?;
                inputs.values[at] = value.clone();
                inputs.given[at] = true;
            }
        }
    }
    for (at, input) in row.inputs.iter().enumerate() {
        if inputs.given[at] {
            continue;
        }
        let field = &input.field;
        if let (None, Some(default)) = (input.take, &field.default) {
            inputs.values[at] = default.clone();
        }
        let needed = match input.take {
            // At creation a field must come to have a value; later an absent one leaves it as it is.
            Some(slot) => {
                creating && !field.nullable && field.default.is_none() && !row.set.iter().any(|(set, _)| *set == slot)
            }
            None => !field.nullable && field.default.is_none(),
        };
        if needed {
            return Err(format!("`{}` is missing", field.name));
        }
    }
    Ok(inputs)
}

/// Whether a name that a call carries (an owner, a worker) keeps to the bound that every string has.
pub(super) fn is_bounded(name: &str) -> bool {
    !name.contains('\0') && (name.len() <= bounds::TEXT_CHARS || name.chars().count() <= bounds::TEXT_CHARS)
}

/// Read an object of declared parts: a result, or a check's answer.
pub(super) fn read_parts(fields: &[Field], json: &Json) -> Result<Vec<Value>, String> {
    let empty = Map::new();
    let map = match json {
        Json::Object(map) => map,
        Json::Null => &empty,
        _ => return Err("an object is wanted here".to_owned()),
    };
    if let Some(name) = map.keys().find(|name| !fields.iter().any(|field| *field.name == **name)) {
        return Err(format!("`{name}` is not declared here"));
    }
    fields
        .iter()
        .map(|field| match map.get(&*field.name) {
            Some(json) => from_json(field, json),
            None if field.default.is_some() => Ok(field.default.clone().unwrap_or_default()),
            None if field.nullable => Ok(Value::Null),
            None => Err(format!("`{}` is missing", field.name)),
        })
        .collect()
}

/// One value of a declared field.
pub(super) fn from_json(field: &Field, json: &Json) -> Result<Value, String> {
    let value = if json.is_null() { Value::Null } else { typed(&field.name, &field.ty, json)? };
    fits(field, &value)?;
    Ok(value)
}

fn typed(name: &str, ty: &Type, json: &Json) -> Result<Value, String> {
    let text = || json.as_str().ok_or_else(|| format!("`{name}` must be a string"));
    Ok(match ty {
        Type::Null => return Err(format!("`{name}` must be null")),
        Type::Bool => Value::Bool(json.as_bool().ok_or_else(|| format!("`{name}` must be true or false"))?),
        Type::Int => Value::Int(json.as_i64().ok_or_else(|| format!("`{name}` must be a whole number"))?),
        Type::Double => Value::Double(
            json.as_f64().filter(|number| number.is_finite()).ok_or_else(|| format!("`{name}` must be a number"))?,
        ),
        Type::Text | Type::Enum(_) => Value::text(text()?),
        Type::Time => Value::Time(text()?.parse().map_err(|error| format!("`{name}`: {error}"))?),
        Type::Duration => Value::Duration(text()?.parse().map_err(|error| format!("`{name}`: {error}"))?),
        Type::Json => Value::Json(json.to_string().into()),
        Type::Ref(_) => {
            Value::Ref(RecordId(text()?.parse().map_err(|_| format!("`{name}` must be the id of a record"))?))
        }
        Type::List(element) => {
            let items = json.as_array().ok_or_else(|| format!("`{name}` must be a list"))?;
            Value::List(items.iter().map(|item| typed(name, element, item)).collect::<Result<_, _>>()?)
        }
    })
}

/// Whether a value keeps to its field's type and bounds; the error says how not.
pub fn fits(field: &Field, value: &Value) -> Result<(), String> {
    if value.is_null() {
        return if field.nullable { Ok(()) } else { Err(format!("`{}` must not be null", field.name)) };
    }
    within(&field.name, &field.ty, &field.bounds, value)
}

/// Only the bounds that were given are told.
fn out_of_time(name: &str, min: Duration, max: Duration) -> String {
    match (min.micros() == i64::MIN, max.micros() == i64::MAX) {
        (true, _) => format!("`{name}` must be at most {max}"),
        (_, true) => format!("`{name}` must be at least {min}"),
        _ => format!("`{name}` must be from {min} to {max}"),
    }
}

fn within(name: &str, ty: &Type, bounds: &Bounds, value: &Value) -> Result<(), String> {
    match (ty, value) {
        (Type::Int, Value::Int(number)) => match bounds.int {
            Some((min, max)) if !(min..=max).contains(number) => Err(format!("`{name}` must be from {min} to {max}")),
            _ => Ok(()),
        },
        (Type::Double, Value::Double(number)) => match bounds.double {
            Some((min, max)) if !(min..=max).contains(number) => Err(format!("`{name}` must be from {min} to {max}")),
            _ => Ok(()),
        },
        (Type::Duration, Value::Duration(length)) => match bounds.duration {
            Some((min, max)) if !(min..=max).contains(length) => Err(out_of_time(name, min, max)),
            _ => Ok(()),
        },
        (Type::Enum(values), Value::Text(text)) => {
            if values.contains(text) {
                Ok(())
            } else {
                Err(format!("`{name}` must be one of: {}", values.join(", ")))
            }
        }
        (Type::Text, Value::Text(text)) => within_text(name, bounds, text),
        (Type::List(element), Value::List(items)) => {
            if let Some((min, max)) = bounds.size {
                let size = items.len() as u64;
                if size < min || size > max {
                    return Err(format!("`{name}` must have from {min} to {}", counted(max, "element", "elements")));
                }
            }
            let plain = Bounds::default();
            let element_bounds = bounds.element.as_deref().unwrap_or(&plain);
            items.iter().try_for_each(|item| within(name, element, element_bounds, item))
        }
        (Type::Json, Value::Json(text)) => match bounds.size {
            Some((_, max)) if text.len() as u64 > max => {
                Err(format!("`{name}` must have at most {}", counted(max, "byte", "bytes")))
            }
            _ => Ok(()),
        },
        (Type::Bool, Value::Bool(_)) | (Type::Time, Value::Time(_)) | (Type::Ref(_), Value::Ref(_)) => Ok(()),
        _ => Err(format!("`{name}` must not be a {}", value.kind())),
    }
}

fn within_text(name: &str, bounds: &Bounds, text: &str) -> Result<(), String> {
    if text.contains('\0') {
        return Err(format!("`{name}` must not contain NUL"));
    }
    if let Some((min, max)) = bounds.size {
        // Bytes are never fewer than characters, so a text that is short in bytes needs no counting.
        let bytes = text.len() as u64;
        if bytes > max && text.chars().count() as u64 > max {
            return Err(format!("`{name}` must have at most {}", counted(max, "character", "characters")));
        }
        if min > 0 && (text.chars().count() as u64) < min {
            return Err(format!("`{name}` must have at least {}", counted(min, "character", "characters")));
        }
    }
    match &bounds.pattern {
        Some(pattern) if !pattern.is_match(text) => Err(format!("`{name}` must match {pattern}")),
        _ => Ok(()),
    }
}
