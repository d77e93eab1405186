//! The line to a service: where it is, the key it wants, one question and its bounded answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use http::uri::{Authority, Scheme, Uri};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::GaiResolver;
use hyper_util::client::legacy::{Client as Pool, Error as PoolError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::RootCertStore;
use tokio::time::{Instant, timeout_at};

use super::failure::Trouble;
use super::reach::PublicOnly;

/// A service that is there accepts within this time, also over a slow line.
const CONNECT: Duration = Duration::from_secs(10);

/// A connection that nobody used for so long is closed, before most services do so in the middle of a question.
const IDLE: Duration = Duration::from_secs(20);

const AGENT: HeaderValue = HeaderValue::from_static(concat!("onceward/", env!("CARGO_PKG_VERSION")));

/// What is wrong with how a service is configured. Shows no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error(
        "the service's address is not one: write it as https://HOST, without a user, a query or the path of a call"
    )]
    BadUrl,
    #[error("the service's key has characters that no key has")]
    BadKey,
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// Cheap to clone; clones share their connections.
#[derive(Clone)]
pub(super) struct Line(Arc<Inner>);

struct Inner {
    scheme: Scheme,
    authority: Authority,
    /// What stands before `/v1`; without a slash at its end.
    prefix: String,
    authorization: Option<HeaderValue>,
    /// To the service itself, wherever it is.
    own: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// To hosts that the service names: only such as all the world can reach.
    public: Pool<HttpsConnector<HttpConnector<PublicOnly>>, Full<Bytes>>,
}

/// The key is not shown, nor a path that may be one.
impl fmt::Debug for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}://{}", self.0.scheme, self.0.authority)
    }
}

/// An answer, read to its end.
pub(super) struct Answered {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Line {
    pub(super) fn open(url: &str, key: Option<&str>) -> Result<Self, ConfigError> {
        let uri: Uri = url.trim().parse().map_err(|_| ConfigError::BadUrl)?;
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(ConfigError::BadUrl);
        };
        let path = parts.path_and_query.as_ref();
        let spoken = scheme == Scheme::HTTP || scheme == Scheme::HTTPS;
        if !spoken || authority.as_str().contains('@') || path.is_some_and(|path| path.query().is_some()) {
            return Err(ConfigError::BadUrl);
        }
        // Many write the address with the version that every path begins with.
        let path = path.map_or("", |path| path.path()).trim_end_matches('/');
        let prefix = path.strip_suffix("/v1").unwrap_or(path).to_owned();
        let authorization = key.map(bearer).transpose()?;
        let roots = Arc::new(onceward_engine::trusted().map_err(ConfigError::Tls)?);
        let own = pool(HttpConnector::new(), Arc::clone(&roots))?;
        let public = pool(HttpConnector::new_with_resolver(PublicOnly::new(GaiResolver::new())), roots)?;
        if authorization.is_some() && scheme == Scheme::HTTP && !is_this_machine(&authority) {
            tracing::warn!(host = authority.host(), "the service's key goes over the network in the clear: use https");
        }
        Ok(Self(Arc::new(Inner { scheme, authority, prefix, authorization, own, public })))
    }

    /// Whether an address lies at the service itself: the same scheme, host and port.
    pub(super) fn is_own(&self, uri: &Uri) -> bool {
        let (scheme, authority) = (&self.0.scheme, &self.0.authority);
        let port = |scheme: &Scheme, port: Option<u16>| port.unwrap_or(if *scheme == Scheme::HTTPS { 443 } else { 80 });
        uri.scheme() == Some(scheme)
            && uri.host().is_some_and(|host| host.eq_ignore_ascii_case(authority.host()))
            && port(scheme, uri.port_u16()) == port(scheme, authority.port_u16())
    }

