//! Sends one request: timeouts, and retries where they are safe.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, IF_MATCH, RETRY_AFTER, USER_AGENT};
use http::uri::{PathAndQuery, Uri};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use onceward_http_client::{SendError, root_cause};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use crate::client::Client;
use crate::error::{ClientError, MAX_RETRY_DELAY, Problem};

/// Fits a response with a thousand jobs and payloads of 64 KB each.
const MAX_RESPONSE_BYTES: usize = 128 << 20;

/// Delay before the first retry; doubles with each.
const INITIAL_RETRY_DELAY: Duration = Duration::from_millis(50);

const USER_AGENT_VALUE: HeaderValue = HeaderValue::from_static(concat!("onceward-worker/", env!("CARGO_PKG_VERSION")));

const APPLICATION_JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Whether a call may be repeated if its outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetrySafety {
    /// Always: the call only reads, or has an idempotency key or a fencing token.
    Idempotent,
    /// Only if the server certainly did not execute it.
    IfNotExecuted,
    /// The caller has its own retries.
    Never,
}

/// A request to the API.
#[derive(Clone, Debug)]
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Bytes,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) if_match: Option<u64>,
    /// W3C trace context.
    pub(crate) traceparent: Option<Arc<str>>,
    /// How long the server may wait before it answers.
    pub(crate) max_server_wait: Duration,
    pub(crate) retry_safety: RetrySafety,
}

impl ApiRequest {
    pub(crate) fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            body: Bytes::new(),
            idempotency_key: None,
            if_match: None,
            traceparent: None,
            max_server_wait: Duration::ZERO,
            retry_safety: RetrySafety::Idempotent,
        }
    }

    pub(crate) fn post(path: String, body: &impl Serialize) -> Result<Self, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| ClientError::InvalidRequest(error.to_string()))?;
        Ok(Self {
            method: Method::POST,
            body: body.into(),
            retry_safety: RetrySafety::IfNotExecuted,
            ..Self::get(path)
        })
    }

    /// Sets the caller's idempotency key or a new one, which makes retries safe.
    pub(crate) fn with_idempotency_key(self, key: Option<&str>) -> Result<Self, ClientError> {
        let key = key.map_or_else(new_idempotency_key, |key| Ok(key.to_owned()))?;
        Ok(Self { idempotency_key: Some(key), retry_safety: RetrySafety::Idempotent, ..self })
    }
}

impl Client {
    /// Sends a request with retries and parses the response.
    pub(crate) async fn send_json<T: DeserializeOwned>(&self, api_request: &ApiRequest) -> Result<T, ClientError> {
        let response = self.send_with_retries(api_request).await?;
        serde_json::from_slice(&response).map_err(|error| self.invalid_response(&error))
    }

