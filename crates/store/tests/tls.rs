//! TLS connections to a real server, with generated certificates.

mod support;

use onceward_store::{PostgresScanner, PostgresStore, StoreError};
use onceward_testkit::postgres::{PostgresServer, psql};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use support::{TempDir, block_on};

/// A certificate authority.
struct TestAuthority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl TestAuthority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Returns a certificate for a host, and its private key.
    fn sign_for_host(&self, host: &str) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![host.to_owned()]).expect("a name");
        (params.signed_by(&key, &self.issuer).expect("a certificate").pem(), key.serialize_pem())
    }

    /// Writes the certificate to a file and returns its path, encoded for a URL.
    fn write_pem(&self, folder: &TempDir, name: &str) -> String {
        let path = folder.database_path().with_file_name(name);
        std::fs::write(&path, &self.pem).expect("a file");
        path.display().to_string().replace('/', "%2F")
    }
}

/// Opens a store and returns whether all its connections are encrypted, or the error.
fn open_is_encrypted(url: &str) -> Result<bool, String> {
    block_on(async {
        let store = PostgresStore::open(url).await.map_err(|error| {
            assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
            error.to_string()
        })?;
        let sql = "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
                   WHERE a.application_name = 'onceward' AND a.datname = current_database()";
        let base_url = url.split('?').next().expect("a URL");
        let is_encrypted = psql(base_url, sql) == "t";
        PostgresScanner::open(url).await.expect("the scanner opens with the same options");
        drop(store);
        Ok(is_encrypted)
    })
}

/// Also checks that a server without a valid certificate is refused if verification is required.
#[test]
fn sslmode_controls_encryption_and_certificate_verification() {
    let (our_authority, other_authority, folder) = (TestAuthority::new(), TestAuthority::new(), TempDir::new());
    let (certificate, key) = our_authority.sign_for_host("localhost");
    let server = PostgresServer::start_with_tls(&certificate, &key);
    let url = server.create_database();
    let (our_pem, other_pem) =
        (our_authority.write_pem(&folder, "ours.pem"), other_authority.write_pem(&folder, "others.pem"));
    let open_with = |options: &str| open_is_encrypted(&format!("{url}?{options}"));
    assert_eq!(open_with(&format!("sslmode=verify-full&sslrootcert={our_pem}")), Ok(true));
    assert_eq!(open_with(&format!("sslmode=require&sslrootcert={our_pem}")), Ok(true));
    assert_eq!(open_with("sslmode=require"), Ok(true), "`require` without roots accepts any certificate");
    assert_eq!(open_with("sslmode=prefer"), Ok(true));
    assert_eq!(open_is_encrypted(&url), Ok(true), "`prefer` encrypts if the server can");
    assert_eq!(open_with("sslmode=disable"), Ok(false));
    for (options, why) in [
        (format!("sslmode=verify-full&sslrootcert={other_pem}"), "invalid peer certificate"),
        (format!("sslmode=require&sslrootcert={other_pem}"), "invalid peer certificate"),
        ("sslmode=verify-full&sslrootcert=system".to_owned(), "invalid peer certificate"),
        ("sslmode=verify-full&sslrootcert=%2Fnowhere.pem".to_owned(), "/nowhere.pem"),
        ("sslmode=verify-full".to_owned(), "sslrootcert"),
    ] {
        let refused = open_with(&options).expect_err(&options);
        assert!(refused.contains(why), "{options}: {refused}");
    }
    // The right authority, but a certificate for another host.
    let ip_url = url.replace("localhost", "127.0.0.1");
    let refused =
        open_is_encrypted(&format!("{ip_url}?sslmode=verify-full&sslrootcert={our_pem}")).expect_err("another host");
    assert!(refused.contains("not valid for name"), "{refused}");
    assert_eq!(open_is_encrypted(&format!("{ip_url}?sslmode=require")), Ok(true));
}

#[test]
fn sslmode_require_rejects_server_without_tls() {
    let url = PostgresServer::shared().create_database();
    let refused = open_is_encrypted(&format!("{url}?sslmode=require")).expect_err("a Unix socket has no TLS");
    assert!(refused.contains("TLS"), "{refused}");
    assert_eq!(open_is_encrypted(&url), Ok(false));
}
