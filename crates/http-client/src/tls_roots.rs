//! The trust store: root certificates for TLS.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Once, OnceLock};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tracing::warn;

/// A trust store that cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot load root certificates from {source_name}: {reason}")]
pub struct TlsRootsError {
    /// A file, or environment variables with their values.
    source_name: String,
    reason: String,
}

/// Root certificates that a client trusts. Cheap to clone.
#[derive(Clone)]
pub struct TlsRoots(pub(crate) Arc<RootCertStore>);

impl TlsRoots {
    /// Loads the machine's root certificates and those of browsers. `SSL_CERT_FILE` and `SSL_CERT_DIR` replace both.
    /// All clients of a process share one copy.
    pub fn system() -> Result<Self, TlsRootsError> {
        static SYSTEM_ROOTS: OnceLock<Result<TlsRoots, TlsRootsError>> = OnceLock::new();
        SYSTEM_ROOTS.get_or_init(Self::load_system).clone()
    }

    /// Like [`system`](Self::system), but for a client that may never use https: if the certificates cannot be loaded,
    /// logs one warning per process and returns an empty trust store, which lets every https connection fail.
    pub fn system_or_none() -> Self {
        static WARNING: Once = Once::new();
        Self::system().unwrap_or_else(|error| {
            WARNING.call_once(|| warn!(%error, "root certificates cannot be loaded; https connections will fail"));
            Self::none()
        })
    }

    /// Loads the certificates for a client of a configured URL. They are required only if the URL is an https one.
    pub fn for_configured_url(is_https: bool) -> Result<Self, TlsRootsError> {
        if is_https { Self::system() } else { Ok(Self::system_or_none()) }
    }

    /// Loads the certificates of [`system`](Self::system) and those in a PEM file.
    pub fn system_and_file(path: &Path) -> Result<Self, TlsRootsError> {
        let mut roots = RootCertStore::clone(&Self::system()?.0);
        let file_error = |reason: &dyn fmt::Display| TlsRootsError {
            source_name: path.display().to_string(),
            reason: reason.to_string(),
        };
        let count_before = roots.len();
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| file_error(&error))? {
            roots.add(certificate.map_err(|error| file_error(&error))?).map_err(|error| file_error(&error))?;
        }
        if roots.len() == count_before {
            return Err(file_error(&"the file contains no certificate"));
        }
        Ok(Self(Arc::new(roots)))
    }

    /// Returns an empty trust store, for a client that only sends plain HTTP.
    pub fn none() -> Self {
        Self(Arc::new(RootCertStore::empty()))
    }

    fn load_system() -> Result<Self, TlsRootsError> {
        let mut roots = RootCertStore::empty();
        // An empty `SSL_CERT_DIR` names no folder, so it replaces nothing.
        let is_set =
            |name: &&str| std::env::var_os(name).is_some_and(|value| *name == "SSL_CERT_FILE" || !value.is_empty());
        let overrides: Vec<&str> = ["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter().filter(is_set).collect();
        let native = rustls_native_certs::load_native_certs();
        if overrides.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        // Old certificates of the machine may be unparsable; skip them.
        let (added, _) = roots.add_parsable_certificates(native.certs);
        // A machine without certificates is fine, but a file that the environment names must have some.
        let error = native.errors.first().map(ToString::to_string);
        match error.or_else(|| (added == 0).then(|| "it contains no certificate".to_owned())) {
            Some(reason) if !overrides.is_empty() => {
                Err(TlsRootsError { source_name: with_values(&overrides), reason })
            }
            _ => Ok(Self(Arc::new(roots))),
        }
    }
}

/// Returns `NAME=VALUE` of each variable.
fn with_values(names: &[&str]) -> String {
    let with_value = |name: &&str| format!("{name}={}", std::env::var_os(name).unwrap_or_default().display());
    names.iter().map(with_value).collect::<Vec<_>>().join(" ")
}

impl fmt::Debug for TlsRoots {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "TlsRoots({} certificates)", self.0.len())
    }
}
