//! Evaluates arithmetic and comparisons. Overflow and NaN are faults.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use super::super::env::{EvalStop, FaultKind};
use super::super::tree::BinaryOperator;
use super::evaluator::{EvalResult, boolean, fault};
use crate::diagnostic::Span;
use crate::value::Value;

fn or_overflow<'a>(value: Option<Value>, span: Span) -> EvalResult<'a> {
    value.map(Cow::Owned).ok_or_else(|| fault(FaultKind::Overflow, span))
}

pub(super) fn finite_or_fault<'a>(value: f64, span: Span) -> EvalResult<'a> {
    if value.is_finite() { Ok(Cow::Owned(Value::Double(value))) } else { Err(fault(FaultKind::NotANumber, span)) }
}

pub(super) fn negate<'a>(value: &Value, span: Span) -> EvalResult<'a> {
    match value {
        Value::Int(number) => or_overflow(number.checked_neg().map(Value::Int), span),
        Value::Double(number) => finite_or_fault(-number, span),
        _ => Err(fault(FaultKind::WrongType, span)),
    }
}

/// Applies an operator that needs both operands.
pub(super) fn apply_binary<'a>(operator: BinaryOperator, one: &Value, other: &Value, span: Span) -> EvalResult<'a> {
    match operator {
        BinaryOperator::Add => add(one, other, span),
        BinaryOperator::Subtract => subtract(one, other, span),
        BinaryOperator::Multiply | BinaryOperator::Divide | BinaryOperator::Remainder => {
            multiply_or_divide(operator, one, other, span)
        }
        BinaryOperator::Less => compare(one, other, span).and_then(|order| boolean(order.is_lt())),
        BinaryOperator::LessOrEqual => compare(one, other, span).and_then(|order| boolean(order.is_le())),
        BinaryOperator::Greater => compare(one, other, span).and_then(|order| boolean(order.is_gt())),
        BinaryOperator::GreaterOrEqual => compare(one, other, span).and_then(|order| boolean(order.is_ge())),
        // The evaluator handles these: they accept null or search a list.
        BinaryOperator::Equal | BinaryOperator::NotEqual | BinaryOperator::In => Err(fault(FaultKind::WrongType, span)),
    }
}

/// Compares two values of one ordered type.
pub(super) fn compare(one: &Value, other: &Value, span: Span) -> Result<Ordering, Box<EvalStop>> {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => Ok(one.cmp(other)),
        (Value::Double(one), Value::Double(other)) => {
            one.partial_cmp(other).ok_or_else(|| fault(FaultKind::NotANumber, span))
        }
        (Value::Text(one), Value::Text(other)) => Ok(one.cmp(other)),
        (Value::Time(one), Value::Time(other)) => Ok(one.cmp(other)),
        (Value::Duration(one), Value::Duration(other)) => Ok(one.cmp(other)),
        _ => Err(fault(FaultKind::WrongType, span)),
    }
}

fn add<'a>(one: &Value, other: &Value, span: Span) -> EvalResult<'a> {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => or_overflow(one.checked_add(*other).map(Value::Int), span),
        (Value::Double(one), Value::Double(other)) => finite_or_fault(one + other, span),
        (Value::Time(time), Value::Duration(length)) | (Value::Duration(length), Value::Time(time)) => {
            or_overflow(time.checked_add(*length).map(Value::Time), span)
        }
        (Value::Duration(one), Value::Duration(other)) => {
            or_overflow(one.checked_add(*other).map(Value::Duration), span)
        }
        (Value::Text(one), Value::Text(other)) => Ok(Cow::Owned(Value::text([&**one, &**other].concat()))),
        (Value::List(one), Value::List(other)) => {
            let both: Arc<[Value]> = one.iter().chain(other.iter()).cloned().collect();
            Ok(Cow::Owned(Value::List(both)))
        }
        _ => Err(fault(FaultKind::WrongType, span)),
    }
}

fn subtract<'a>(one: &Value, other: &Value, span: Span) -> EvalResult<'a> {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => or_overflow(one.checked_sub(*other).map(Value::Int), span),
        (Value::Double(one), Value::Double(other)) => finite_or_fault(one - other, span),
        (Value::Time(one), Value::Time(other)) => or_overflow(one.duration_since(*other).map(Value::Duration), span),
        (Value::Time(time), Value::Duration(length)) => or_overflow(time.checked_sub(*length).map(Value::Time), span),
        (Value::Duration(one), Value::Duration(other)) => {
            or_overflow(one.checked_sub(*other).map(Value::Duration), span)
        }
        _ => Err(fault(FaultKind::WrongType, span)),
    }
}

fn multiply_or_divide<'a>(operator: BinaryOperator, one: &Value, other: &Value, span: Span) -> EvalResult<'a> {
    match (operator, one, other) {
        (BinaryOperator::Multiply, Value::Int(one), Value::Int(other)) => {
            or_overflow(one.checked_mul(*other).map(Value::Int), span)
        }
        (BinaryOperator::Multiply, Value::Double(one), Value::Double(other)) => finite_or_fault(one * other, span),
        (BinaryOperator::Divide | BinaryOperator::Remainder, Value::Int(_), Value::Int(0)) => {
            Err(fault(FaultKind::DivisionByZero, span))
        }
        (BinaryOperator::Divide, Value::Int(one), Value::Int(other)) => {
            or_overflow(one.checked_div(*other).map(Value::Int), span)
        }
        (BinaryOperator::Remainder, Value::Int(one), Value::Int(other)) => {
            or_overflow(one.checked_rem(*other).map(Value::Int), span)
        }
        (BinaryOperator::Divide, Value::Double(_), Value::Double(other)) if *other == 0.0 => {
            Err(fault(FaultKind::DivisionByZero, span))
        }
        (BinaryOperator::Divide, Value::Double(one), Value::Double(other)) => finite_or_fault(one / other, span),
        _ => Err(fault(FaultKind::WrongType, span)),
    }
}
