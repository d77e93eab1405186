//! The client: connection set-up and requests.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use percent_encoding::percent_decode_str;
use tokio::time::{Instant, timeout_at};

use crate::address_policy::AddressPolicy;
use crate::error::SendError;
use crate::resolver::{Lookup, PolicyResolver, system_lookup};
use crate::tls_roots::TlsRoots;

#[derive(Clone, Debug)]
pub struct HttpClientConfig {
    pub address_policy: AddressPolicy,
    pub tls_roots: TlsRoots,
    /// Time to establish a connection, after the name was resolved.
    pub connect_timeout: Duration,
    /// How long an unused connection is kept for the next request. `None` opens a connection for each request.
    pub idle_timeout: Option<Duration>,
    pub keepalive: Option<TcpKeepalive>,
}

/// Detects a dead connection while it waits for a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpKeepalive {
    /// Silence before the first probe.
    pub delay: Duration,
    pub interval: Duration,
    pub max_probes: u32,
}

type Connector = HttpsConnector<HttpConnector<PolicyResolver>>;

/// An HTTP/1.1 client. Cheap to clone; clones share their connections.
pub struct HttpClient<B = Full<Bytes>> {
    pool: Pool<Connector, B>,
    connector: Connector,
    address_policy: AddressPolicy,
    idle_timeout: Option<Duration>,
}

impl<B> HttpClient<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    pub fn new(config: &HttpClientConfig) -> Self {
        Self::with_lookup(config, system_lookup())
    }

    pub(crate) fn with_lookup(config: &HttpClientConfig, lookup: Lookup) -> Self {
        let connector = build_connector(config, lookup);
        let idle_timeout = config.idle_timeout;
        let address_policy = config.address_policy.clone();
        Self { pool: build_pool(&connector, idle_timeout), connector, address_policy, idle_timeout }
    }

    /// Returns a client with the same settings and no open connections.
    pub fn with_new_connections(&self) -> Self {
        Self { pool: build_pool(&self.connector, self.idle_timeout), ..self.clone() }
    }

    /// Sends a request and waits for the response head until `deadline`. Reading the body is left to the caller.
    ///
    /// Credentials in the URL (`https://user:password@host`) become an `Authorization` header, unless there is one.
    pub async fn send(&self, mut request: Request<B>, deadline: Instant) -> Result<Response<Incoming>, SendError> {
        move_credentials_to_header(&mut request);
        check_port(request.uri())?;
        self.address_policy.check_uri(request.uri())?;
        let response = timeout_at(deadline, self.pool.request(request)).await;
        Ok(response.map_err(|_| SendError::Timeout)??)
    }
}

impl<B> Clone for HttpClient<B> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            connector: self.connector.clone(),
            address_policy: self.address_policy.clone(),
            idle_timeout: self.idle_timeout,
        }
    }
}

impl<B> fmt::Debug for HttpClient<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("HttpClient").field("address_policy", &self.address_policy).finish_non_exhaustive()
    }
}

/// Refuses a port that is not a number up to 65535: the connector would use the default port instead.
fn check_port(uri: &Uri) -> Result<(), SendError> {
    let Some(authority) = uri.authority() else { return Ok(()) };
    let has_port =
        authority.as_str().rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && !port.ends_with(']'));
    if has_port && authority.port_u16().is_none() {
        return Err(SendError::Connect(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the port of the URL is not valid",
        )));
    }
    Ok(())
}

pub(crate) fn move_credentials_to_header<B>(request: &mut Request<B>) {
    let mut parts = request.uri().clone().into_parts();
    let Some(authority) = parts.authority.take() else { return };
    let Some((credentials, host)) = authority.as_str().rsplit_once('@') else { return };
    let mut decoded: Vec<u8> = percent_decode_str(credentials).collect();
    if !decoded.contains(&b':') {
        decoded.push(b':');
    }
    let value = format!("Basic {}", STANDARD.encode(decoded));
    let (Ok(host), Ok(mut value)) = (host.parse(), HeaderValue::try_from(value)) else { return };
    value.set_sensitive(true);
    parts.authority = Some(host);
    let Ok(uri) = Uri::from_parts(parts) else { return };
    *request.uri_mut() = uri;
    request.headers_mut().entry(AUTHORIZATION).or_insert(value);
}

fn build_connector(config: &HttpClientConfig, lookup: Lookup) -> Connector {
    let mut tcp = HttpConnector::new_with_resolver(PolicyResolver { policy: config.address_policy.clone(), lookup });
    tcp.enforce_http(false);
    // A request is one small write; Nagle's algorithm would only delay it.
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(config.connect_timeout));
    if let Some(TcpKeepalive { delay, interval, max_probes }) = config.keepalive {
        tcp.set_keepalive(Some(delay));
        tcp.set_keepalive_interval(Some(interval));
        tcp.set_keepalive_retries(Some(max_probes));
        // The same limit for sent data that is never acknowledged.
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(delay + interval * max_probes));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports the default protocol versions")
        .with_root_certificates(Arc::clone(&config.tls_roots.0))
        .with_no_client_auth();
    hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp)
}

fn build_pool<B>(connector: &Connector, idle_timeout: Option<Duration>) -> Pool<Connector, B>
where
    B: Body + Send,
    B::Data: Send,
{
    let mut pool = Pool::builder(TokioExecutor::new());
    pool.pool_timer(TokioTimer::new());
    match idle_timeout {
        Some(timeout) => pool.pool_idle_timeout(timeout),
        None => pool.pool_max_idle_per_host(0),
    };
    pool.build(connector.clone())
}
