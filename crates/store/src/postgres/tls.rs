//! TLS connections to the server, and the URL options for them.
//!
//! `sslmode` and `sslrootcert` have the meaning of libpq, with one exception: if there are root certificates, the
//! certificate is always verified in full, including the host name.

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

/// Connection options that the driver does not know, and the URL without them.
#[derive(Debug)]
pub(super) struct UrlOptions {
    pub(super) url: String,
    /// Root certificates to verify against; `None` encrypts without verification.
    root_certificates: Option<String>,
    /// Time limit for answers; zero means none.
    pub(super) answer_timeout: Option<Duration>,
    /// File with the password; see [`password`](super::password).
    pub(super) passfile: Option<String>,
}

impl UrlOptions {
    /// Extracts the options from a URL. The driver gets `require` instead of `verify-full`, because verification
    /// happens here.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let is_url = url.starts_with("postgres://") || url.starts_with("postgresql://");
        let Some((location, options)) = url.split_once('?').filter(|_| is_url) else {
            return Ok(Self { url: url.to_owned(), root_certificates: None, answer_timeout: None, passfile: None });
        };
        let bad = |why: &str| StoreError::Unavailable(format!("invalid database URL: {why}"));
        let (mut driver_options, mut root_certificates, mut is_verified, mut is_encrypted) =
            (Vec::new(), None, false, false);
        let (mut answer_timeout, mut passfile) = (None, None);
        for option in options.split('&') {
            match option.split_once('=') {
                Some(("sslmode", "verify-full")) => {
                    is_verified = true;
                    driver_options.push("sslmode=require");
                }
                Some(("sslmode", mode)) if !["disable", "prefer", "require"].contains(&mode) => {
                    return Err(bad(&format!("sslmode must be disable, prefer, require or verify-full, not `{mode}`")));
                }
                Some(("sslrootcert", path)) => {
                    root_certificates =
                        Some(percent_decode(path).ok_or_else(|| bad("sslrootcert is not percent-encoded UTF-8"))?);
                }
                Some(("passfile", path)) => {
                    passfile = Some(percent_decode(path).ok_or_else(|| bad("passfile is not percent-encoded UTF-8"))?);
                }
                Some(("answer_timeout", seconds)) => {
                    let seconds = seconds.parse().map_err(|_| bad("answer_timeout must be a number of seconds"))?;
                    answer_timeout = Some(Duration::from_secs(seconds));
                }
                other => {
                    is_encrypted |= other == Some(("sslmode", "require"));
                    driver_options.push(option);
                }
            }
        }
        match &root_certificates {
            None if is_verified => return Err(bad("sslmode=verify-full needs sslrootcert=FILE or sslrootcert=system")),
            Some(_) if !is_verified && !is_encrypted => {
                return Err(bad("sslrootcert needs sslmode=verify-full or sslmode=require"));
            }
            _ => {}
        }
        let url = if driver_options.is_empty() {
            location.to_owned()
        } else {
            format!("{location}?{}", driver_options.join("&"))
        };
        Ok(Self { url, root_certificates, answer_timeout, passfile })
    }

    pub(super) fn tls(&self) -> Result<PostgresTls, StoreError> {
        let unavailable =
            |what: &str, error: &dyn std::fmt::Display| StoreError::Unavailable(format!("{what}: {error}"));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| unavailable("TLS", &error))?;
        let config = match &self.root_certificates {
            None => builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider))),
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
                        return Err(unavailable(path, &"the file contains no certificate"));
                    }
                }
                builder.with_root_certificates(roots)
            }
        };
        Ok(PostgresTls(Arc::new(config.with_no_client_auth())))
    }
}

/// Decodes `%` escapes of a URL.
fn percent_decode(text: &str) -> Option<String> {
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

/// Opens TLS connections. Clones share the same configuration.
#[derive(Clone, Debug)]
pub(super) struct PostgresTls(Arc<ClientConfig>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for PostgresTls {
    type Stream = EncryptedStream<S>;
    type TlsConnect = TlsHandshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<TlsHandshake> {
        // A Unix socket has no host name and is never encrypted.
        let name = ServerName::try_from(host).ok().map(|name| name.to_owned());
        Ok(TlsHandshake { config: Arc::clone(&self.0), name })
    }
}

pub(super) struct TlsHandshake {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for TlsHandshake {
    type Stream = EncryptedStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<EncryptedStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name =
                self.name.ok_or_else(|| io::Error::other("the server's name is not a valid certificate name"))?;
            TlsConnector::from(self.config).connect(name, stream).await.map(EncryptedStream)
        })
    }
}

/// An encrypted connection.
pub(super) struct EncryptedStream<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for EncryptedStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for EncryptedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for EncryptedStream<S> {
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

/// Accepts any certificate, as `sslmode=require` without `sslrootcert` does. That prevents eavesdropping but not
/// impersonation of the server.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
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
    fn sslmode_and_sslrootcert_select_certificate_verification() {
        let parse = |url: &str| {
            UrlOptions::parse(url)
                .map(|parsed| (parsed.url, parsed.root_certificates))
                .map_err(|error| error.to_string())
        };
        let plain = |url: &str| Ok((url.to_owned(), None));
        for url in ["postgres://a@b/c", "postgres://a@b/c?sslmode=require", "postgres://a@b/c?sslmode=disable&x=y"] {
            assert_eq!(parse(url), plain(url));
        }
        assert_eq!(
            parse("postgres://a@b/c?sslrootcert=%2Fa%20b%2Fca.pem&sslmode=verify-full&connect_timeout=3"),
            Ok(("postgres://a@b/c?sslmode=require&connect_timeout=3".to_owned(), Some("/a b/ca.pem".to_owned())))
        );
        for (options, message) in [
            ("sslmode=verify-full", "needs sslrootcert"),
            ("sslmode=verify-ca&sslrootcert=system", "verify-full"),
            ("sslrootcert=system", "sslrootcert needs sslmode"),
            ("sslmode=prefer&sslrootcert=system", "sslrootcert needs sslmode"),
            ("sslmode=require&sslrootcert=%4", "sslrootcert"),
            ("answer_timeout=soon", "answer_timeout must be a number of seconds"),
        ] {
            let refused = parse(&format!("postgres://a@b/c?{options}")).expect_err(options);
            assert!(refused.contains(message), "{options}: {refused}");
        }
    }

    #[test]
    fn answer_timeout_option_is_parsed_and_removed_from_url() {
        let url_options = UrlOptions::parse("postgres://a@b/c?answer_timeout=90&connect_timeout=3").expect("a URL");
        assert_eq!(url_options.url, "postgres://a@b/c?connect_timeout=3");
        assert_eq!(url_options.answer_timeout, Some(Duration::from_secs(90)));
    }

    #[test]
    fn missing_or_empty_root_certificates_are_refused() {
        let tls = |path: &str| {
            UrlOptions {
                url: String::new(),
                root_certificates: Some(path.to_owned()),
                answer_timeout: None,
                passfile: None,
            }
            .tls()
            .map(drop)
        };
        tls("system").expect("the bundled roots are valid");
        assert!(matches!(tls("/nowhere/ca.pem"), Err(StoreError::Unavailable(why)) if why.contains("/nowhere/ca.pem")));
        let empty = onceward_testkit::TempDir::new();
        std::fs::write(empty.database_path(), "no certificate").expect("a file");
        assert!(tls(&empty.database_path().display().to_string()).is_err());
    }
}
