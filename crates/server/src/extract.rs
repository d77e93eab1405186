//! Extractors for JSON bodies, path and query parameters and headers, each with limits.

mod etag;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt as _;
use onceward_engine::{EngineError, Submission};
use onceward_store::PayloadBytes;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::app::AppState;
use crate::capacity::BodyBudget;
use crate::problem::Problem;

pub(crate) use etag::{if_none_match_contains, parse_if_match};

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Limit on JSON nesting: below the 128 of `serde_json`, so that readers of a response can parse it.
const MAX_JSON_DEPTH: usize = 120;

/// A JSON request body.
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<AppState> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, Problem> {
        require_json(request.headers())?;
        let config = app.config();
        // The bytes count until the response is sent, because the request keeps them in memory while it waits for
        // the store.
        let body_budget = request
            .extensions()
            .get::<Arc<BodyBudget>>()
            .cloned()
            .unwrap_or_else(|| Arc::new(app.capacity().body_budget()));
        let reading = read_body(request.into_body(), config.max_body_bytes, |bytes| body_budget.try_reserve(bytes));
        let bytes = match tokio::time::timeout(config.body_timeout, reading).await {
            Ok(read) => read?,
            Err(_) => return Err(Problem::new(408, "request_body_timeout", "the request body did not arrive in time")),
        };
        parse_json(&bytes).map(Self)
    }
}

/// Returns an error unless the body is JSON. A web page of another site cannot send this content type to a local
/// server without a CORS preflight, nor `application/octet-stream`; it can send others.
pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    if has_content_type(headers, "application/json") {
        return Ok(());
    }
    Err(Problem::new(415, "json_required", "the request body must be JSON; send `Content-Type: application/json`"))
}

/// Returns an error unless the body is `application/octet-stream`.
pub fn require_octet_stream(headers: &HeaderMap) -> Result<(), Problem> {
    if has_content_type(headers, "application/octet-stream") {
        return Ok(());
    }
    Err(Problem::new(
        415,
        "octet_stream_required",
        "the request body must be bytes; send `Content-Type: application/octet-stream`",
    ))
}

fn has_content_type(headers: &HeaderMap, expected: &str) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    content_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(expected)
}

async fn read_body(
    mut body: Body,
    max_bytes: usize,
    mut try_reserve: impl FnMut(usize) -> bool,
) -> Result<Vec<u8>, Problem> {
    let too_large = || {
        Problem::new(413, "request_too_large", format!("the request body exceeds {max_bytes} bytes"))
            .with_member("max_bytes", max_bytes)
    };
    let announced = usize::try_from(axum::body::HttpBody::size_hint(&body).lower()).unwrap_or(usize::MAX);
    if announced > max_bytes {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(announced.min(64 << 10));
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|_| Problem::new(400, "incomplete_request_body", "the request body is incomplete"))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > max_bytes {
            return Err(too_large());
        }
        if !try_reserve(data.len()) {
            return Err(Problem::new(503, "overloaded", "request bodies use all the memory reserved for them; retry"));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map(|StrictObject(value)| value).map_err(|error| match error.classify() {
        Category::Data => Problem::invalid_input(error.to_string()),
        _ if bytes.is_empty() => Problem::new(400, "invalid_json", "the request body is empty; send at least `{}`"),
        _ => Problem::new(400, "invalid_json", format!("the request body is not valid JSON: {error}")),
    })
}

/// Deserializes `T` from a JSON object only. Without this, serde also accepts a list of the field values.
#[derive(Debug)]
pub struct StrictObject<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for StrictObject<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(StrictObjectVisitor(PhantomData))
    }
}

struct StrictObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for StrictObjectVisitor<T> {
    type Value = StrictObject<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<StrictObject<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(StrictObject)
    }
}

/// The items of a batch. An invalid item becomes a problem at its position and does not affect the others. To bound
/// memory, parsing keeps at most one item more than the limit.
#[derive(Debug)]
pub(crate) struct BatchItems<T>(pub(crate) Vec<Result<T, Problem>>);

/// One more than the largest batch, to detect batches that are too large.
const MAX_KEPT_BATCH_ITEMS: usize = 1_001;

impl<'de, T: DeserializeOwned> Deserialize<'de> for BatchItems<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(BatchItemsVisitor(PhantomData))
    }
}

