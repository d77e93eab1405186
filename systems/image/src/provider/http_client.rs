//! HTTP client for one provider service: URL, API key, and requests with bounded responses.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use http::uri::{Authority, Scheme, Uri};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use onceward_http_client::{AddressPolicy, HttpClient, HttpClientConfig, TlsRoots, root_cause};
use tokio::time::{Instant, timeout_at};

use super::provider_error::ProviderError;

/// An available service accepts a connection within this time, even over a slow network.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Shorter than the idle timeout of most services, so that they do not close a connection during a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

const USER_AGENT_VALUE: HeaderValue = HeaderValue::from_static(concat!("onceward/", env!("CARGO_PKG_VERSION")));

/// An invalid provider configuration. Messages never contain the API key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderConfigError {
    #[error("invalid service URL; write it as https://HOST, without a user, a query or the path of a call")]
    InvalidUrl,
    #[error("the service's API key contains invalid characters")]
    InvalidApiKey,
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// HTTP client of a provider. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub(super) struct ProviderHttpClient(Arc<HttpClientInner>);

struct HttpClientInner {
    scheme: Scheme,
    authority: Authority,
    /// Path before `/v1`, without a trailing slash.
    prefix: String,
    authorization: Option<HeaderValue>,
    /// For the service itself, at any address.
    service_client: HttpClient,
    /// For hosts that the service names; public addresses only.
    download_client: HttpClient,
}

/// Omits the API key, and the path because it may contain a secret.
impl fmt::Debug for ProviderHttpClient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}://{}", self.0.scheme, self.0.authority)
    }
}

/// A completely read response.
pub(super) struct ProviderResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl ProviderHttpClient {
    pub(super) fn open(url: &str, api_key: Option<&str>) -> Result<Self, ProviderConfigError> {
        let uri: Uri = url.trim().parse().map_err(|_| ProviderConfigError::InvalidUrl)?;
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(ProviderConfigError::InvalidUrl);
        };
        let path = parts.path_and_query.as_ref();
        let is_http = scheme == Scheme::HTTP || scheme == Scheme::HTTPS;
        if !is_http || authority.as_str().contains('@') || path.is_some_and(|path| path.query().is_some()) {
            return Err(ProviderConfigError::InvalidUrl);
        }
        // Many users configure the URL with the version that every path starts with.
        let path = path.map_or("", |path| path.path()).trim_end_matches('/');
        let prefix = path.strip_suffix("/v1").unwrap_or(path).to_owned();
        let authorization = api_key.map(bearer_header).transpose()?;
        let tls_roots = TlsRoots::for_configured_url(scheme == Scheme::HTTPS);
        let config = HttpClientConfig {
            address_policy: AddressPolicy::Configured,
            tls_roots: tls_roots.map_err(|error| ProviderConfigError::Tls(error.to_string()))?,
            connect_timeout: CONNECT_TIMEOUT,
            idle_timeout: Some(IDLE_TIMEOUT),
            keepalive: None,
        };
        let service_client = HttpClient::new(&config);
        let address_policy = AddressPolicy::public_only();
        let download_client = HttpClient::new(&HttpClientConfig { address_policy, ..config });
        if authorization.is_some() && scheme == Scheme::HTTP && !is_loopback(&authority) {
            tracing::warn!(host = authority.host(), "the service's API key is sent unencrypted; use https");
        }
        let inner = HttpClientInner { scheme, authority, prefix, authorization, service_client, download_client };
        Ok(Self(Arc::new(inner)))
    }

    /// Returns whether a URL has the scheme, host and port of the service.
    pub(super) fn is_service_url(&self, uri: &Uri) -> bool {
        let (scheme, authority) = (&self.0.scheme, &self.0.authority);
        let port = |scheme: &Scheme, port: Option<u16>| port.unwrap_or(if *scheme == Scheme::HTTPS { 443 } else { 80 });
        uri.scheme() == Some(scheme)
            && uri.host().is_some_and(|host| host.eq_ignore_ascii_case(authority.host()))
            && port(scheme, uri.port_u16()) == port(scheme, authority.port_u16())
    }

    /// Posts JSON to a path below `/v1`, with the API key, and reads the response.
    pub(super) async fn post(
        &self,
        path: &str,
        body: Vec<u8>,
        deadline: Instant,
        max_bytes: usize,
    ) -> Result<ProviderResponse, ProviderError> {
        let inner = &self.0;
        let target = Uri::builder()
            .scheme(inner.scheme.clone())
            .authority(inner.authority.clone())
            .path_and_query(format!("{}/v1{path}", inner.prefix));
        // The parts come from a valid URL, so this cannot fail.
        let target = target.build().map_err(|_| ProviderError::InvalidResponse)?;
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = target;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, USER_AGENT_VALUE);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(authorization) = &inner.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let response = inner.service_client.send(request, deadline).await?;
        read_response(response, deadline, max_bytes).await
    }

    /// Sends a GET request to a URL that the service named, without the API key. Outside the service, the URL must have
    /// a public address.
    pub(super) async fn get(&self, uri: &Uri, deadline: Instant) -> Result<Response<Incoming>, ProviderError> {
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.uri_mut() = uri.clone();
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, USER_AGENT_VALUE);
        headers.insert(ACCEPT, HeaderValue::from_static("image/png, image/jpeg, image/webp"));
        let inner = &self.0;
        let client = if self.is_service_url(uri) { &inner.service_client } else { &inner.download_client };
        Ok(client.send(request, deadline).await?)
    }
}

