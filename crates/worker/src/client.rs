//! Whom to ask, and for whom one speaks.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderValue;
use http::uri::{Authority, Scheme, Uri};
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::RootCertStore;

use crate::error::ClientError;
use crate::trust;

/// A connection that nobody used for so long is closed: well before the server does so, after 30 seconds, in the middle of a question.
const IDLE: Duration = Duration::from_secs(20);

/// A server that is there accepts within this time, also over a slow line.
const CONNECT: Duration = Duration::from_secs(5);

/// A connection that is waited on is asked whether its other end is still there after so long, and so often from then on. One that
/// went silent, because a host or a table of addresses on the way is gone, is known to be dead after about half a minute.
const STILL_THERE: Duration = Duration::from_secs(10);
const ASKED_AGAIN: Duration = Duration::from_secs(5);
const UNANSWERED: u32 = 3;

/// How long to wait, and how long to go on trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For one answer; a call that waits for work gets this on top.
    pub answer: Duration,
    /// For a call that is sent again, from its first try to the last.
    pub retries: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { answer: Duration::from_secs(30), retries: Duration::from_secs(10) }
    }
}

/// A server, and the key with which one speaks to it. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    pub(crate) line: Arc<Line>,
    pub(crate) patience: Patience,
}

type Connections = Pool<Connector, Full<Bytes>>;
type Connector = HttpsConnector<HttpConnector>;

pub(crate) struct Line {
    connector: Connector,
    connections: Mutex<Connections>,
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    /// What stands before `/v1`, where the server lives below a path; without a slash at its end.
    pub(crate) prefix: String,
    pub(crate) authorization: Option<HeaderValue>,
}

impl Line {
    pub(crate) fn connections(&self) -> Connections {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An answer did not come in time. The connections that idle may be as dead as the one that was waited on, so that the next
    /// question had better go over a new one.
    pub(crate) fn distrust(&self) {
        *self.connections.lock().unwrap_or_else(PoisonError::into_inner) = connections(&self.connector);
    }
}

/// The key is not shown.
impl fmt::Debug for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Client")
            .field("server", &self.server())
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A server by its address, `http://127.0.0.1:7171` say, and the key to speak with, where it asks for one.
    ///
    /// Over https it trusts whom this machine trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others), and whom browsers trust.
    pub fn new(url: &str, key: Option<&str>) -> Result<Self, ClientError> {
        Self::made(url, key, None)
    }

    /// The same, and over https it trusts those in this file, too: certificates as PEM.
    pub fn trusting(url: &str, key: Option<&str>, file: &Path) -> Result<Self, ClientError> {
        Self::made(url, key, Some(file))
    }

    fn made(url: &str, key: Option<&str>, file: Option<&Path>) -> Result<Self, ClientError> {
        let wrong = |reason: &str| ClientError::BadUrl { url: without_secrets(url), reason: reason.to_owned() };
        let uri: Uri = url.trim_end_matches('/').parse().map_err(|_| wrong("write it as http://HOST:PORT"))?;
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(wrong("write it as http://HOST:PORT"));
        };
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err(wrong("only http and https are spoken"));
        }
        if authority.as_str().contains('@') {
            return Err(wrong("a key does not stand in the address; give it apart"));
        }
        let path = parts.path_and_query.as_ref().map_or("", |path| path.path());
        let prefix = path.trim_end_matches('/').to_owned();
        let authorization = key.map(bearer).transpose()?;
        let roots = if scheme == Scheme::HTTPS { trust::roots(file)? } else { RootCertStore::empty() };
        let connector = connector(roots)?;
        let connections = Mutex::new(connections(&connector));
        let line = Line { connector, connections, scheme, authority, prefix, authorization };
        Ok(Self { line: Arc::new(line), patience: Patience::default() })
    }

    /// The same server, with more or less patience.
    pub fn with(&self, patience: Patience) -> Self {
        Self { patience, ..self.clone() }
    }

    /// The same server, over connections of its own: they live in the runtime that opens them.
    pub(crate) fn apart(&self) -> Self {
        let line = &*self.line;
        let connections = Mutex::new(connections(&line.connector));
        let apart = Line {
            connector: line.connector.clone(),
            connections,
            scheme: line.scheme.clone(),
            authority: line.authority.clone(),
            prefix: line.prefix.clone(),
            authorization: line.authorization.clone(),
        };
        Self { line: Arc::new(apart), patience: self.patience }
    }

    /// The server's address.
    pub fn server(&self) -> String {
        format!("{}://{}{}", self.line.scheme, self.line.authority, self.line.prefix)
    }
}

fn bearer(key: &str) -> Result<HeaderValue, ClientError> {
    let mut value = HeaderValue::try_from(format!("Bearer {key}"))
        .map_err(|_| ClientError::BadCall("the key has characters that no key has".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// A user and a password in an address are not for the eyes of whoever reads a message.
fn without_secrets(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}://…{}", &url[..scheme], &url[at..]),
        _ => url.to_owned(),
    }
}

fn connector(roots: RootCertStore) -> Result<Connector, ClientError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // A question is one small write; nothing is to be gained by waiting for more.
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_keepalive(Some(STILL_THERE));
    tcp.set_keepalive_interval(Some(ASKED_AGAIN));
    tcp.set_keepalive_retries(Some(UNANSWERED));
    // The same where something was sent that is never acknowledged.
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(STILL_THERE + ASKED_AGAIN * UNANSWERED));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError::BadCall(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    Ok(connector)
}

fn connections(connector: &Connector) -> Connections {
    let mut pool = Pool::builder(TokioExecutor::new());
    pool.pool_idle_timeout(IDLE).pool_timer(TokioTimer::new());
    pool.build(connector.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_scheme_a_host_and_perhaps_a_path() {
        let server = |url: &str| Client::new(url, None).map(|client| client.server());
        assert_eq!(server("http://127.0.0.1:7171").expect("right"), "http://127.0.0.1:7171");
        assert_eq!(server("https://example.org/jobs/").expect("right"), "https://example.org/jobs");
        for wrong in ["", "127.0.0.1:7171", "ftp://host", "http://", "http://key@host", "http://a b"] {
            assert!(server(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_key_is_never_shown() {
        let client = Client::new("http://127.0.0.1:7171", Some("ow_hidden")).expect("right");
        assert!(!format!("{client:?}").contains("hidden"));
        let error = Client::new("http://me:hidden@host", None).expect_err("wrong");
        assert!(!error.to_string().contains("hidden"), "{error}");
        assert!(Client::new("http://127.0.0.1", Some("a\nb")).is_err());
    }
}
