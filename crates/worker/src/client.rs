//! The client: server address, API key and connection pool.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::HeaderValue;
use http::uri::{Authority, Scheme, Uri};
use onceward_http_client::{AddressPolicy, HttpClient, HttpClientConfig, TcpKeepalive, TlsRoots};

use crate::error::ClientError;

/// Shorter than the server's idle timeout of 30 seconds, so that the server does not close a connection during a
/// request.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// A reachable server accepts within this time, even over a slow network.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// If a host or a NAT entry on the path disappears, a waiting connection is detected as dead after about 25 seconds.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive { delay: Duration::from_secs(10), interval: Duration::from_secs(5), max_probes: 3 };

/// Timeouts of calls and retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Time for one response. Calls that wait for jobs get this in addition to their wait.
    pub response_timeout: Duration,
    /// Time from the first attempt of a call to the last.
    pub retry_timeout: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { response_timeout: Duration::from_secs(30), retry_timeout: Duration::from_secs(10) }
    }
}

/// Gets the error of a failed attempt, and the time since the first attempt of the call.
type RetryObserver = Arc<dyn Fn(&ClientError, Duration) + Send + Sync>;

/// A client for one server. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Client {
    pub(crate) transport: Arc<Transport>,
    pub(crate) retry_policy: RetryPolicy,
    pub(crate) retry_observer: Option<RetryObserver>,
}

pub(crate) struct Transport {
    http_client: Mutex<HttpClient>,
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    /// Path prefix before `/v1`, without a trailing slash.
    pub(crate) prefix: String,
    pub(crate) authorization_header: Option<HeaderValue>,
}

impl Transport {
    pub(crate) fn http_client(&self) -> HttpClient {
        self.http_client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Drops idle connections after a timeout, because they may be as dead as the one that timed out.
    pub(crate) fn reset_connections(&self) {
        let mut http_client = self.http_client.lock().unwrap_or_else(PoisonError::into_inner);
        *http_client = http_client.with_new_connections();
    }
}

/// Hides the API key.
impl fmt::Debug for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Client")
            .field("server", &self.server_url())
            .field("retry_policy", &self.retry_policy)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Creates a client for a server such as `http://127.0.0.1:7171`, with an API key if the server requires one.
    ///
    /// For https, it trusts the machine's root certificates and those of browsers. `SSL_CERT_FILE` and
    /// `SSL_CERT_DIR` replace both.
    pub fn new(url: &str, api_key: Option<&str>) -> Result<Self, ClientError> {
        Self::build(url, api_key, None)
    }

    /// Like [`new`](Self::new), but also trusts the certificates in this PEM file.
    pub fn with_ca_file(url: &str, api_key: Option<&str>, ca_file: &Path) -> Result<Self, ClientError> {
        Self::build(url, api_key, Some(ca_file))
    }

    fn build(url: &str, api_key: Option<&str>, ca_file: Option<&Path>) -> Result<Self, ClientError> {
        let invalid =
            |reason: &str| ClientError::InvalidUrl { url: redact_credentials(url), reason: reason.to_owned() };
        let uri: Uri =
            url.trim_end_matches('/').parse().map_err(|_| invalid("expected http://HOST:PORT or https://HOST:PORT"))?;
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(invalid("expected http://HOST:PORT or https://HOST:PORT"));
        };
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err(invalid("only http and https are supported"));
        }
        if authority.as_str().contains('@') {
            return Err(invalid("it contains credentials; pass the API key separately"));
        }
        let path = parts.path_and_query.as_ref().map_or("", |path| path.path());
        let prefix = path.trim_end_matches('/').to_owned();
        let authorization = api_key.map(bearer_header).transpose()?;
        let tls_roots = match ca_file {
            _ if scheme == Scheme::HTTP => Ok(TlsRoots::none()),
            None => TlsRoots::system(),
            Some(file) => TlsRoots::system_and_file(file),
        };
        let config = HttpClientConfig {
            address_policy: AddressPolicy::Configured,
            tls_roots: tls_roots.map_err(|error| ClientError::InvalidRequest(error.to_string()))?,
            connect_timeout: CONNECT_TIMEOUT,
            idle_timeout: Some(POOL_IDLE_TIMEOUT),
            keepalive: Some(KEEPALIVE),
        };
        let http_client = Mutex::new(HttpClient::new(&config));
        let transport = Transport { http_client, scheme, authority, prefix, authorization_header: authorization };
        Ok(Self { transport: Arc::new(transport), retry_policy: RetryPolicy::default(), retry_observer: None })
    }

    /// Returns a client for the same server with another retry policy.
    pub fn with_retry_policy(&self, retry_policy: RetryPolicy) -> Self {
        Self { retry_policy, ..self.clone() }
    }

    /// Returns a client that calls `observer` before each retry, with the error of the failed attempt and the time
    /// since the first attempt of the call.
    pub fn with_retry_observer(&self, observer: impl Fn(&ClientError, Duration) + Send + Sync + 'static) -> Self {
        Self { retry_observer: Some(Arc::new(observer)), ..self.clone() }
    }

    /// Returns a client with its own connections, which belong to the runtime that opens them.
    pub(crate) fn with_own_connections(&self) -> Self {
        let transport = &*self.transport;
        let own_transport = Transport {
            http_client: Mutex::new(transport.http_client().with_new_connections()),
            scheme: transport.scheme.clone(),
            authority: transport.authority.clone(),
            prefix: transport.prefix.clone(),
            authorization_header: transport.authorization_header.clone(),
        };
        Self { transport: Arc::new(own_transport), ..self.clone() }
    }

    /// Returns the server's address.
    pub fn server_url(&self) -> String {
        format!("{}://{}{}", self.transport.scheme, self.transport.authority, self.transport.prefix)
    }
}

fn bearer_header(api_key: &str) -> Result<HeaderValue, ClientError> {
    let mut value = HeaderValue::try_from(format!("Bearer {api_key}"))
        .map_err(|_| ClientError::InvalidRequest("the API key contains invalid characters".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Removes user and password from an address, because error messages contain it.
fn redact_credentials(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}://…{}", &url[..scheme], &url[at..]),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_accepts_http_urls_and_rejects_others() {
        let server = |url: &str| Client::new(url, None).map(|client| client.server_url());
        assert_eq!(server("http://127.0.0.1:7171").expect("valid URL"), "http://127.0.0.1:7171");
        assert_eq!(server("https://example.org/jobs/").expect("valid URL"), "https://example.org/jobs");
        for invalid in ["", "127.0.0.1:7171", "ftp://host", "http://", "http://key@host", "http://a b"] {
            assert!(server(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn api_key_is_redacted_in_debug_and_errors() {
        let client = Client::new("http://127.0.0.1:7171", Some("ow_hidden")).expect("valid URL");
        assert!(!format!("{client:?}").contains("hidden"));
        let error = Client::new("http://me:hidden@host", None).expect_err("credentials in URL");
        assert!(!error.to_string().contains("hidden"), "{error}");
        assert!(Client::new("http://127.0.0.1", Some("a\nb")).is_err());
    }
}
