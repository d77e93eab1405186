//! Whose word counts for who a server is, be it a bucket's or that of a service which a system asks.

use rustls::RootCertStore;

/// Whom this machine trusts, and whom browsers trust unless the environment names others: as the worker library has it.
pub fn root_certificates() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let is_overridden = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| std::env::var_os(name).is_some());
    if !is_overridden {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    let native = rustls_native_certs::load_native_certs();
    // A machine that has none is no fault; a file that was named and is not there is one.
    if let Some(error) = native.errors.first().filter(|_| is_overridden) {
        return Err(format!("SSL_CERT_FILE or SSL_CERT_DIR: {error}"));
    }
    roots.add_parsable_certificates(native.certs);
    Ok(roots)
}
