//! Tests client commands over HTTPS with a private certificate authority, and servers without root certificates.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use onceward_testkit::TempDir;
use onceward_testkit::server_process::{self, DatabaseKind, ServerProcess};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

const NOT_FOUND_BODY: &str =
    r#"{"type":"about:blank","title":"gone","status":404,"code":"not_found","detail":"it was here"}"#;

/// Starts a server with a certificate for localhost that replies 404 to everything. Returns its port and the CA
/// certificate as PEM.
fn start_tls_server() -> (u16, String) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("API key");
    let authority = params.self_signed(&key).expect("a certificate").pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().expect("API key");
    let server_params = CertificateParams::new(vec!["localhost".to_owned()]).expect("name");
    let certificate = server_params.signed_by(&key, &issuer).expect("a certificate").pem();
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM")];
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("PEM");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.expect("versions").with_no_client_auth().with_single_cert(chain, key).expect("own key");
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").expect("port"));
    let port = listener.local_addr().expect("address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
            let mut reading = BufReader::new(StreamOwned::new(session, stream));
            let mut line = String::new();
            // A client that does not trust the certificate closes the connection.
            while reading.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
                line.clear();
            }
            let head = "HTTP/1.1 404 Not Found\r\ncontent-type: application/problem+json\r\nconnection: close\r\n";
            let answer = format!("{head}content-length: {}\r\n\r\n{NOT_FOUND_BODY}", NOT_FOUND_BODY.len());
            let _ = reading.get_mut().write_all(answer.as_bytes());
            reading.get_mut().conn.send_close_notify();
            let _ = reading.get_mut().flush();
        }
    });
    (port, authority)
}

fn run_get(port: u16, ca: Option<&Path>, environment: &[(&str, &str)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    command.args(["get", "0199a000-0000-7000-8000-000000000001", "--server", &format!("https://localhost:{port}")]);
    command.args(ca.into_iter().flat_map(|ca| [Path::new("--ca"), ca]));
    command.env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR").envs(environment.iter().copied());
    let output = command.output().expect("the binary runs");
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn client_trusts_only_given_certificate_authorities() {
    let (port, authority) = start_tls_server();
    let (folder, other) = (TempDir::new(), start_tls_server().1);
    let file = |name: &str, text: &str| {
        let path = folder.database_path().with_file_name(name);
        std::fs::write(&path, text).expect("file");
        path
    };
    let (trusted, untrusted, empty) =
        (file("ours.pem", &authority), file("others.pem", &other), file("none.pem", "nothing"));
    let assert_reached = |printed: &str| assert!(printed.contains("it was here"), "{printed}");
    assert_reached(&run_get(port, Some(&trusted), &[]));
    assert_reached(&run_get(port, None, &[("SSL_CERT_FILE", trusted.to_str().expect("UTF-8"))]));
    assert_reached(&run_get(port, Some(&trusted), &[("SSL_CERT_FILE", untrusted.to_str().expect("UTF-8"))]));
    for (ca, environment) in
        [(None, None), (Some(&*untrusted), None), (None, Some(("SSL_CERT_FILE", untrusted.to_str().expect("UTF-8"))))]
    {
        let printed = run_get(port, ca, environment.as_slice());
        assert!(printed.contains("certificate") && !printed.contains("it was here"), "{ca:?}: {printed}");
    }
    for wrong in [empty.clone(), folder.database_path().with_file_name("nowhere.pem")] {
        let printed = run_get(port, Some(&wrong), &[]);
        assert!(printed.contains(&*wrong.file_name().expect("name").to_string_lossy()), "{printed}");
    }
    for wrong in ["/nowhere.pem", empty.to_str().expect("UTF-8")] {
        let printed = run_get(port, None, &[("SSL_CERT_FILE", wrong)]);
        assert!(printed.contains(&format!("SSL_CERT_FILE={wrong}: ")), "{printed}");
    }
    // An empty variable names no folder, so the machine's certificates stay.
    assert_reached(&run_get(port, Some(&trusted), &[("SSL_CERT_DIR", "")]));
}

/// An https provider is tested in `image/tls_provider.rs`.
#[test]
fn unreadable_ssl_cert_file_stops_server_only_if_it_uses_https() {
    let serve = |arguments: &[&str], folder: &TempDir| -> Command {
        let binary = env!("CARGO_BIN_EXE_onceward");
        let mut command = server_process::serve_command(binary, &DatabaseKind::Sqlite.new_url(folder));
        command.args(arguments).env("SSL_CERT_FILE", "/nowhere.pem").env_remove("SSL_CERT_DIR");
        let settings = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(|name| (name, "test"));
        command.envs(settings).env("AWS_ENDPOINT_URL", "https://127.0.0.1:1");
        command
    };
    for arguments in [["--otlp", "https://127.0.0.1:1"], ["--objects", "s3://bucket"]] {
        let refused = serve(&arguments, &TempDir::new()).output().expect("the binary runs");
        let printed = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && printed.contains("SSL_CERT_FILE=/nowhere.pem: "), "{printed}");
    }
    for arguments in [&[][..], &["--otlp", "http://127.0.0.1:1", "--image-url", "http://127.0.0.1:1"]] {
        let folder = TempDir::new();
        let output = ServerProcess::start(&mut serve(arguments, &folder)).with_temp_dir(folder).stop();
        assert_eq!(output.matches("SSL_CERT_FILE=/nowhere.pem: ").count(), 1, "one warning: {output}");
    }
}
