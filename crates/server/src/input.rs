//! What comes in: JSON bodies, names in paths, questions and headers, each bounded before it is looked into.

mod tags;

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
use onceward_store::Content;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::app::App;
use crate::gate::BodyRoom;
use crate::problem::Problem;

pub(crate) use tags::{if_match, is_known};

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How deep JSON may be nested: what the parser takes, and what readers of an answer can be asked to take.
const DEEPEST: usize = 120;

/// A body of JSON.
#[derive(Debug)]
pub struct Given<T>(pub T);

impl<T: DeserializeOwned> FromRequest<App> for Given<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        must_be_json(request.headers())?;
        let settings = app.settings();
        // Counted until the request is answered: what was read is kept for so long, and longer where a disk is waited for.
        let room = request.extensions().get::<Arc<BodyRoom>>().cloned().unwrap_or_else(|| Arc::new(app.gate().body()));
        let reading = read(request.into_body(), settings.body_bytes, |bytes| room.grow(bytes));
        let bytes = match tokio::time::timeout(settings.body_time, reading).await {
            Ok(read) => read?,
            Err(_) => return Err(Problem::new(408, "slow_body", "the body did not come in time")),
        };
        parsed(&bytes).map(Self)
    }
}

/// Neither this kind nor that of bytes can be sent by a web page to a server on the same machine without asking; others can.
pub(crate) fn must_be_json(headers: &HeaderMap) -> Result<(), Problem> {
    if is_kind(headers, "application/json") {
        return Ok(());
    }
    Err(Problem::new(415, "not_json", "send Content-Type: application/json"))
}

/// For a body that is taken as it is.
pub fn must_be_bytes(headers: &HeaderMap) -> Result<(), Problem> {
    if is_kind(headers, "application/octet-stream") {
        return Ok(());
    }
    Err(Problem::new(415, "not_bytes", "send Content-Type: application/octet-stream"))
}

fn is_kind(headers: &HeaderMap, wanted: &str) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(wanted)
}

async fn read(mut body: Body, most: usize, mut room: impl FnMut(usize) -> bool) -> Result<Vec<u8>, Problem> {
    let too_large = || Problem::new(413, "too_large", format!("a body has at most {most} bytes")).with("most", most);
    let announced = usize::try_from(axum::body::HttpBody::size_hint(&body).lower()).unwrap_or(usize::MAX);
    if announced > most {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(announced.min(64 << 10));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::new(400, "broken_body", "the body ended before its end"))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > most {
            return Err(too_large());
        }
        if !room(data.len()) {
            return Err(Problem::new(503, "overloaded", "too many bytes are on their way: try again"));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map(|Object(given)| given).map_err(|error| match error.classify() {
        Category::Data => Problem::bad_input(error.to_string()),
        _ if bytes.is_empty() => Problem::new(400, "bad_json", "the body is empty: send at least {}"),
        _ => Problem::new(400, "bad_json", format!("the body is not JSON that can be read: {error}")),
    })
}

/// A shape that is written as a JSON object, and in no other way: by itself, a list of its values would be taken, too.
#[derive(Debug)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(ObjectOf(PhantomData))
    }
}

struct ObjectOf<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectOf<T> {
    type Value = Object<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// The calls of a batch. One that is not as it should be keeps nobody from the others: what is wrong with it stands in its place.
/// No more are kept than it takes to see that there are too many, however many come.
#[derive(Debug)]
pub(crate) struct Calls<T>(pub(crate) Vec<Result<T, Problem>>);

/// One more than any batch may have.
const MOST_CALLS: usize = 1_001;

impl<'de, T: DeserializeOwned> Deserialize<'de> for Calls<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(CallsOf(PhantomData))
    }
}

struct CallsOf<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for CallsOf<T> {
    type Value = Calls<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Calls<T>, A::Error> {
        let mut calls = Vec::new();
        while calls.len() < MOST_CALLS {
            match list.next_element::<&RawValue>()? {
                Some(call) => calls.push(parsed(call.get().as_bytes())),
                None => return Ok(Calls(calls)),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Calls(calls))
    }
}

/// JSON of any shape that a caller brings. What is larger than may be is not even taken apart: in memory it would be many times as large.
#[derive(Debug)]
pub(crate) struct Small<T>(Option<T>);

/// Twice as much as the engine takes, which counts without the spaces.
const LARGEST: usize = 2 << 20;

impl<T: Default> Default for Small<T> {
    fn default() -> Self {
        Self(Some(T::default()))
    }
}

impl<T> Small<T> {
    pub(crate) fn open(self) -> Result<T, Problem> {
        self.0.ok_or_else(|| EngineError::TooLarge { most: LARGEST / 2 }.into())
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Small<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(from)?.get();
        if text.len() > LARGEST {
            return Ok(Self(None));
        }
        serde_json::from_str(text).map(|value| Self(Some(value))).map_err(serde::de::Error::custom)
    }
}

/// What a path names.
#[derive(Debug)]
pub struct At<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<App> for At<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        // A name that cannot be is the name of nothing.
        Path::from_request_parts(parts, app).await.map(|Path(named)| Self(named)).map_err(|_| Problem::not_found())
    }
}

