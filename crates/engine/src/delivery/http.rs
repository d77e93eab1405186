//! Sends deliveries over HTTP.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::uri::{Scheme, Uri};
use http::{Method, Request};
use http_body_util::Full;
use onceward_http_client::{AddressPolicy, AllowedTargets, HttpClient, HttpClientConfig, SendError, TlsRoots};
use tokio::time::Instant;
use tracing::debug;

use crate::delivery::{DeliveryError, DeliveryRequest, DeliveryResponse, DeliveryTransport};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTransportConfig {
    /// Covers the whole call, from the DNS lookup to the end of the response head.
    pub timeout: Duration,
    /// Targets that may be private, and that may be reached by http. Callers may choose any of them, if they set the
    /// field that a lifecycle delivers to. Other targets must be public and use https.
    pub allowed_targets: AllowedTargets,
}

impl Default for HttpTransportConfig {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), allowed_targets: AllowedTargets::default() }
    }
}

/// Sends HTTP/1.1 POST requests. It follows no redirect, uses no proxy, and reads only the response head.
/// docs/deliveries.md lists the headers of a message; its body is JSON.
#[derive(Clone, Debug)]
pub struct HttpTransport {
    https_client: HttpClient,
    /// Reaches allowed targets only.
    http_client: HttpClient,
    timeout: Duration,
}

impl HttpTransport {
    /// If the root certificates cannot be loaded, it logs a warning, and deliveries over https fail.
    pub fn new(config: HttpTransportConfig) -> Self {
        let HttpTransportConfig { timeout, allowed_targets } = config;
        let client = |allow_public, tls_roots| {
            HttpClient::new(&HttpClientConfig {
                address_policy: AddressPolicy::FromData { allow_public, allowed_targets: allowed_targets.clone() },
                tls_roots,
                connect_timeout: timeout,
                // The response body is not read, so no connection can be reused.
                idle_timeout: None,
                keepalive: None,
            })
        };
        let https_client = client(true, TlsRoots::system_or_none());
        Self { https_client, http_client: client(false, TlsRoots::none()), timeout }
    }
}

impl DeliveryTransport for HttpTransport {
    async fn send(&self, message: DeliveryRequest) -> Result<DeliveryResponse, DeliveryError> {
        let deadline = Instant::now() + self.timeout;
        let delivery = Arc::clone(&message.idempotency_key);
        let request = http_request(message)?;
        let is_https = request.uri().scheme() == Some(&Scheme::HTTPS);
        let client = if is_https { &self.https_client } else { &self.http_client };
        match client.send(request, deadline).await {
            Ok(response) => {
                let retry_after = parse_retry_after(response.headers());
                Ok(DeliveryResponse { status: response.status().as_u16(), retry_after })
            }
            Err(SendError::AddressRefused(refused)) => {
                debug!(%delivery, class = ?refused.class, is_final = refused.is_final, "delivery address was refused");
                let host = &refused.host;
                let reason = format!(
                    "{refused}: deliveries need https and a public address, unless the server runs with --allow-delivery-to {host}"
                );
                // A resolver may be wrong for a while (split DNS, a failing uplink).
                Err(if refused.is_final { DeliveryError::Permanent(reason) } else { DeliveryError::Retryable(reason) })
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
    headers.insert("webhook-id", header_value(&message.idempotency_key)?);
    headers.insert("webhook-timestamp", message.signature.timestamp.into());
    headers.insert("webhook-signature", header_value(&message.signature.signatures)?);
    headers.insert("onceward-source", header_value(&message.source_record)?);
    headers.insert("onceward-attempt", message.attempt.into());
    Ok(request)
}

/// Parses the value in seconds. HTTP dates are ignored.
fn parse_retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}
