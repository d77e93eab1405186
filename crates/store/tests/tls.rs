//! Encrypted connections to a real server, with certificates made here.

mod stage;

use onceward_store::{PostgresStore, PostgresView, StoreError};
use onceward_testkit::postgres::{Server, psql};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use stage::{Folder, wait};

/// Somebody who signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for a host, and its key.
    fn signs(&self, host: &str) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![host.to_owned()]).expect("a name");
        (params.signed_by(&key, &self.issuer).expect("a certificate").pem(), key.serialize_pem())
    }

    /// As a file, named for a URL.
    fn file(&self, folder: &Folder, name: &str) -> String {
        let path = folder.file().with_file_name(name);
        std::fs::write(&path, &self.pem).expect("a file");
        path.display().to_string().replace('/', "%2F")
    }
}

/// Whether all connections of a store are encrypted while it is open; or why it does not open.
fn opened(url: &str) -> Result<bool, String> {
    wait(async {
        let store = PostgresStore::open(url).await.map_err(|error| {
            assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
            error.to_string()
        })?;
        let sql = "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
                   WHERE a.application_name = 'onceward' AND a.datname = current_database()";
        let bare = url.split('?').next().expect("a URL");
        let is_encrypted = psql(bare, sql) == "t";
        PostgresView::open(url).await.expect("a view opens the same way");
        drop(store);
        Ok(is_encrypted)
    })
}

/// What each `sslmode` does with a server that encrypts, and that a server which cannot prove who it is is refused where that was asked.
#[test]
fn connections_are_encrypted_as_the_url_asks() {
    let (ours, others, folder) = (Authority::new(), Authority::new(), Folder::new());
    let (certificate, key) = ours.signs("localhost");
    let server = Server::start_encrypted(&certificate, &key);
    let url = server.database();
    let (ours, others) = (ours.file(&folder, "ours.pem"), others.file(&folder, "others.pem"));
    let with = |options: &str| opened(&format!("{url}?{options}"));
    assert_eq!(with(&format!("sslmode=verify-full&sslrootcert={ours}")), Ok(true));
    assert_eq!(with(&format!("sslmode=require&sslrootcert={ours}")), Ok(true));
    assert_eq!(with("sslmode=require"), Ok(true), "nobody is asked who it is");
    assert_eq!(with("sslmode=prefer"), Ok(true));
    assert_eq!(opened(&url), Ok(true), "where it can be had, it is taken");
    assert_eq!(with("sslmode=disable"), Ok(false));
    for (options, why) in [
        (format!("sslmode=verify-full&sslrootcert={others}"), "invalid peer certificate"),
        (format!("sslmode=require&sslrootcert={others}"), "invalid peer certificate"),
        ("sslmode=verify-full&sslrootcert=system".to_owned(), "invalid peer certificate"),
        ("sslmode=verify-full&sslrootcert=%2Fnowhere.pem".to_owned(), "/nowhere.pem"),
        ("sslmode=verify-full".to_owned(), "sslrootcert"),
    ] {
        let refused = with(&options).expect_err(&options);
        assert!(refused.contains(why), "{options}: {refused}");
    }
    // The right authority, but the certificate is another host's.
    let by_number = url.replace("localhost", "127.0.0.1");
    let refused = opened(&format!("{by_number}?sslmode=verify-full&sslrootcert={ours}")).expect_err("another host");
    assert!(refused.contains("not valid for name"), "{refused}");
    assert_eq!(opened(&format!("{by_number}?sslmode=require")), Ok(true));
}

/// A server that does not encrypt is refused where encryption was asked for.
#[test]
fn a_server_without_tls_is_refused_where_it_is_required() {
    let url = Server::shared().database();
    let refused = opened(&format!("{url}?sslmode=require")).expect_err("it is a socket");
    assert!(refused.contains("TLS"), "{refused}");
    assert_eq!(opened(&url), Ok(false));
}