/// What stands behind the question mark.
#[derive(Debug)]
pub struct Asked<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<App> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match Query::from_request_parts(parts, app).await {
            Ok(Query(asked)) => Ok(Self(asked)),
            // Without the library's own words before it.
            Err(error) => {
                let text = error.body_text();
                let said = text.split_once("query string: ").map_or(&*text, |(_, said)| said);
                Err(Problem::bad_input(format!("behind the `?`: {said}")))
            }
        }
    }
}

/// A header's text, where there is one.
pub fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(Problem::bad_input(format!("the header {name} is not UTF-8"))),
    }
}

/// A call that is carried out once under its `Idempotency-Key`, where it has one.
pub fn keyed(headers: &HeaderMap, submission: Submission) -> Result<Submission, Problem> {
    Ok(match text(headers, &IDEMPOTENCY_KEY)? {
        Some(key) => submission.once(key),
        None => submission,
    })
}

/// The bytes of a payload or a result: as JSON, kept as it was written, or as base64.
pub(crate) fn content(json: Option<Box<RawValue>>, base64: Option<&str>) -> Result<Option<Content>, Problem> {
    let bytes: Arc<[u8]> = match (json, base64) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(Problem::bad_input("give payload or payload_base64, not both")),
        (Some(json), None) => {
            if depth(json.get().as_bytes()) > DEEPEST {
                return Err(Problem::bad_input(format!("a payload is nested at most {DEEPEST} deep")));
            }
            json.get().as_bytes().into()
        }
        (None, Some(text)) => from_base64(text, "payload_base64")?.into(),
    };
    Ok(Some(Content::of(bytes)))
}

pub(crate) fn from_base64(text: &str, name: &str) -> Result<Vec<u8>, Problem> {
    STANDARD.decode(text).map_err(|error| Problem::bad_input(format!("`{name}` is not base64: {error}")))
}

/// Whether these bytes can stand in an answer as they are.
pub(crate) fn as_json(bytes: &[u8]) -> Option<&RawValue> {
    let json = serde_json::from_slice::<&RawValue>(bytes).ok()?;
    // What stands around it would be lost.
    (json.get().len() == bytes.len() && depth(bytes) <= DEEPEST).then_some(json)
}

/// How deep text that is JSON is nested.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_text, mut escaped) = (0_usize, 0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Where a page starts that was told with the one before.
pub fn cursor(text: Option<&str>) -> Result<Option<u64>, Problem> {
    let bad = |_| Problem::bad_input("`cursor` is the `next` of the page before");
    // One that is made up may be beyond all numbers that a database can count with.
    text.map(|text| text.parse().map(|place: u64| place.min(FURTHEST)).map_err(bad)).transpose()
}

/// No place of ours ever comes near it.
const FURTHEST: u64 = 1 << 53;

/// How many of a page were asked for.
pub fn limit(asked: Option<u32>) -> Result<usize, Problem> {
    match asked {
        None => Ok(PAGE_USUAL),
        Some(limit) => match usize::try_from(limit) {
            Ok(limit @ 1..=PAGE_MOST) => Ok(limit),
            _ => Err(Problem::bad_input(format!("`limit` is from 1 to {PAGE_MOST}"))),
        },
    }
}

/// How long to wait, where nothing comes at once.
pub(crate) fn wait(app: &App, asked: Option<u64>) -> Result<Duration, Problem> {
    let (wait, longest) = (Duration::from_millis(asked.unwrap_or(0)), app.settings().longest_wait);
    if wait > longest {
        return Err(Problem::bad_input(format!("`wait_ms` is at most {}", longest.as_millis())));
    }
    Ok(wait)
}

const PAGE_USUAL: usize = 100;
const PAGE_MOST: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_as_deep_as_its_brackets_outside_of_text() {
        for (json, deep) in
            [("1", 0), ("[]", 1), ("[[],[[]]]", 3), (r#"{"a":"[[[["}"#, 1), (r#"["\"[[", {"b":[]}]"#, 3)]
        {
            assert_eq!(depth(json.as_bytes()), deep, "{json}");
        }
    }

    /// However many come, memory is spent on no more than it takes to refuse them.
    #[test]
    fn a_batch_is_kept_as_far_as_it_may_go() {
        #[derive(Deserialize)]
        struct Call {}
        let kept = |count: usize| {
            let text = format!("[{}]", vec!["{}"; count].join(","));
            serde_json::from_str::<Calls<Call>>(&text).map(|Calls(calls)| calls.len()).expect("a list")
        };
        assert_eq!([0, 1, 1_000, 1_001, 100_000].map(kept), [0, 1, 1_000, 1_001, 1_001]);
        let Calls(calls) = serde_json::from_str::<Calls<Call>>("[{}, [], {}]").expect("a list");
        assert_eq!(calls.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
        assert!(serde_json::from_str::<Calls<Call>>("[{}, [}, {}]").is_err(), "no JSON");
    }

    #[test]
    fn what_is_not_all_json_is_not_shown_as_json() {
        assert_eq!(as_json(b"{\"a\": 1.50}").map(RawValue::get), Some("{\"a\": 1.50}"));
        for not in [&b" 1"[..], b"1 ", b"", b"\xff", b"{", b"1 2", b"\0"] {
            assert!(as_json(not).is_none(), "{not:?}");
        }
        assert!(as_json("[".repeat(200).as_bytes()).is_none());
        assert!(as_json(format!("{}{}", "[".repeat(200), "]".repeat(200)).as_bytes()).is_none());
    }
}
