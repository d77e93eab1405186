//! One question and its answer: time-outs, and trying again where that is safe.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, IF_MATCH, RETRY_AFTER, USER_AGENT};
use http::uri::{PathAndQuery, Uri};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use crate::client::Client;
use crate::error::{ClientError, LONGEST_PAUSE, Problem};

/// An answer with a thousand jobs and their payloads of 64 KB each fits.
const LARGEST_ANSWER: usize = 128 << 20;

/// Before the second try; doubles from there.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

const AGENT: HeaderValue = HeaderValue::from_static(concat!("onceward-worker/", env!("CARGO_PKG_VERSION")));

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Whether a call may be sent again when nobody knows what became of the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// It only looks, or carries a key or a token.
    Safe,
    /// Only where the server has surely not done it.
    IfUndone,
    /// Its caller tries again by itself.
    Never,
}

/// A question.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Bytes,
    /// The idempotency key.
    pub(crate) key: Option<String>,
    pub(crate) if_match: Option<u64>,
    /// W3C trace context.
    pub(crate) traceparent: Option<Arc<str>>,
    /// How long the server itself may wait before it answers.
    pub(crate) wait: Duration,
    pub(crate) again: Again,
}

impl Ask {
    pub(crate) fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            body: Bytes::new(),
            key: None,
            if_match: None,
            traceparent: None,
            wait: Duration::ZERO,
            again: Again::Safe,
        }
    }

    pub(crate) fn post(path: String, body: &impl Serialize) -> Result<Self, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| ClientError::BadCall(error.to_string()))?;
        Ok(Self { method: Method::POST, body: body.into(), again: Again::IfUndone, ..Self::get(path) })
    }

    /// With a key, the caller's or one of its own, it may be sent as often as need be.
    pub(crate) fn keyed(self, key: Option<&str>) -> Result<Self, ClientError> {
        let key = key.map_or_else(new_key, |key| Ok(key.to_owned()))?;
        Ok(Self { key: Some(key), again: Again::Safe, ..self })
    }
}

