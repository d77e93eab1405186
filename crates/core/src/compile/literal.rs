//! Literals of declarations (`default`, `const`) as values of a field's type.

use std::sync::Arc;

use crate::model::{Bounds, Type};
use crate::syntax::ast::Literal;
use crate::value::Value;

/// The literal as a value of the type, within the bounds; else why not.
pub(super) fn value(literal: &Literal, ty: &Type, bounds: &Bounds) -> Result<Value, String> {
    let value = match (ty, literal) {
        (Type::Bool, Literal::Bool(flag)) => Value::Bool(*flag),
        (Type::Int, Literal::Int(int)) => Value::Int(*int),
        (Type::Double, Literal::Double(double)) => Value::Double(*double),
        (Type::Double, Literal::Int(int)) => match int.to_string().parse() {
            Ok(double) => Value::Double(double),
            Err(_) => return Err("is not a number".into()),
        },
        (Type::Text, Literal::Text(text)) => Value::Text(text.text.clone()),
        (Type::Enum(values), Literal::Text(text)) => {
            if !values.contains(&text.text) {
                return Err(format!("is not one of its values: {}", values.join(", ")));
            }
            Value::Text(text.text.clone())
        }
        (Type::Time, Literal::Text(text)) => {
            Value::Time(text.text.parse().map_err(|_| "is not a time in RFC 3339".to_owned())?)
        }
        (Type::Duration, Literal::Text(text)) => {
            Value::Duration(text.text.parse().map_err(|_| "is not a duration, as \"30s\"".to_owned())?)
        }
        (Type::Duration, Literal::Int(number)) => {
            return Err(format!("is a number without a unit: write \"{number}s\" for seconds"));
        }
        (Type::List(of), Literal::List(items)) => {
            let plain = Bounds::default();
            let element = bounds.element.as_deref().unwrap_or(&plain);
            let items: Result<Arc<[Value]>, String> =
                items.iter().map(|item| self::value(&item.value, of, element)).collect();
            Value::List(items?)
        }
        (Type::Json | Type::Ref(_), _) => return Err("is not possible: this type has no literals".into()),
        (_, literal) => return Err(format!("is {}, which does not fit its type", literal.kind())),
    };
    if admits(bounds, &value) { Ok(value) } else { Err("is outside the field's bounds".into()) }
}

fn admits(bounds: &Bounds, value: &Value) -> bool {
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
