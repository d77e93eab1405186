//! TLS to the server: what a URL asks for, and a connection made so.
//!
//! `sslmode` and `sslrootcert` mean what they mean to PostgreSQL's own programs, except that a certificate is checked as a whole, its host too,
//! wherever there is something to check it against.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use crate::error::StoreError;

/// A URL without what the driver does not know, and how its connections are made.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) url: String,
    /// Checked against these; `None` encrypts and asks no more.
    roots: Option<String>,
    /// How long an answer is waited for; nothing is for ever.
    pub(super) answer_timeout: Option<Duration>,
}

impl Asked {
    /// `verify-full` is `require` to the driver; what is checked is our affair.
    pub(super) fn of(url: &str) -> Result<Self, StoreError> {
        let is_url = url.starts_with("postgres://") || url.starts_with("postgresql://");
        let Some((place, options)) = url.split_once('?').filter(|_| is_url) else {
            return Ok(Self { url: url.to_owned(), roots: None, answer_timeout: None });
        };
        let bad = |why: &str| StoreError::Unavailable(format!("this is no URL of a database: {why}"));
        let (mut left, mut roots, mut is_verified, mut is_encrypted) = (Vec::new(), None, false, false);
        let mut answer_timeout = None;
        for option in options.split('&') {
            match option.split_once('=') {
                Some(("sslmode", "verify-full")) => {
                    is_verified = true;
                    left.push("sslmode=require");
                }
                Some(("sslmode", mode)) if !["disable", "prefer", "require"].contains(&mode) => {
                    return Err(bad(&format!(
                        "sslmode is one of disable, prefer, require and verify-full, not `{mode}`"
                    )));
                }
                Some(("sslrootcert", path)) => roots = Some(decoded(path).ok_or_else(|| bad("sslrootcert"))?),
                Some(("answer_timeout", seconds)) => {
                    let seconds = seconds.parse().map_err(|_| bad("answer_timeout is a number of seconds"))?;
                    answer_timeout = Some(Duration::from_secs(seconds));
                }
                other => {
                    is_encrypted |= other == Some(("sslmode", "require"));
                    left.push(option);
                }
            }
        }
        match &roots {
            None if is_verified => return Err(bad("sslmode=verify-full needs sslrootcert, a file or `system`")),
            Some(_) if !is_verified && !is_encrypted => {
                return Err(bad("with sslrootcert, sslmode is require or verify-full: else nothing is checked"));
            }
            _ => {}
        }
        let url = if left.is_empty() { place.to_owned() } else { format!("{place}?{}", left.join("&")) };
        Ok(Self { url, roots, answer_timeout })
    }

    pub(super) fn tls(&self) -> Result<Tls, StoreError> {
        let unavailable =
            |what: &str, error: &dyn std::fmt::Display| StoreError::Unavailable(format!("{what}: {error}"));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| unavailable("TLS", &error))?;
        let config = match &self.roots {
            None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                if path == "system" {
                    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
                } else {
                    let found = CertificateDer::pem_file_iter(path).map_err(|error| unavailable(path, &error))?;
                    for certificate in found {
                        let added = certificate.map_err(|error| unavailable(path, &error));
                        roots.add(added?).map_err(|error| unavailable(path, &error))?;
                    }
                    if roots.is_empty() {
                        return Err(unavailable(path, &"no certificate stands in it"));
                    }
                }
                builder.with_root_certificates(roots)
            }
        };
        Ok(Tls(Arc::new(config.with_no_client_auth())))
    }
}

/// What `%` stands for in a URL.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        bytes.push(match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                rest = after;
                u8::from_str_radix(std::str::from_utf8(&[*high, *low]).ok()?, 16).ok()?
            }
            (b'%', _) => return None,
            _ => *first,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Makes connections encrypted. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Tls(Arc<ClientConfig>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Encrypted<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        // A socket has no host, and needs none: it is never encrypted.
        let name = ServerName::try_from(host).ok().map(|name| name.to_owned());
        Ok(Handshake { config: Arc::clone(&self.0), name })
    }
}

pub(super) struct Handshake {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = self.name.ok_or_else(|| io::Error::other("the server's name cannot stand in a certificate"))?;
            TlsConnector::from(self.config).connect(name, stream).await.map(Encrypted)
        })
    }
}

/// A connection on which everything is encrypted.
pub(super) struct Encrypted<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Takes any certificate, as `sslmode=require` without `sslrootcert` does: nobody can listen, but anybody can answer.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_what_is_checked() {
        let asked = |url: &str| Asked::of(url).map(|asked| (asked.url, asked.roots)).map_err(|error| error.to_string());
        let plain = |url: &str| Ok((url.to_owned(), None));
        for url in ["postgres://a@b/c", "postgres://a@b/c?sslmode=require", "postgres://a@b/c?sslmode=disable&x=y"] {
            assert_eq!(asked(url), plain(url));
        }
        assert_eq!(
            asked("postgres://a@b/c?sslrootcert=%2Fa%20b%2Fca.pem&sslmode=verify-full&connect_timeout=3"),
            Ok(("postgres://a@b/c?sslmode=require&connect_timeout=3".to_owned(), Some("/a b/ca.pem".to_owned())))
        );
        for (options, said) in [
            ("sslmode=verify-full", "needs sslrootcert"),
            ("sslmode=verify-ca&sslrootcert=system", "verify-full"),
            ("sslrootcert=system", "nothing is checked"),
            ("sslmode=prefer&sslrootcert=system", "nothing is checked"),
            ("sslmode=require&sslrootcert=%4", "sslrootcert"),
            ("answer_timeout=soon", "answer_timeout is a number of seconds"),
        ] {
            let refused = asked(&format!("postgres://a@b/c?{options}")).expect_err(options);
            assert!(refused.contains(said), "{options}: {refused}");
        }
    }

    #[test]
    fn a_url_says_how_long_answers_are_waited_for() {
        let asked = Asked::of("postgres://a@b/c?answer_timeout=90&connect_timeout=3").expect("a URL");
        assert_eq!(asked.url, "postgres://a@b/c?connect_timeout=3");
        assert_eq!(asked.answer_timeout, Some(Duration::from_secs(90)));
    }

    #[test]
    fn roots_must_be_there() {
        let tls = |path: &str| {
            Asked { url: String::new(), roots: Some(path.to_owned()), answer_timeout: None }.tls().map(drop)
        };
        tls("system").expect("they come with the program");
        assert!(matches!(tls("/nowhere/ca.pem"), Err(StoreError::Unavailable(why)) if why.contains("/nowhere/ca.pem")));
        let empty = onceward_testkit::Folder::new();
        std::fs::write(empty.file(), "no certificate").expect("a file");
        assert!(tls(&empty.file().display().to_string()).is_err());
    }
}
