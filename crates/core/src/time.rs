//! Times and durations in whole microseconds, which SQLite and PostgreSQL both store exactly.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Microseconds since 1970-01-01T00:00:00Z. This crate never reads a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(i64);

/// Microseconds; negative as the difference of two times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Duration(i64);

/// The text is not a valid time or duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    #[error("`{0}` is not a time: write RFC 3339, such as 2026-01-31T12:00:00Z")]
    InvalidTime(String),
    #[error("`{0}` is not a duration: write a number and us, ms, s, m, h or d, such as 30s or 1h30m")]
    InvalidDuration(String),
    #[error("`{0}` is longer than 10,000 years")]
    DurationTooLong(String),
}

const MICROS_PER_SECOND: i64 = 1_000_000;
/// Ten thousand years. A sum of several such durations still fits an `i64`.
const MAX_DURATION_MICROS: i64 = 10_000 * 366 * 24 * 3600 * MICROS_PER_SECOND;

impl Time {
    /// 0001-01-01T00:00:00Z to 9999-12-31T23:59:59.999999Z: the range of RFC 3339.
    pub const MIN: Self = Self(-62_135_596_800 * MICROS_PER_SECOND);
    pub const MAX: Self = Self(253_402_300_800 * MICROS_PER_SECOND - 1);

    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds * MICROS_PER_SECOND)
    }

    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down. The meaning of `int(now)` in expressions.
    pub const fn secs(self) -> i64 {
        self.0.div_euclid(MICROS_PER_SECOND)
    }

    /// Returns `None` outside the range of RFC 3339.
    pub fn checked_add(self, duration: Duration) -> Option<Self> {
        let sum = Self(self.0.checked_add(duration.0)?);
        (Self::MIN..=Self::MAX).contains(&sum).then_some(sum)
    }

    pub fn checked_sub(self, duration: Duration) -> Option<Self> {
        self.checked_add(Duration(duration.0.checked_neg()?))
    }

    pub fn duration_since(self, earlier: Self) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration)
    }
}

impl Duration {
    pub const ZERO: Self = Self(0);

    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    pub const fn from_millis(millis: i64) -> Self {
        Self(millis * 1_000)
    }

    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds * MICROS_PER_SECOND)
    }

    pub const fn micros(self) -> i64 {
        self.0
    }

    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(timestamp) => write!(f, "{timestamp}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl FromStr for Time {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let timestamp: jiff::Timestamp = text.parse().map_err(|_| TimeError::InvalidTime(text.to_owned()))?;
        let time = Self(timestamp.as_microsecond());
        if (Self::MIN..=Self::MAX).contains(&time) { Ok(time) } else { Err(TimeError::InvalidTime(text.to_owned())) }
    }
}

const DURATION_UNITS: [(&str, i64); 6] = [
    ("d", 86_400 * MICROS_PER_SECOND),
    ("h", 3_600 * MICROS_PER_SECOND),
    ("m", 60 * MICROS_PER_SECOND),
    ("s", MICROS_PER_SECOND),
    ("ms", 1_000),
    ("us", 1),
];

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let mut remaining = self.0.unsigned_abs();
        for (unit, micros) in DURATION_UNITS {
            let micros = micros.unsigned_abs();
            if remaining >= micros {
                write!(f, "{}{unit}", remaining / micros)?;
                remaining %= micros;
            }
        }
        Ok(())
    }
}

impl FromStr for Duration {
    type Err = TimeError;

    /// Parses whole numbers with units in any order: `90s`, `1h30m`, `250ms`.
    fn from_str(text: &str) -> Result<Self, TimeError> {
        let invalid = || TimeError::InvalidDuration(text.to_owned());
        let mut rest = text;
        let mut total: i64 = 0;
        if rest.is_empty() {
            return Err(invalid());
        }
        while !rest.is_empty() {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let number: i64 = rest[..digits].parse().map_err(|_| invalid())?;
            rest = &rest[digits..];
            let letters = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
            let (_, micros) = DURATION_UNITS.iter().find(|(unit, _)| *unit == &rest[..letters]).ok_or_else(invalid)?;
            rest = &rest[letters..];
            total = number
                .checked_mul(*micros)
                .and_then(|part| total.checked_add(part))
                .filter(|sum| *sum <= MAX_DURATION_MICROS)
                .ok_or_else(|| TimeError::DurationTooLong(text.to_owned()))?;
        }
        Ok(Self(total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_round_trips_and_rejects_malformed_text() {
        for text in ["1s", "1h30m", "250ms", "2d", "1us", "0s"] {
            assert_eq!(text.parse::<Duration>().unwrap().to_string(), text);
        }
        assert_eq!("90s".parse::<Duration>().unwrap(), Duration::from_secs(90));
        for text in ["", "1", "s", "1x", "-1s", "1.5s", "1 s", "99999999999999d", "9999999d"] {
            assert!(text.parse::<Duration>().is_err(), "{text}");
        }
    }

    #[test]
    fn time_round_trips_and_rejects_malformed_text() {
        let time: Time = "2026-01-31T12:00:00.25Z".parse().unwrap();
        assert_eq!(time.to_string(), "2026-01-31T12:00:00.25Z");
        assert!("yesterday".parse::<Time>().is_err());
        assert_eq!(Time::from_micros(-1).secs(), -1);
        assert_eq!(Time::MAX.checked_add(Duration::from_secs(1)), None);
    }
}