struct BatchItemsVisitor<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for BatchItemsVisitor<T> {
    type Value = BatchItems<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<BatchItems<T>, A::Error> {
        let mut items = Vec::new();
        while items.len() < MAX_KEPT_BATCH_ITEMS {
            match list.next_element::<&RawValue>()? {
                Some(call) => items.push(parse_json(call.get().as_bytes())),
                None => return Ok(BatchItems(items)),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(BatchItems(items))
    }
}

/// JSON from a caller with a size limit. Larger text is not parsed, because the parsed value takes several times
/// its size.
#[derive(Debug)]
pub(crate) struct BoundedJson<T>(Option<T>);

/// Twice the engine's limit, which counts JSON without whitespace.
const MAX_RAW_JSON_BYTES: usize = 2 << 20;

impl<T: Default> Default for BoundedJson<T> {
    fn default() -> Self {
        Self(Some(T::default()))
    }
}

impl<T> BoundedJson<T> {
    pub(crate) fn into_inner(self) -> Result<T, Problem> {
        self.0.ok_or_else(|| EngineError::RequestTooLarge { max_bytes: MAX_RAW_JSON_BYTES / 2 }.into())
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for BoundedJson<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(from)?.get();
        if text.len() > MAX_RAW_JSON_BYTES {
            return Ok(Self(None));
        }
        serde_json::from_str(text).map(|value| Self(Some(value))).map_err(serde::de::Error::custom)
    }
}

/// Path parameters. Invalid values result in 404.
#[derive(Debug)]
pub struct PathParams<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<AppState> for PathParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, Problem> {
        // A record with an invalid id cannot exist.
        Path::from_request_parts(parts, app).await.map(|Path(params)| Self(params)).map_err(|_| Problem::not_found())
    }
}

/// Query parameters.
#[derive(Debug)]
pub struct QueryParams<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<AppState> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, Problem> {
        match Query::from_request_parts(parts, app).await {
            Ok(Query(params)) => Ok(Self(params)),
            // Drop the prefix that axum adds to the message.
            Err(error) => {
                let text = error.body_text();
                let message = text.split_once("query string: ").map_or(&*text, |(_, message)| message);
                Err(Problem::invalid_input(query_error(message)))
            }
        }
    }
}

/// Names the parameter and what was expected. `message` is axum's: the parameter's name, a colon and the reason.
fn query_error(message: &str) -> String {
    let Some((name, reason)) = message.split_once(": ") else {
        return format!("the query string is invalid: {message}");
    };
    let parameter = format!("the query parameter `{name}`");
    if let Some(expected) = reason.strip_prefix(&format!("unknown field `{name}`, ")) {
        return format!("{parameter} is unknown; {expected}");
    }
    match reason {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            format!("{parameter} must be a whole number")
        }
        "number too large to fit in target type" => format!("{parameter} is too large"),
        _ => format!("{parameter} is invalid: {reason}"),
    }
}

/// Returns a header as text, or `None` if it is absent.
pub fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(Problem::invalid_input(format!("the header `{name}` is not valid UTF-8"))),
    }
}

/// Adds the `Idempotency-Key` header, if any, to a submission.
pub fn with_idempotency_key(headers: &HeaderMap, submission: Submission) -> Result<Submission, Problem> {
    Ok(match header_text(headers, &IDEMPOTENCY_KEY)? {
        Some(key) => submission.with_idempotency_key(key),
        None => submission,
    })
}

/// Parses a payload: JSON is stored byte for byte, base64 is decoded.
pub(crate) fn parse_payload(
    json: Option<Box<RawValue>>,
    base64: Option<&str>,
) -> Result<Option<PayloadBytes>, Problem> {
    let bytes: Arc<[u8]> = match (json, base64) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(Problem::invalid_input("`payload` and `payload_base64` are mutually exclusive"));
        }
        (Some(json), None) => {
            if json_depth(json.get().as_bytes()) > MAX_JSON_DEPTH {
                return Err(Problem::invalid_input(format!(
                    "`payload` must not be nested deeper than {MAX_JSON_DEPTH} levels"
                )));
            }
            json.get().as_bytes().into()
        }
        (None, Some(text)) => decode_base64(text, "payload_base64")?.into(),
    };
    Ok(Some(PayloadBytes::from_bytes(bytes)))
}

pub(crate) fn decode_base64(text: &str, name: &str) -> Result<Vec<u8>, Problem> {
    STANDARD.decode(text).map_err(|error| Problem::invalid_input(format!("`{name}` is not valid base64: {error}")))
}

/// Returns the bytes as JSON if a response can contain them unchanged.
pub(crate) fn as_raw_json(bytes: &[u8]) -> Option<&RawValue> {
    let json = serde_json::from_slice::<&RawValue>(bytes).ok()?;
    // Whitespace around the value would be lost.
    (json.get().len() == bytes.len() && json_depth(bytes) <= MAX_JSON_DEPTH).then_some(json)
}

