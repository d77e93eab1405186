//! Sends deliveries over HTTP.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::uri::{Scheme, Uri};
use http::{Method, Request};
use http_body_util::Full;
use onceward_http_client::{AddressPolicy, HttpClient, HttpClientConfig, SendError, TlsRoots};
use tokio::time::Instant;
use tracing::debug;

use crate::delivery::{DeliveryError, DeliveryRequest, DeliveryResponse, DeliveryTransport};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpTransportConfig {
    /// Covers the whole call, from the DNS lookup to the end of the response head.
    pub timeout: Duration,
    /// Allows deliveries to loopback, private and other addresses that are not public. Callers may then choose hosts
    /// that only this machine can reach, if they set the field that a lifecycle delivers to.
    pub allow_private_addresses: bool,
}

impl Default for HttpTransportConfig {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), allow_private_addresses: false }
    }
}

/// Sends HTTP/1.1 POST requests. It follows no redirect, uses no proxy, and reads only the response head.
///
/// Each message has the headers `Idempotency-Key` (the same on every attempt), `Onceward-Source` and
/// `Onceward-Attempt`; its body is JSON.
#[derive(Clone, Debug)]
pub struct HttpTransport {
    client: HttpClient,
    timeout: Duration,
}

impl HttpTransport {
    /// If the root certificates cannot be loaded, it logs a warning, and deliveries over https fail.
    pub fn new(config: HttpTransportConfig) -> Self {
        let HttpTransportConfig { timeout, allow_private_addresses } = config;
        let client = HttpClient::new(&HttpClientConfig {
            address_policy: AddressPolicy::FromData { allow_private: allow_private_addresses },
            tls_roots: TlsRoots::system_or_none(),
            connect_timeout: timeout,
            // The response body is not read, so no connection can be reused.
            idle_timeout: None,
            keepalive: None,
        });
        Self { client, timeout }
    }
}

impl DeliveryTransport for HttpTransport {
    async fn send(&self, message: DeliveryRequest) -> Result<DeliveryResponse, DeliveryError> {
        let deadline = Instant::now() + self.timeout;
        let delivery = Arc::clone(&message.idempotency_key);
        let request = http_request(message)?;
        match self.client.send(request, deadline).await {
            Ok(response) => {
                let retry_after = parse_retry_after(response.headers());
                Ok(DeliveryResponse { status: response.status().as_u16(), retry_after })
            }
            Err(SendError::AddressRefused(refused)) => {
                debug!(%delivery, class = %refused.class, is_literal = refused.is_literal, "delivery address was refused");
                let reason = format!(
                    "{refused}: deliveries need a public address, unless the server runs with --allow-private-deliveries"
                );
                // A resolver may be wrong for a while (split DNS, a failing uplink), but a literal address stays refused.
                Err(if refused.is_literal {
                    DeliveryError::Permanent(reason)
                } else {
                    DeliveryError::Retryable(reason)
                })
            }
            Err(SendError::Connect(error)) if error.kind() == ErrorKind::InvalidInput => {
                Err(DeliveryError::Permanent(error.to_string()))
            }
            Err(error) => Err(DeliveryError::Retryable(error.to_string())),
        }
    }
}

fn http_request(message: DeliveryRequest) -> Result<Request<Full<Bytes>>, DeliveryError> {
    let uri: Uri =
        message.url.parse().map_err(|error| DeliveryError::Permanent(format!("the URL is not valid: {error}")))?;
    let is_http = uri.scheme() == Some(&Scheme::HTTP) || uri.scheme() == Some(&Scheme::HTTPS);
    if !is_http || uri.host().is_none_or(str::is_empty) {
        return Err(DeliveryError::Permanent("the URL of a delivery must begin with http:// or https://".to_owned()));
    }
    let header_value = |text: &str| {
        HeaderValue::try_from(text).map_err(|error| DeliveryError::Permanent(format!("a header is not valid: {error}")))
    };
    let mut request = Request::new(Full::new(Bytes::from_owner(message.body)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    headers.insert(USER_AGENT, HeaderValue::from_static("onceward"));
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("idempotency-key", header_value(&message.idempotency_key)?);
    headers.insert("onceward-source", header_value(&message.source_record)?);
    headers.insert("onceward-attempt", message.attempt.into());
    Ok(request)
}

/// Parses the value in seconds. HTTP dates are ignored.
fn parse_retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}
