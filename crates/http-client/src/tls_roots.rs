//! The trust store: root certificates for TLS.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// A trust store that cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{source_name}: {reason}")]
pub struct TlsRootsError {
    /// A file or environment variables.
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
        let is_overridden = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| std::env::var_os(name).is_some());
        if !is_overridden {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        let native = rustls_native_certs::load_native_certs();
        // A machine without certificates is fine, but a file that the environment names must exist.
        if let Some(error) = native.errors.first().filter(|_| is_overridden) {
            let source_name = "SSL_CERT_FILE or SSL_CERT_DIR".to_owned();
            return Err(TlsRootsError { source_name, reason: error.to_string() });
        }
        // Old certificates of the machine may be unparsable; skip them.
        roots.add_parsable_certificates(native.certs);
        Ok(Self(Arc::new(roots)))
    }
}

impl fmt::Debug for TlsRoots {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "TlsRoots({} certificates)", self.0.len())
    }
}