impl Client {
    /// Ask, and read the answer.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T, ClientError> {
        let answer = self.send(ask).await?;
        serde_json::from_slice(&answer).map_err(|error| self.not_understood(&error))
    }

    /// Ask until there is an answer, or no reason to go on.
    pub(crate) async fn send(&self, ask: &Ask) -> Result<Bytes, ClientError> {
        let until = Instant::now() + self.patience.retries;
        let mut backoff = Backoff::default();
        loop {
            let error = match self.once(ask).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let again = match ask.again {
                Again::Safe => error.may_pass(),
                Again::IfUndone => error.may_pass() && error.surely_undone(),
                Again::Never => false,
            };
            let pause = error.retry_after().unwrap_or_else(|| backoff.pause());
            if !again || Instant::now() + pause > until {
                return Err(error);
            }
            tracing::debug!(path = ask.path, %error, "asking again");
            tokio::time::sleep(pause).await;
        }
    }

    async fn once(&self, ask: &Ask) -> Result<Bytes, ClientError> {
        let after = self.patience.answer + ask.wait;
        let until = Instant::now() + after;
        let response = self.open(ask, until, JSON, None).await?;
        let (parts, body) = response.into_parts();
        let collected = timeout_at(until, Limited::new(body, LARGEST_ANSWER).collect()).await;
        let body = match collected {
            Err(_) => return Err(self.timed_out(after)),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(self.not_understood(&error)),
            Ok(Err(error)) => return Err(self.unreachable(&*error, false)),
            Ok(Ok(collected)) => collected.to_bytes(),
        };
        if parts.status.is_success() {
            return Ok(body);
        }
        Err(self.refused(parts.status.as_u16(), &parts.headers, &body))
    }

    /// Send, and wait for the answer's head.
    pub(crate) async fn open(
        &self,
        ask: &Ask,
        until: Instant,
        accept: HeaderValue,
        last_event: Option<u64>,
    ) -> Result<Response<Incoming>, ClientError> {
        let request = self.request(ask, accept, last_event)?;
        match timeout_at(until, self.line.connections().request(request)).await {
            Err(_) => Err(self.timed_out(self.patience.answer + ask.wait)),
            Ok(Err(error)) => Err(self.unreachable(&error, error.is_connect())),
            Ok(Ok(response)) => Ok(response),
        }
    }

    fn request(
        &self,
        ask: &Ask,
        accept: HeaderValue,
        last_event: Option<u64>,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let line = &self.line;
        let bad = |error: &dyn std::fmt::Display| ClientError::BadCall(error.to_string());
        let path = if line.prefix.is_empty() { ask.path.clone() } else { format!("{}{}", line.prefix, ask.path) };
        let path = PathAndQuery::from_maybe_shared(Bytes::from(path)).map_err(|error| bad(&error))?;
        let uri = Uri::builder().scheme(line.scheme.clone()).authority(line.authority.clone()).path_and_query(path);
        let mut request = Request::new(Full::new(ask.body.clone()));
        *request.method_mut() = ask.method.clone();
        *request.uri_mut() = uri.build().map_err(|error| bad(&error))?;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, AGENT);
        headers.insert(ACCEPT, accept);
        if !ask.body.is_empty() {
            headers.insert(CONTENT_TYPE, JSON);
        }
        if let Some(authorization) = &line.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if let Some(key) = &ask.key {
            headers.insert("idempotency-key", HeaderValue::try_from(key).map_err(|error| bad(&error))?);
        }
        if let Some(version) = ask.if_match {
            headers.insert(IF_MATCH, HeaderValue::try_from(format!("\"{version}\"")).map_err(|error| bad(&error))?);
        }
        // Where the server gave one that is none, it goes without.
        if let Some(Ok(trace)) = ask.traceparent.as_deref().map(HeaderValue::from_str) {
            headers.insert("traceparent", trace);
        }
        if let Some(last) = last_event {
            headers.insert("last-event-id", HeaderValue::from(last));
        }
        Ok(request)
    }

    pub(crate) fn refused(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> ClientError {
        let Ok(problem) = serde_json::from_slice::<Problem>(body) else {
            // A proxy's word, perhaps: its status is all there is to go by.
            let code = format!("http_{status}");
            let detail = format!("{} answers with {status} and no reason", self.server());
            let retry_after = seconds(headers);
            let problem = Problem { status, code, detail: Some(detail), retry_after, ..Problem::default() };
            return ClientError::Problem(Box::new(problem));
        };
        let problem = Problem { status, retry_after: seconds(headers), ..problem };
        ClientError::Problem(Box::new(problem.settled()))
    }

    pub(crate) fn timed_out(&self, after: Duration) -> ClientError {
        self.line.distrust();
        ClientError::TimedOut { server: self.server(), after }
    }

    pub(crate) fn not_understood(&self, error: &dyn std::fmt::Display) -> ClientError {
        ClientError::BadAnswer { server: self.server(), reason: error.to_string() }
    }

    pub(crate) fn unreachable(&self, error: &dyn std::error::Error, unheard: bool) -> ClientError {
        // The outermost says no more than that there was an error.
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        ClientError::Unreachable { server: self.server(), reason: cause.to_string(), unheard }
    }
}

fn seconds(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

/// How long to wait before the next try: twice as long each time, and a part of it by chance, so that all who were sent away
/// together do not come back together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    tries: u32,
}

impl Backoff {
    pub(crate) fn pause(&mut self) -> Duration {
        let whole = (FIRST_PAUSE * 2u32.saturating_pow(self.tries)).min(LONGEST_PAUSE);
        self.tries = (self.tries + 1).min(16);
        whole / 2 + whole.mul_f64(chance()) / 2
    }

    pub(crate) fn reset(&mut self) {
        self.tries = 0;
    }
}

/// From 0 to 1.
fn chance() -> f64 {
    let mut bytes = [0; 4];
    // Without chance all wait the same: no worse than that.
    let _ = getrandom::fill(&mut bytes);
    f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX)
}

/// A key that no other call has: with it, a call may be sent as often as need be.
pub(crate) fn new_key() -> Result<String, ClientError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| ClientError::BadCall(error.to_string()))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// One part of a path, or a value of a query: all but the plainest characters escaped.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => {
                use std::fmt::Write as _;
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_bounded() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..20).map(|_| backoff.pause()).collect();
        assert!(pauses[0] <= FIRST_PAUSE && pauses[0] >= FIRST_PAUSE / 2, "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= LONGEST_PAUSE), "{pauses:?}");
        assert!(pauses[19] >= LONGEST_PAUSE / 2, "{pauses:?}");
        backoff.reset();
        assert!(backoff.pause() <= FIRST_PAUSE);
    }

    #[test]
    fn a_name_cannot_leave_its_place_in_a_path() {
        assert_eq!(escaped("execution.job"), "execution.job");
        assert_eq!(escaped("../a b?c#d/ä"), "..%2Fa%20b%3Fc%23d%2F%C3%A4");
    }
}
