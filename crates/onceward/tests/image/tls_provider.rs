//! Tests a provider whose certificate a private authority has signed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;

use onceward_testkit::TempDir;
use onceward_testkit::fake_image_service::FakeImageService;
use onceward_testkit::server_process::{self, DatabaseKind, ServerProcess};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

use crate::support::BINARY;

/// Starts `https://localhost:PORT` in front of a service. Returns the URL and the CA certificate as PEM.
fn start_tls_proxy(service: &FakeImageService) -> (String, String) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("API key");
    let authority = params.self_signed(&key).expect("a certificate").pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().expect("API key");
    let own = CertificateParams::new(vec!["localhost".to_owned()]).expect("name");
    let certificate = own.signed_by(&key, &issuer).expect("a certificate").pem();
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM")];
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("PEM");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.expect("versions").with_no_client_auth().with_single_cert(chain, key).expect("own key");
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").expect("port"));
    let port = listener.local_addr().expect("address").port();
    let plain = service.url().trim_start_matches("http://").to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
            // A client that does not trust the certificate closes the connection.
            let _ = proxy_request(StreamOwned::new(session, stream), &plain);
        }
    });
    (format!("https://localhost:{port}"), authority)
}

/// Forwards one request and its response.
fn proxy_request(stream: StreamOwned<ServerConnection, TcpStream>, to: &str) -> std::io::Result<()> {
    let mut from = BufReader::new(stream);
    let (mut request, mut length) = (String::new(), 0);
    loop {
        let before = request.len();
        if from.read_line(&mut request)? <= 2 {
            break;
        }
        let line = request[before..].to_ascii_lowercase();
        if let Some(bytes) = line.strip_prefix("content-length:") {
            length = bytes.trim().parse().expect("number");
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    let mut service = TcpStream::connect(to)?;
    service.write_all(&[request.as_bytes(), &body].concat())?;
    let mut answer = Vec::new();
    service.read_to_end(&mut answer)?;
    let out = from.get_mut();
    out.write_all(&answer)?;
    out.conn.send_close_notify();
    out.flush()
}

/// Without the variable, the order is retried.
#[test]
fn provider_certificate_is_trusted_through_ssl_cert_file() {
    let (service, folder) = (FakeImageService::start(), TempDir::new());
    let (url, authority) = start_tls_proxy(&service);
    let file = folder.join("house.pem");
    std::fs::write(&file, authority).expect("file");
    let serve = |certificates: Option<&str>, data: &TempDir| -> Command {
        let mut command = server_process::serve_command(BINARY, &DatabaseKind::Sqlite.new_url(data));
        command.args(["--image-url", &url]).env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR");
        command.envs(certificates.map(|file| ("SSL_CERT_FILE", file)));
        command
    };
    for (certificates, state) in [(file.to_str(), "completed"), (None, "failed")] {
        let data = TempDir::new();
        let server = ServerProcess::start(&mut serve(certificates, &data)).with_temp_dir(data);
        let grant = json!({ "user": "local", "amount": 5, "order": "first" });
        assert_eq!(server.post("/image/credits/grants", &grant).status, 201);
        let id = server.post("/image/jobs", &json!({ "prompt": "a boat" })).expect_ok()["id"]
            .as_str()
            .expect("id")
            .to_owned();
        let states =
            server.stream_log_as("", &format!("/v1/stream?after=0&record={id}")).states_until(&["completed", "failed"]);
        assert_eq!(states.last().map(String::as_str), Some(state), "{states:?}");
    }
    assert_eq!(service.received().len(), 1, "an untrusted service gets no request");
    let data = TempDir::new();
    let refused = serve(Some("/nowhere.pem"), &data).output().expect("the binary runs");
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && printed.contains("SSL_CERT_FILE") && printed.contains("nowhere.pem"),
        "{printed}"
    );
}