/// Returns the nesting depth of valid JSON.
fn json_depth(json: &[u8]) -> usize {
    let (mut depth, mut max_depth, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                max_depth = max_depth.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    max_depth
}

/// Parses the `cursor` of a page request.
pub fn parse_cursor(text: Option<&str>) -> Result<Option<u64>, Problem> {
    let invalid = |_| Problem::invalid_input("`cursor` must be the `next` of the previous page");
    // A forged cursor may exceed the integer range of the database.
    text.map(|text| text.parse().map(|seq: u64| seq.min(MAX_CURSOR)).map_err(invalid)).transpose()
}

/// Larger than any `seq`, and exact in JSON numbers.
const MAX_CURSOR: u64 = 1 << 53;

/// Parses the `limit` of a page request.
pub fn validate_limit(requested: Option<u32>) -> Result<usize, Problem> {
    match requested {
        None => Ok(DEFAULT_PAGE_SIZE),
        Some(limit) => match usize::try_from(limit) {
            Ok(limit @ 1..=MAX_PAGE_SIZE) => Ok(limit),
            _ => Err(Problem::invalid_input(format!("`limit` must be from 1 to {MAX_PAGE_SIZE}"))),
        },
    }
}

/// Parses `wait_ms` and checks it against the configured maximum.
pub(crate) fn parse_wait(app: &AppState, requested_ms: Option<u64>) -> Result<Duration, Problem> {
    let (wait, max_wait) = (Duration::from_millis(requested_ms.unwrap_or(0)), app.config().max_wait);
    if wait > max_wait {
        return Err(Problem::invalid_input(format!("`wait_ms` must be at most {}", max_wait.as_millis())));
    }
    Ok(wait)
}

const DEFAULT_PAGE_SIZE: usize = 100;
const MAX_PAGE_SIZE: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_error_names_parameter_and_expectation() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Params {
            #[expect(dead_code, reason = "only parsed")]
            limit: Option<u32>,
            #[expect(dead_code, reason = "only parsed")]
            cursor: Option<String>,
        }
        for (query, expected) in [
            ("limit=abc", "the query parameter `limit` must be a whole number"),
            ("limit=-1", "the query parameter `limit` must be a whole number"),
            ("limit=", "the query parameter `limit` must be a whole number"),
            ("limit=99999999999", "the query parameter `limit` is too large"),
            ("limt=1", "the query parameter `limt` is unknown; expected `limit` or `cursor`"),
        ] {
            let uri = format!("/?{query}").parse().expect("URI");
            let error = Query::<Params>::try_from_uri(&uri).expect_err("invalid").body_text();
            let message = error.split_once("query string: ").expect("axum's prefix").1;
            assert_eq!(query_error(message), expected);
        }
    }

    #[test]
    fn json_depth_ignores_brackets_inside_strings() {
        for (json, depth) in
            [("1", 0), ("[]", 1), ("[[],[[]]]", 3), (r#"{"a":"[[[["}"#, 1), (r#"["\"[[", {"b":[]}]"#, 3)]
        {
            assert_eq!(json_depth(json.as_bytes()), depth, "{json}");
        }
    }

    #[test]
    fn batch_keeps_at_most_one_item_over_the_limit() {
        #[derive(Deserialize)]
        struct EmptyCall {}
        let kept = |count: usize| {
            let text = format!("[{}]", vec!["{}"; count].join(","));
            serde_json::from_str::<BatchItems<EmptyCall>>(&text)
                .map(|BatchItems(calls)| calls.len())
                .expect("a JSON array")
        };
        assert_eq!([0, 1, 1_000, 1_001, 100_000].map(kept), [0, 1, 1_000, 1_001, 1_001]);
        let BatchItems(calls) = serde_json::from_str::<BatchItems<EmptyCall>>("[{}, [], {}]").expect("a JSON array");
        assert_eq!(calls.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
        assert!(serde_json::from_str::<BatchItems<EmptyCall>>("[{}, [}, {}]").is_err(), "invalid JSON");
    }

    #[test]
    fn bytes_that_are_not_exactly_json_are_not_raw_json() {
        assert_eq!(as_raw_json(b"{\"a\": 1.50}").map(RawValue::get), Some("{\"a\": 1.50}"));
        for not_json in [&b" 1"[..], b"1 ", b"", b"\xff", b"{", b"1 2", b"\0"] {
            assert!(as_raw_json(not_json).is_none(), "{not_json:?}");
        }
        assert!(as_raw_json("[".repeat(200).as_bytes()).is_none());
        assert!(as_raw_json(format!("{}{}", "[".repeat(200), "]".repeat(200)).as_bytes()).is_none());
    }
}
