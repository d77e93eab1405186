//! Whose word counts for who a server is.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::error::ClientError;

/// Whom this machine trusts; whom browsers trust, unless the environment names others; and those in a file.
pub(crate) fn roots(file: Option<&Path>) -> Result<RootCertStore, ClientError> {
    let mut roots = RootCertStore::empty();
    let is_named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| std::env::var_os(name).is_some());
    if !is_named {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    let own = rustls_native_certs::load_native_certs();
    // A machine that has none is no fault; a file that was named and is not there is one.
    if let Some(error) = own.errors.first().filter(|_| is_named) {
        return Err(ClientError::BadCall(format!("SSL_CERT_FILE or SSL_CERT_DIR: {error}")));
    }
    // Some of a machine may be older than what is understood today.
    roots.add_parsable_certificates(own.certs);
    if let Some(file) = file {
        let wrong = |why: &dyn std::fmt::Display| ClientError::BadCall(format!("{}: {why}", file.display()));
        let before = roots.len();
        for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))? {
            roots.add(certificate.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
        }
        if roots.len() == before {
            return Err(wrong(&"no certificate stands in it"));
        }
    }
    Ok(roots)
}