/// An error body is read only for its error code; longer bodies are dropped.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;

/// Reads a response up to `deadline` and `max_bytes`. If the body of an error is too long, it is treated as empty: the
/// status says enough.
pub(super) async fn read_response(
    response: Response<Incoming>,
    deadline: Instant,
    max_bytes: usize,
) -> Result<ProviderResponse, ProviderError> {
    let (parts, body) = response.into_parts();
    let is_error = !parts.status.is_success();
    let max_bytes = if is_error { max_bytes.min(MAX_ERROR_BODY_BYTES) } else { max_bytes };
    let body = match timeout_at(deadline, Limited::new(body, max_bytes).collect()).await {
        Err(_) => return Err(ProviderError::Timeout),
        Ok(Err(error)) if error.is::<LengthLimitError>() && is_error => Bytes::new(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(ProviderError::ResponseTooLarge),
        Ok(Err(error)) => return Err(ProviderError::from_broken_body(&root_cause(&*error))),
        Ok(Ok(collected)) => collected.to_bytes(),
    };
    Ok(ProviderResponse { status: parts.status, headers: parts.headers, body })
}

fn bearer_header(api_key: &str) -> Result<HeaderValue, ProviderConfigError> {
    let mut value =
        HeaderValue::try_from(format!("Bearer {api_key}")).map_err(|_| ProviderConfigError::InvalidApiKey)?;
    value.set_sensitive(true);
    Ok(value)
}

fn is_loopback(authority: &Authority) -> bool {
    let host = authority.host();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_accepted_with_and_without_v1_suffix() {
        for url in ["https://api.example.org", "https://api.example.org/", "https://api.example.org/v1/"] {
            assert_eq!(ProviderHttpClient::open(url, None).expect("right").0.prefix, "", "{url}");
        }
        assert_eq!(ProviderHttpClient::open("http://[::1]:8080/openai/v1", None).expect("right").0.prefix, "/openai");
        for invalid in ["", "api.example.org", "ftp://a", "https://me:you@a", "https://a?key=b", "https://a b"] {
            assert_eq!(
                ProviderHttpClient::open(invalid, None).expect_err("wrong"),
                ProviderConfigError::InvalidUrl,
                "{invalid}"
            );
        }
        assert_eq!(
            ProviderHttpClient::open("https://a", Some("a\nb")).expect_err("wrong"),
            ProviderConfigError::InvalidApiKey
        );
    }

    #[test]
    fn service_url_requires_same_scheme_host_and_port() {
        let client = ProviderHttpClient::open("https://Api.example.org/v1", Some("hidden")).expect("right");
        let is_service_url = |url: &str| client.is_service_url(&url.parse().expect("an address"));
        assert!(is_service_url("https://api.example.org/a.png") && is_service_url("https://api.example.org:443/a.png"));
        assert!(
            !is_service_url("http://api.example.org/a.png") && !is_service_url("https://api.example.org:8443/a.png")
        );
        assert!(!is_service_url("https://api.example.org.evil.example/a.png") && !is_service_url("/a.png"));
        assert!(!format!("{client:?}").contains("hidden"));
    }
}