    /// Post JSON to a path below `/v1`, with the key, and read the answer.
    pub(super) async fn post(
        &self,
        path: &str,
        body: Vec<u8>,
        until: Instant,
        most: usize,
    ) -> Result<Answered, Trouble> {
        let inner = &self.0;
        let target = Uri::builder()
            .scheme(inner.scheme.clone())
            .authority(inner.authority.clone())
            .path_and_query(format!("{}/v1{path}", inner.prefix));
        // Made of the parts of an address that was taken apart before.
        let target = target.build().map_err(|_| Trouble::Broken)?;
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = target;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, AGENT);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(authorization) = &inner.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let response = sent(timeout_at(until, inner.own.request(request)).await)?;
        read(response, until, most).await
    }

    /// Fetch from an address that the service has named, without the key. The caller has judged the address; a name that
    /// leads into a private network is refused when it is looked up.
    pub(super) async fn get(&self, uri: &Uri, until: Instant) -> Result<Response<Incoming>, Trouble> {
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.uri_mut() = uri.clone();
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, AGENT);
        headers.insert(ACCEPT, HeaderValue::from_static("image/png, image/jpeg, image/webp"));
        if self.is_own(uri) {
            return sent(timeout_at(until, self.0.own.request(request)).await);
        }
        sent(timeout_at(until, self.0.public.request(request)).await)
    }
}

fn sent<T>(outcome: Result<Result<T, PoolError>, tokio::time::error::Elapsed>) -> Result<T, Trouble> {
    match outcome {
        Err(_) => Err(Trouble::TimeOut),
        Ok(Err(error)) => Err(Trouble::of(&error, error.is_connect())),
        Ok(Ok(response)) => Ok(response),
    }
}

/// Of a refusal this much is read. What it says is for people, but for a code, and may be anything.
const REFUSAL: usize = 64 << 10;

/// An answer to its end, if that comes in time and before so many bytes. Of a refusal, the status is most of it: one that is longer than
/// any should be is one without words.
pub(super) async fn read(response: Response<Incoming>, until: Instant, most: usize) -> Result<Answered, Trouble> {
    let (parts, body) = response.into_parts();
    let is_refusal = !parts.status.is_success();
    let most = if is_refusal { most.min(REFUSAL) } else { most };
    let body = match timeout_at(until, Limited::new(body, most).collect()).await {
        Err(_) => return Err(Trouble::TimeOut),
        Ok(Err(error)) if error.is::<LengthLimitError>() && is_refusal => Bytes::new(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(Trouble::TooLarge),
        Ok(Err(error)) => return Err(Trouble::of(&*error, false)),
        Ok(Ok(collected)) => collected.to_bytes(),
    };
    Ok(Answered { status: parts.status, headers: parts.headers, body })
}

fn bearer(key: &str) -> Result<HeaderValue, ConfigError> {
    let mut value = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| ConfigError::BadKey)?;
    value.set_sensitive(true);
    Ok(value)
}

fn is_this_machine(authority: &Authority) -> bool {
    let host = authority.host();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn pool<R>(
    mut tcp: HttpConnector<R>,
    roots: Arc<RootCertStore>,
) -> Result<Pool<HttpsConnector<HttpConnector<R>>, Full<Bytes>>, ConfigError>
where
    HttpConnector<R>: Clone,
    HttpsConnector<HttpConnector<R>>: hyper_util::client::legacy::connect::Connect + Clone,
{
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ConfigError::Tls(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    let mut pool = Pool::builder(TokioExecutor::new());
    pool.pool_idle_timeout(IDLE).pool_timer(TokioTimer::new());
    Ok(pool.build(connector))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_with_and_without_the_version() {
        for url in ["https://api.example.org", "https://api.example.org/", "https://api.example.org/v1/"] {
            assert_eq!(Line::open(url, None).expect("right").0.prefix, "", "{url}");
        }
        assert_eq!(Line::open("http://[::1]:8080/openai/v1", None).expect("right").0.prefix, "/openai");
        for wrong in ["", "api.example.org", "ftp://a", "https://me:you@a", "https://a?key=b", "https://a b"] {
            assert_eq!(Line::open(wrong, None).expect_err("wrong"), ConfigError::BadUrl, "{wrong}");
        }
        assert_eq!(Line::open("https://a", Some("a\nb")).expect_err("wrong"), ConfigError::BadKey);
    }

    #[test]
    fn the_service_itself_is_a_scheme_a_host_and_a_port() {
        let line = Line::open("https://Api.example.org/v1", Some("hidden")).expect("right");
        let own = |url: &str| line.is_own(&url.parse().expect("an address"));
        assert!(own("https://api.example.org/a.png") && own("https://api.example.org:443/a.png"));
        assert!(!own("http://api.example.org/a.png") && !own("https://api.example.org:8443/a.png"));
        assert!(!own("https://api.example.org.evil.example/a.png") && !own("/a.png"));
        assert!(!format!("{line:?}").contains("hidden"));
    }
}
