//! Evaluates the built-in functions.

use std::borrow::Cow;

use super::super::env::{EvalStop, FaultKind};
use super::super::tree::{BuiltinFunction, Expr};
use super::evaluator::{EvalResult, Evaluator, boolean, fault};
use super::operators::compare;
use crate::diagnostic::Span;
use crate::record::Record;
use crate::time::Duration;
use crate::value::Value;

impl<'a> Evaluator<'a> {
    #[inline(never)]
    pub(super) fn evaluate_call(
        &mut self,
        function: BuiltinFunction,
        arguments: &'a [Expr],
        span: Span,
    ) -> EvalResult<'a> {
        let wrong_type = || fault(FaultKind::WrongType, span);
        match (function, arguments) {
            (BuiltinFunction::Max | BuiltinFunction::Min, _) => self.evaluate_extreme(function, arguments, span),
            (BuiltinFunction::Size, [of]) => size(&*self.evaluate_non_null(of)?, span),
            (BuiltinFunction::Int, [of]) => to_int(&*self.evaluate_non_null(of)?, span),
            (BuiltinFunction::Double, [of]) => to_double(&*self.evaluate_non_null(of)?, span),
            (BuiltinFunction::Text, [of]) => to_text(self.evaluate_non_null(of)?, span),
            // The compiler folds literals, so the operand is already a time or a duration.
            (BuiltinFunction::Timestamp | BuiltinFunction::Duration, [of]) => self.evaluate_non_null(of),
            (BuiltinFunction::StartsWith | BuiltinFunction::EndsWith | BuiltinFunction::Contains, [of, part]) => {
                let (of, part) = (self.evaluate_non_null(of)?, self.evaluate_non_null(part)?);
                let (Value::Text(of), Value::Text(part)) = (&*of, &*part) else { return Err(wrong_type()) };
                boolean(match function {
                    BuiltinFunction::StartsWith => of.starts_with(&**part),
                    BuiltinFunction::EndsWith => of.ends_with(&**part),
                    _ => of.contains(&**part),
                })
            }
            (BuiltinFunction::Backoff, [times, base, factor, cap]) => {
                let (times, factor) = (self.evaluate_int(times)?, self.evaluate_int(factor)?);
                let (base, cap) = (self.evaluate_duration(base)?, self.evaluate_duration(cap)?);
                Ok(Cow::Owned(Value::Duration(backoff(times, base, factor, cap))))
            }
            (BuiltinFunction::Jitter, [max_jitter]) => {
                let max_jitter = self.evaluate_duration(max_jitter)?;
                Ok(Cow::Owned(Value::Duration(jitter(self.env.record, max_jitter))))
            }
            _ => Err(wrong_type()),
        }
    }

    fn evaluate_int(&mut self, expr: &'a Expr) -> Result<i64, Box<EvalStop>> {
        match *self.evaluate_non_null(expr)? {
            Value::Int(number) => Ok(number),
            _ => Err(fault(FaultKind::WrongType, expr.span)),
        }
    }

    fn evaluate_duration(&mut self, expr: &'a Expr) -> Result<Duration, Box<EvalStop>> {
        match *self.evaluate_non_null(expr)? {
            Value::Duration(length) => Ok(length),
            _ => Err(fault(FaultKind::WrongType, expr.span)),
        }
    }

    fn evaluate_extreme(&mut self, function: BuiltinFunction, arguments: &'a [Expr], span: Span) -> EvalResult<'a> {
        let mut best: Cow<'a, Value> = Cow::Owned(Value::Null);
        for argument in arguments {
            let value = self.evaluate(argument)?;
            if value.is_null() {
                continue;
            }
            let better = best.is_null() || {
                let order = compare(&value, &best, span)?;
                if function == BuiltinFunction::Max { order.is_gt() } else { order.is_lt() }
            };
            if better {
                best = value;
            }
        }
        Ok(best)
    }
}

fn size<'a>(value: &Value, span: Span) -> EvalResult<'a> {
    let size = match value {
        Value::Text(text) => text.chars().count(),
        Value::List(items) => items.len(),
        _ => return Err(fault(FaultKind::WrongType, span)),
    };
    i64::try_from(size).map(|size| Cow::Owned(Value::Int(size))).map_err(|_| fault(FaultKind::Overflow, span))
}

/// Converts to int: truncates doubles toward zero, and converts times to whole seconds.
fn to_int<'a>(value: &Value, span: Span) -> EvalResult<'a> {
    // 2^63 is exact as a double. CEL accepts only values strictly between the bounds, although -2^63 would fit.
    const I64_LIMIT: f64 = 9_223_372_036_854_775_808.0;
    let number = match value {
        Value::Int(number) => *number,
        Value::Time(time) => time.secs(),
        Value::Double(number) if number.abs() < I64_LIMIT => {
            #[expect(clippy::cast_possible_truncation, reason = "the range is checked, and int() truncates")]
            let cut = *number as i64;
            cut
        }
        Value::Double(_) => return Err(fault(FaultKind::Overflow, span)),
        _ => return Err(fault(FaultKind::WrongType, span)),
    };
    Ok(Cow::Owned(Value::Int(number)))
}

fn to_double<'a>(value: &Value, span: Span) -> EvalResult<'a> {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "double() rounds to the nearest double")]
        Value::Int(number) => Ok(Cow::Owned(Value::Double(*number as f64))),
        Value::Double(number) => Ok(Cow::Owned(Value::Double(*number))),
        _ => Err(fault(FaultKind::WrongType, span)),
    }
}

fn to_text(value: Cow<'_, Value>, span: Span) -> EvalResult<'_> {
    let text = match &*value {
        Value::Text(_) => return Ok(value),
        Value::Int(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Ref(id) => id.to_string(),
        _ => return Err(fault(FaultKind::WrongType, span)),
    };
    Ok(Cow::Owned(Value::text(text)))
}

/// Returns min(cap, base · factor^attempts). Stops at the cap, so it cannot overflow. Negative attempts and a negative
/// base count as zero.
fn backoff(attempts: i64, base: Duration, factor: i64, cap: Duration) -> Duration {
    let cap = cap.micros().max(0);
    let mut delay = base.micros().clamp(0, cap);
    if factor > 1 {
        for _ in 0..attempts {
            if delay == 0 || delay == cap {
                break;
            }
            delay = delay.saturating_mul(factor).min(cap);
        }
    }
    Duration::from_micros(delay)
}

/// Returns a duration from zero up to, but excluding, `max_jitter`.
///
/// The result depends only on the record's id and version, so a replay decides the same. splitmix64 spreads every input
/// bit over the whole word. A wide multiplication scales the result without the bias of a remainder.
fn jitter(record: &Record, max_jitter: Duration) -> Duration {
    let Ok(max_micros) = u64::try_from(max_jitter.micros()) else { return Duration::ZERO };
    let (high, low) = record.id.0.as_u64_pair();
    let hash = [high, low, record.version].into_iter().fold(0, |hash, word| splitmix64(hash ^ word));
    let scaled = (u128::from(hash) * u128::from(max_micros)) >> 64;
    Duration::from_micros(i64::try_from(scaled).unwrap_or(0))
}

fn splitmix64(seed: u64) -> u64 {
    let mut word = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
