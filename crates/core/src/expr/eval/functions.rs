//! The functions of the subset.

use std::borrow::Cow;

use super::super::env::{FaultKind, Stop};
use super::super::tree::{Expr, Function};
use super::machine::{Got, Machine, boolean, fault};
use super::operators::order;
use crate::diagnostic::Span;
use crate::record::Record;
use crate::time::Duration;
use crate::value::Value;

impl<'a> Machine<'a> {
    #[inline(never)]
    pub(super) fn call(&mut self, function: Function, arguments: &'a [Expr], at: Span) -> Got<'a> {
        let wrong = || fault(FaultKind::WrongType, at);
        match (function, arguments) {
            (Function::Max | Function::Min, _) => self.extreme(function, arguments, at),
            (Function::Size, [of]) => size(&*self.operand(of)?, at),
            (Function::Int, [of]) => int(&*self.operand(of)?, at),
            (Function::Double, [of]) => double(&*self.operand(of)?, at),
            (Function::Text, [of]) => text(self.operand(of)?, at),
            // Literals are folded where they are compiled; what is left is a time or a duration already.
            (Function::Timestamp | Function::Duration, [of]) => self.operand(of),
            (Function::StartsWith | Function::EndsWith | Function::Contains, [of, part]) => {
                let (of, part) = (self.operand(of)?, self.operand(part)?);
                let (Value::Text(of), Value::Text(part)) = (&*of, &*part) else { return Err(wrong()) };
                boolean(match function {
                    Function::StartsWith => of.starts_with(&**part),
                    Function::EndsWith => of.ends_with(&**part),
                    _ => of.contains(&**part),
                })
            }
            (Function::Backoff, [times, base, factor, cap]) => {
                let (times, factor) = (self.number(times)?, self.number(factor)?);
                let (base, cap) = (self.length(base)?, self.length(cap)?);
                Ok(Cow::Owned(Value::Duration(backoff(times, base, factor, cap))))
            }
            (Function::Jitter, [most]) => {
                let most = self.length(most)?;
                Ok(Cow::Owned(Value::Duration(jitter(self.env.record, most))))
            }
            _ => Err(wrong()),
        }
    }

    fn number(&mut self, expr: &'a Expr) -> Result<i64, Box<Stop>> {
        match *self.operand(expr)? {
            Value::Int(number) => Ok(number),
            _ => Err(fault(FaultKind::WrongType, expr.at)),
        }
    }

    fn length(&mut self, expr: &'a Expr) -> Result<Duration, Box<Stop>> {
        match *self.operand(expr)? {
            Value::Duration(length) => Ok(length),
            _ => Err(fault(FaultKind::WrongType, expr.at)),
        }
    }

    fn extreme(&mut self, function: Function, arguments: &'a [Expr], at: Span) -> Got<'a> {
        let mut best: Cow<'a, Value> = Cow::Owned(Value::Null);
        for argument in arguments {
            let value = self.run(argument)?;
            if value.is_null() {
                continue;
            }
            let better = best.is_null() || {
                let order = order(&value, &best, at)?;
                if function == Function::Max { order.is_gt() } else { order.is_lt() }
            };
            if better {
                best = value;
            }
        }
        Ok(best)
    }
}

fn size<'a>(value: &Value, at: Span) -> Got<'a> {
    let size = match value {
        Value::Text(text) => text.chars().count(),
        Value::List(items) => items.len(),
        _ => return Err(fault(FaultKind::WrongType, at)),
    };
    i64::try_from(size).map(|size| Cow::Owned(Value::Int(size))).map_err(|_| fault(FaultKind::Overflow, at))
}

/// Whole numbers as they are, doubles cut toward zero, times in whole seconds.
fn int<'a>(value: &Value, at: Span) -> Got<'a> {
    // 2^63 is a double exactly. CEL takes what lies strictly between the two bounds, though -2^63 itself would fit.
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    let number = match value {
        Value::Int(number) => *number,
        Value::Time(time) => time.secs(),
        Value::Double(number) if number.abs() < BEYOND => {
            #[expect(clippy::cast_possible_truncation, reason = "the range was looked at; the cut is what int means")]
            let cut = *number as i64;
            cut
        }
        Value::Double(_) => return Err(fault(FaultKind::Overflow, at)),
        _ => return Err(fault(FaultKind::WrongType, at)),
    };
    Ok(Cow::Owned(Value::Int(number)))
}

fn double<'a>(value: &Value, at: Span) -> Got<'a> {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "the nearest double is what double means")]
        Value::Int(number) => Ok(Cow::Owned(Value::Double(*number as f64))),
        Value::Double(number) => Ok(Cow::Owned(Value::Double(*number))),
        _ => Err(fault(FaultKind::WrongType, at)),
    }
}

fn text(value: Cow<'_, Value>, at: Span) -> Got<'_> {
    let text = match &*value {
        Value::Text(_) => return Ok(value),
        Value::Int(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Ref(id) => id.to_string(),
        _ => return Err(fault(FaultKind::WrongType, at)),
    };
    Ok(Cow::Owned(Value::text(text)))
}

/// min(cap, base · factor^times). Stops multiplying once the cap is reached, so nothing overflows; fewer than no
/// tries count as none, and a negative base as zero.
fn backoff(times: i64, base: Duration, factor: i64, cap: Duration) -> Duration {
    let cap = cap.micros().max(0);
    let mut delay = base.micros().clamp(0, cap);
    if factor > 1 {
        for _ in 0..times {
            if delay == 0 || delay == cap {
                break;
            }
            delay = delay.saturating_mul(factor).min(cap);
        }
    }
    Duration::from_micros(delay)
}

/// A length from zero up to, not including, the most; the same for the same record at the same version, so that a
/// replay decides the same. The record's id and version go through splitmix64, whose finalizer spreads
/// every input bit over the whole word; the result is scaled by a wide multiplication, not by a remainder.
fn jitter(record: &Record, most: Duration) -> Duration {
    let Ok(most) = u64::try_from(most.micros()) else { return Duration::ZERO };
    let (high, low) = record.id.0.as_u64_pair();
    let hash = [high, low, record.version].into_iter().fold(0, |hash, word| splitmix64(hash ^ word));
    let scaled = (u128::from(hash) * u128::from(most)) >> 64;
    Duration::from_micros(i64::try_from(scaled).unwrap_or(0))
}

fn splitmix64(seed: u64) -> u64 {
    let mut word = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
