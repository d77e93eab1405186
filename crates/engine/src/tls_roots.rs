//! TLS root certificates for connections to buckets and other services.

use rustls::RootCertStore;

/// Returns the system's root certificates, and the bundled Mozilla roots unless `SSL_CERT_FILE` or `SSL_CERT_DIR` is
/// set. The worker library does the same.
pub fn root_certificates() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let is_overridden = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| std::env::var_os(name).is_some());
    if !is_overridden {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    let native = rustls_native_certs::load_native_certs();
    // A system without certificates is fine; an unreadable file that the environment names is an error.
    if let Some(error) = native.errors.first().filter(|_| is_overridden) {
        return Err(format!("SSL_CERT_FILE or SSL_CERT_DIR: {error}"));
    }
    roots.add_parsable_certificates(native.certs);
    Ok(roots)
}