    /// Sends a request until it succeeds, cannot be retried, or `retry_timeout` has passed.
    pub(crate) async fn send_with_retries(&self, api_request: &ApiRequest) -> Result<Bytes, ClientError> {
        let started_at = Instant::now();
        let deadline = started_at + self.retry_policy.retry_timeout;
        let mut backoff = Backoff::default();
        loop {
            let error = match self.send_once(api_request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let is_retryable = match api_request.retry_safety {
                RetrySafety::Idempotent => error.is_retryable(),
                RetrySafety::IfNotExecuted => error.is_retryable() && error.was_not_executed(),
                RetrySafety::Never => false,
            };
            let delay = error.retry_after().unwrap_or_else(|| backoff.next_delay());
            if !is_retryable || Instant::now() + delay > deadline {
                return Err(error);
            }
            tracing::debug!(path = api_request.path, %error, "retrying request");
            if let Some(observer) = &self.retry_observer {
                observer(&error, started_at.elapsed());
            }
            tokio::time::sleep(delay).await;
        }
    }

    async fn send_once(&self, api_request: &ApiRequest) -> Result<Bytes, ClientError> {
        let timeout = self.retry_policy.response_timeout + api_request.max_server_wait;
        let deadline = Instant::now() + timeout;
        let response = self.open_response(api_request, deadline, APPLICATION_JSON, None).await?;
        let (parts, body) = response.into_parts();
        let collected = timeout_at(deadline, Limited::new(body, MAX_RESPONSE_BYTES).collect()).await;
        let body = match collected {
            Err(_) => return Err(self.timeout_error(timeout)),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(self.invalid_response(&error)),
            Ok(Err(error)) => return Err(self.unreachable_error(&*error, false)),
            Ok(Ok(collected)) => collected.to_bytes(),
        };
        if parts.status.is_success() {
            return Ok(body);
        }
        Err(self.refusal_error(parts.status.as_u16(), &parts.headers, &body))
    }

    /// Sends a request and waits for the response head.
    pub(crate) async fn open_response(
        &self,
        api_request: &ApiRequest,
        deadline: Instant,
        accept: HeaderValue,
        last_event_id: Option<u64>,
    ) -> Result<Response<Incoming>, ClientError> {
        let request = self.build_request(api_request, accept, last_event_id)?;
        self.transport.http_client().send(request, deadline).await.map_err(|error| match error {
            SendError::Timeout => self.timeout_error(self.retry_policy.response_timeout + api_request.max_server_wait),
            SendError::AddressRefused(_) | SendError::Connect(_) => self.unreachable_error(&error, true),
            SendError::Interrupted(_) => self.unreachable_error(&error, false),
        })
    }

    fn build_request(
        &self,
        api_request: &ApiRequest,
        accept: HeaderValue,
        last_event_id: Option<u64>,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let transport = &self.transport;
        let invalid = |error: &dyn std::fmt::Display| ClientError::InvalidRequest(error.to_string());
        let path = if transport.prefix.is_empty() {
            api_request.path.clone()
        } else {
            format!("{}{}", transport.prefix, api_request.path)
        };
        let path = PathAndQuery::from_maybe_shared(Bytes::from(path)).map_err(|error| invalid(&error))?;
        let uri =
            Uri::builder().scheme(transport.scheme.clone()).authority(transport.authority.clone()).path_and_query(path);
        let mut request = Request::new(Full::new(api_request.body.clone()));
        *request.method_mut() = api_request.method.clone();
        *request.uri_mut() = uri.build().map_err(|error| invalid(&error))?;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, USER_AGENT_VALUE);
        headers.insert(ACCEPT, accept);
        if !api_request.body.is_empty() {
            headers.insert(CONTENT_TYPE, APPLICATION_JSON);
        }
        if let Some(authorization) = &transport.authorization_header {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if let Some(key) = &api_request.idempotency_key {
            headers.insert("idempotency-key", HeaderValue::try_from(key).map_err(|error| invalid(&error))?);
        }
        if let Some(version) = api_request.if_match {
            headers.insert(IF_MATCH, HeaderValue::try_from(format!("\"{version}\"")).map_err(|error| invalid(&error))?);
        }
        // Ignore an invalid trace context from the server.
        if let Some(Ok(trace)) = api_request.traceparent.as_deref().map(HeaderValue::from_str) {
            headers.insert("traceparent", trace);
        }
        if let Some(last) = last_event_id {
            headers.insert("last-event-id", HeaderValue::from(last));
        }
        Ok(request)
    }

    pub(crate) fn refusal_error(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> ClientError {
        let Ok(problem) = serde_json::from_slice::<Problem>(body) else {
            // The response may come from a proxy, so only its status counts.
            let code = format!("http_{status}");
            let detail = format!("{} responded with status {status} and no reason", self.server_url());
            let retry_after = parse_retry_after(headers);
            let problem = Problem { status, code, detail: Some(detail), retry_after, ..Problem::default() };
            return ClientError::Problem(Box::new(problem));
        };
        let problem = Problem { status, retry_after: parse_retry_after(headers), ..problem };
        ClientError::Problem(Box::new(problem.with_body_retry_after()))
    }

    pub(crate) fn timeout_error(&self, after: Duration) -> ClientError {
        self.transport.reset_connections();
        ClientError::TimedOut { server: self.server_url(), after }
    }

    pub(crate) fn invalid_response(&self, error: &dyn std::fmt::Display) -> ClientError {
        ClientError::InvalidResponse { server: self.server_url(), reason: error.to_string() }
    }

    pub(crate) fn unreachable_error(&self, error: &(dyn std::error::Error + 'static), not_sent: bool) -> ClientError {
        ClientError::Unreachable { server: self.server_url(), reason: root_cause(error).to_string(), not_sent }
    }
}

fn parse_retry_after(headers: &HeaderMap) -> Option<Duration> {
    let delay = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs);
    delay.map(|delay| delay.min(MAX_RETRY_DELAY))
}

/// Exponential backoff with jitter, so that clients that failed together do not retry together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    attempts: u32,
}

impl Backoff {
    pub(crate) fn next_delay(&mut self) -> Duration {
        let max_delay = (INITIAL_RETRY_DELAY * 2u32.saturating_pow(self.attempts)).min(MAX_RETRY_DELAY);
        self.attempts = (self.attempts + 1).min(16);
        max_delay / 2 + max_delay.mul_f64(random_fraction()) / 2
    }

    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }
}

/// Returns a random number from 0 to 1.
fn random_fraction() -> f64 {
    let mut bytes = [0; 4];
    // Without randomness there is no jitter, which is acceptable.
    let _ = getrandom::fill(&mut bytes);
    f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX)
}

/// Generates a random idempotency key.
pub(crate) fn new_idempotency_key() -> Result<String, ClientError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| ClientError::InvalidRequest(error.to_string()))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// Escapes a path segment or a query value.
pub(crate) fn percent_encode(text: &str) -> String {
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
    fn backoff_delays_grow_up_to_maximum() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..20).map(|_| backoff.next_delay()).collect();
        assert!(pauses[0] <= INITIAL_RETRY_DELAY && pauses[0] >= INITIAL_RETRY_DELAY / 2, "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= MAX_RETRY_DELAY), "{pauses:?}");
        assert!(pauses[19] >= MAX_RETRY_DELAY / 2, "{pauses:?}");
        backoff.reset();
        assert!(backoff.next_delay() <= INITIAL_RETRY_DELAY);
    }

    #[test]
    fn percent_encode_escapes_path_separators() {
        assert_eq!(percent_encode("execution.job"), "execution.job");
        assert_eq!(percent_encode("../a b?c#d/ä"), "..%2Fa%20b%3Fc%23d%2F%C3%A4");
    }
}
