//! Root certificates for TLS.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::error::ClientError;

/// Loads the machine's root certificates, those of browsers unless the environment names others, and those in
/// `ca_file`.
pub(crate) fn root_certificates(ca_file: Option<&Path>) -> Result<RootCertStore, ClientError> {
    let mut roots = RootCertStore::empty();
    let has_env_roots = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| std::env::var_os(name).is_some());
    if !has_env_roots {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    let native_certs = rustls_native_certs::load_native_certs();
    // A machine without certificates is fine, but a file that the environment names must exist.
    if let Some(error) = native_certs.errors.first().filter(|_| has_env_roots) {
        return Err(ClientError::InvalidRequest(format!("SSL_CERT_FILE or SSL_CERT_DIR: {error}")));
    }
    // Old certificates of the machine may be unparsable; skip them.
    roots.add_parsable_certificates(native_certs.certs);
    if let Some(file) = ca_file {
        let file_error =
            |why: &dyn std::fmt::Display| ClientError::InvalidRequest(format!("{}: {why}", file.display()));
        let count_before = roots.len();
        for certificate in CertificateDer::pem_file_iter(file).map_err(|error| file_error(&error))? {
            roots.add(certificate.map_err(|error| file_error(&error))?).map_err(|error| file_error(&error))?;
        }
        if roots.len() == count_before {
            return Err(file_error(&"the file contains no certificate"));
        }
    }
    Ok(roots)
}
