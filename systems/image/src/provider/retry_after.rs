//! Parses the `Retry-After` header of a provider.

use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use onceward_core::time::Duration;

/// IMG-11: Parses seconds or a date. The lifecycle uses the delay if it is longer than its own backoff, and caps it.
pub(super) fn parse_retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // Too many digits for a number count as the maximum.
        let seconds = text.parse().unwrap_or(i64::MAX).min(MAX_RETRY_AFTER_SECONDS);
        return Some(Duration::from_secs(seconds));
    }
    let retry_at = parse_http_date(text)?;
    // The service's own clock, if it sends one, so that a clock difference does not matter.
    let now = headers.get(DATE).and_then(|now| parse_http_date(now.to_str().ok()?)).unwrap_or_else(Timestamp::now);
    let seconds = retry_at.as_second().saturating_sub(now.as_second());
    Some(Duration::from_secs(seconds.clamp(0, MAX_RETRY_AFTER_SECONDS)))
}

/// A hundred years: far enough, and no sum overflows.
const MAX_RETRY_AFTER_SECONDS: i64 = 100 * 366 * 24 * 3600;

fn parse_http_date(text: &str) -> Option<Timestamp> {
    static PARSER: DateTimeParser = DateTimeParser::new();
    PARSER.parse_timestamp(text.trim()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_with_date(retry: &str, date: Option<&str>) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, retry.parse().expect("a header"));
        if let Some(date) = date {
            headers.insert(DATE, date.parse().expect("a header"));
        }
        parse_retry_after(&headers)
    }

    /// IMG-11
    #[test]
    fn retry_after_accepts_seconds_and_dates() {
        let noon = Some("Mon, 16 Nov 2026 12:00:00 GMT");
        assert_eq!(parse_with_date("17", None), Some(Duration::from_secs(17)));
        assert_eq!(parse_with_date(" 0 ", noon), Some(Duration::ZERO));
        assert_eq!(parse_with_date("Mon, 16 Nov 2026 12:01:30 GMT", noon), Some(Duration::from_secs(90)));
        assert_eq!(parse_with_date("Mon, 16 Nov 2026 11:00:00 GMT", noon), Some(Duration::ZERO));
        assert_eq!(
            parse_with_date("99999999999999999999999", None),
            Some(Duration::from_secs(MAX_RETRY_AFTER_SECONDS))
        );
        for invalid in ["", "soon", "-5", "1.5", "Mon, 99 Nov 2026 12:00:00 GMT"] {
            assert_eq!(parse_with_date(invalid, noon), None, "{invalid}");
        }
        // Without a `Date` header the local clock applies, and this date is in its past.
        assert_eq!(parse_with_date("Fri, 01 Jan 2021 00:00:00 GMT", None), Some(Duration::ZERO));
    }
}
