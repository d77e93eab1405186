//! Converts literals of declarations (`default`, `const`) to values of a field's type.

use std::sync::Arc;

use crate::model::{DataType, FieldBounds};
use crate::syntax::ast::FieldLiteral;
use crate::value::Value;

/// Converts the literal to a value of the type within the bounds. The error says why it cannot.
pub(super) fn literal_value(literal: &FieldLiteral, ty: &DataType, bounds: &FieldBounds) -> Result<Value, String> {
    let value = match (ty, literal) {
        (DataType::Bool, FieldLiteral::Bool(flag)) => Value::Bool(*flag),
        (DataType::Int, FieldLiteral::Int(int)) => Value::Int(*int),
        (DataType::Double, FieldLiteral::Double(double)) => Value::Double(*double),
        (DataType::Double, FieldLiteral::Int(int)) => match int.to_string().parse() {
            Ok(double) => Value::Double(double),
            Err(_) => return Err("is not a number".into()),
        },
        (DataType::Text, FieldLiteral::Text(text)) => Value::Text(text.text.clone()),
        (DataType::Enum(values), FieldLiteral::Text(text)) => {
            if !values.contains(&text.text) {
                return Err(format!("is not one of its values: {}", values.join(", ")));
            }
            Value::Text(text.text.clone())
        }
        (DataType::Time, FieldLiteral::Text(text)) => {
            Value::Time(text.text.parse().map_err(|_| "is not a time in RFC 3339".to_owned())?)
        }
        (DataType::Duration, FieldLiteral::Text(text)) => {
            Value::Duration(text.text.parse().map_err(|_| "is not a duration, such as \"30s\"".to_owned())?)
        }
        (DataType::Duration, FieldLiteral::Int(number)) => {
            return Err(format!("is a number without a unit: write \"{number}s\" for seconds"));
        }
        (DataType::List(of), FieldLiteral::List(items)) => {
            let plain = FieldBounds::default();
            let element = bounds.element.as_deref().unwrap_or(&plain);
            let items: Result<Arc<[Value]>, String> =
                items.iter().map(|item| self::literal_value(&item.value, of, element)).collect();
            Value::List(items?)
        }
        (DataType::Json | DataType::Ref(_), _) => return Err("is not possible: the type has no literals".into()),
        (_, literal) => return Err(format!("is {}, which does not fit its type", literal.kind())),
    };
    if is_within_bounds(bounds, &value) { Ok(value) } else { Err("is outside the field's bounds".into()) }
}

fn is_within_bounds(bounds: &FieldBounds, value: &Value) -> bool {
    let sized = |length: usize| bounds.size.is_none_or(|(min, max)| (min..=max).contains(&(length as u64)));
    match value {
        Value::Int(int) => bounds.int.is_none_or(|(min, max)| (min..=max).contains(int)),
        Value::Double(double) => bounds.double.is_none_or(|(min, max)| (min..=max).contains(double)),
        Value::Duration(length) => bounds.duration.is_none_or(|(min, max)| (min..=max).contains(length)),
        Value::Text(text) => {
            sized(text.chars().count()) && bounds.pattern.as_ref().is_none_or(|pattern| pattern.is_match(text))
        }
        Value::List(items) => sized(items.len()),
        _ => true,
    }
}
