//! Arithmetic that never wraps, and never gives what is not a number.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use super::super::env::{FaultKind, Stop};
use super::super::tree::Binary;
use super::machine::{Got, boolean, fault};
use crate::diagnostic::Span;
use crate::value::Value;

fn checked<'a>(value: Option<Value>, at: Span) -> Got<'a> {
    value.map(Cow::Owned).ok_or_else(|| fault(FaultKind::Overflow, at))
}

pub(super) fn finite<'a>(value: f64, at: Span) -> Got<'a> {
    if value.is_finite() { Ok(Cow::Owned(Value::Double(value))) } else { Err(fault(FaultKind::NotANumber, at)) }
}

pub(super) fn negate<'a>(value: &Value, at: Span) -> Got<'a> {
    match value {
        Value::Int(number) => checked(number.checked_neg().map(Value::Int), at),
        Value::Double(number) => finite(-number, at),
        _ => Err(fault(FaultKind::WrongType, at)),
    }
}

/// Every operator that needs both of its operands.
pub(super) fn binary<'a>(operator: Binary, one: &Value, other: &Value, at: Span) -> Got<'a> {
    match operator {
        Binary::Add => add(one, other, at),
        Binary::Subtract => subtract(one, other, at),
        Binary::Multiply | Binary::Divide | Binary::Remainder => product(operator, one, other, at),
        Binary::Less => order(one, other, at).and_then(|order| boolean(order.is_lt())),
        Binary::LessOrEqual => order(one, other, at).and_then(|order| boolean(order.is_le())),
        Binary::Greater => order(one, other, at).and_then(|order| boolean(order.is_gt())),
        Binary::GreaterOrEqual => order(one, other, at).and_then(|order| boolean(order.is_ge())),
        // These take null, or look into a list: the machine knows how.
        Binary::Equal | Binary::NotEqual | Binary::In => Err(fault(FaultKind::WrongType, at)),
    }
}

/// Values of one kind that have an order.
pub(super) fn order(one: &Value, other: &Value, at: Span) -> Result<Ordering, Box<Stop>> {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => Ok(one.cmp(other)),
        (Value::Double(one), Value::Double(other)) => {
            one.partial_cmp(other).ok_or_else(|| fault(FaultKind::NotANumber, at))
        }
        (Value::Text(one), Value::Text(other)) => Ok(one.cmp(other)),
        (Value::Time(one), Value::Time(other)) => Ok(one.cmp(other)),
        (Value::Duration(one), Value::Duration(other)) => Ok(one.cmp(other)),
        _ => Err(fault(FaultKind::WrongType, at)),
    }
}

fn add<'a>(one: &Value, other: &Value, at: Span) -> Got<'a> {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => checked(one.checked_add(*other).map(Value::Int), at),
        (Value::Double(one), Value::Double(other)) => finite(one + other, at),
        (Value::Time(time), Value::Duration(length)) | (Value::Duration(length), Value::Time(time)) => {
            checked(time.checked_add(*length).map(Value::Time), at)
        }
        (Value::Duration(one), Value::Duration(other)) => checked(one.checked_add(*other).map(Value::Duration), at),
        (Value::Text(one), Value::Text(other)) => Ok(Cow::Owned(Value::text([&**one, &**other].concat()))),
        (Value::List(one), Value::List(other)) => {
            let both: Arc<[Value]> = one.iter().chain(other.iter()).cloned().collect();
            Ok(Cow::Owned(Value::List(both)))
        }
        _ => Err(fault(FaultKind::WrongType, at)),
    }
}

fn subtract<'a>(one: &Value, other: &Value, at: Span) -> Got<'a> {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => checked(one.checked_sub(*other).map(Value::Int), at),
        (Value::Double(one), Value::Double(other)) => finite(one - other, at),
        (Value::Time(one), Value::Time(other)) => checked(one.since(*other).map(Value::Duration), at),
        (Value::Time(time), Value::Duration(length)) => checked(time.checked_sub(*length).map(Value::Time), at),
        (Value::Duration(one), Value::Duration(other)) => checked(one.checked_sub(*other).map(Value::Duration), at),
        _ => Err(fault(FaultKind::WrongType, at)),
    }
}

fn product<'a>(operator: Binary, one: &Value, other: &Value, at: Span) -> Got<'a> {
    match (operator, one, other) {
        (Binary::Multiply, Value::Int(one), Value::Int(other)) => checked(one.checked_mul(*other).map(Value::Int), at),
        (Binary::Multiply, Value::Double(one), Value::Double(other)) => finite(one * other, at),
        (Binary::Divide | Binary::Remainder, Value::Int(_), Value::Int(0)) => Err(fault(FaultKind::DivisionByZero, at)),
        (Binary::Divide, Value::Int(one), Value::Int(other)) => checked(one.checked_div(*other).map(Value::Int), at),
        (Binary::Remainder, Value::Int(one), Value::Int(other)) => checked(one.checked_rem(*other).map(Value::Int), at),
        (Binary::Divide, Value::Double(_), Value::Double(other)) if *other == 0.0 => {
            Err(fault(FaultKind::DivisionByZero, at))
        }
        (Binary::Divide, Value::Double(one), Value::Double(other)) => finite(one / other, at),
        _ => Err(fault(FaultKind::WrongType, at)),
    }
}
