//! Sends deliveries over HTTP, with a TLS stack in Rust and bundled root certificates.

use std::time::Duration;

use ureq::Agent;
use ureq::http::HeaderMap;

use crate::delivery::{DeliveryError, DeliveryRequest, DeliveryResponse, DeliveryTransport};

/// Covers the whole call, from the DNS lookup to the end of the response head.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Sends HTTP/1.1 POST requests. It follows no redirect, uses no proxy, and reads only the response head.
///
/// Each message has the headers `Idempotency-Key` (the same on every attempt), `Onceward-Source` and
/// `Onceward-Attempt`; its body is JSON.
#[derive(Clone, Debug)]
pub struct HttpTransport {
    agent: Agent,
}

impl Default for HttpTransport {
    fn default() -> Self {
        Self::new(REQUEST_TIMEOUT)
    }
}

impl HttpTransport {
    /// Creates a transport whose calls time out after `timeout`.
    pub fn new(timeout: Duration) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // A message goes to the URL of its lifecycle, and nowhere else.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .timeout_global(Some(timeout))
            // The response body is not read, so no connection can be reused.
            .max_idle_connections(0)
            .user_agent("onceward")
            .build();
        Self { agent: config.new_agent() }
    }

    fn send_blocking(&self, request: &DeliveryRequest) -> Result<DeliveryResponse, DeliveryError> {
        if !["http://", "https://"].iter().any(|scheme| request.url.starts_with(scheme)) {
            return Err(DeliveryError::Permanent("the address must start with http:// or https://".to_owned()));
        }
        let http_request = self
            .agent
            .post(&*request.url)
            .header("Content-Type", "application/json")
            .header("Idempotency-Key", &*request.idempotency_key)
            .header("Onceward-Source", &*request.source_record)
            .header("Onceward-Attempt", request.attempt.to_string());
        match http_request.send(&request.body[..]) {
            Ok(response) => {
                let retry_after = parse_retry_after(response.headers());
                Ok(DeliveryResponse { status: response.status().as_u16(), retry_after })
            }
            Err(error @ (ureq::Error::BadUri(_) | ureq::Error::Http(_))) => {
                Err(DeliveryError::Permanent(error.to_string()))
            }
            Err(error) => Err(DeliveryError::Retryable(error.to_string())),
        }
    }
}

impl DeliveryTransport for HttpTransport {
    async fn send(&self, message: DeliveryRequest) -> Result<DeliveryResponse, DeliveryError> {
        let transport = self.clone();
        // The HTTP client blocks its thread; `timeout_global` bounds how long.
        let response = tokio::task::spawn_blocking(move || transport.send_blocking(&message)).await;
        response.unwrap_or_else(|error| Err(DeliveryError::Retryable(error.to_string())))
    }
}

/// Parses the value in seconds. HTTP dates are ignored.
fn parse_retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get("retry-after")?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}
