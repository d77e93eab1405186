//! Deliveries of a server: allowed targets, and the signature that receivers check.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use onceward_testkit::TempDir;
use onceward_testkit::server_process::{self, DatabaseKind, ServerProcess};
use serde_json::{Map, Value as Json, json};

use crate::server::BINARY;

/// Generous, because the machine may be slow.
const TEST_TIMEOUT: Duration = Duration::from_mins(1);

const NOTICE_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "test.notice"
about     = "Posts to a URL when it is created"

[states]
sent = { about = "the delivery exists", final = true }

[fields]
to = { type = "string", max = 1000 }

[[on.create]]
go      = "-> sent"
take    = ["to"]
deliver = [{ to = "record.to", body = { text = "'hello'" } }]
"#;

/// A request as the receiver got it, with header names in lower case.
struct ReceivedRequest {
    headers: Map<String, Json>,
    body: String,
}

/// Answers every request with 204. Returns the URL and the requests.
fn start_receiver() -> (String, Receiver<ReceivedRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = sender.send(read_request(&mut stream));
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
        }
    });
    (url, requests)
}

fn read_request(stream: &mut TcpStream) -> ReceivedRequest {
    let mut text = String::new();
    let mut part = [0; 4_096];
    loop {
        let length = stream.read(&mut part).expect("a request");
        assert!(length > 0, "the request is incomplete: {text}");
        text.push_str(std::str::from_utf8(&part[..length]).expect("text"));
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let headers: Map<String, Json> = head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.into()))
            .collect();
        if headers["content-length"].as_str().and_then(|length| length.parse().ok()) == Some(body.len()) {
            return ReceivedRequest { headers, body: body.to_owned() };
        }
    }
}

fn start_server(arguments: &[&str]) -> ServerProcess {
    let folder = TempDir::new();
    std::fs::write(folder.join("notice.toml"), NOTICE_LIFECYCLE).expect("written");
    let mut command = server_process::serve_command(BINARY, &DatabaseKind::Sqlite.new_url(&folder));
    command.arg("--lifecycles").arg(folder.join("notice.toml")).args(arguments);
    ServerProcess::start(&mut command).with_temp_dir(folder)
}

/// Waits until the only delivery has ended.
fn ended_delivery(server: &ServerProcess) -> Json {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let page = server.get("/v1/records?lifecycle=onceward.delivery").expect_ok();
        let delivery = page["records"][0].clone();
        if delivery["state"] == "delivered" || delivery["state"] == "dead" {
            return delivery;
        }
        assert!(Instant::now() < deadline, "not ended: {delivery}");
        std::thread::yield_now();
    }
}

#[test]
fn delivery_to_loopback_needs_matching_target() {
    let (url, _requests) = start_receiver();
    for (targets, expected) in [
        (&[][..], "dead"),
        (&["10.0.0.0/8", "localhost"], "dead"),
        (&["127.0.0.1"], "delivered"),
        (&["hooks.internal", "127.0.0.0/8"], "delivered"),
    ] {
        let arguments: Vec<&str> = targets.iter().flat_map(|target| ["--allow-delivery-to", target]).collect();
        let server = start_server(&arguments);
        server.post("/v1/lifecycles/test.notice/records", &json!({ "fields": { "to": url } })).expect_ok();
        let delivery = ended_delivery(&server);
        assert_eq!(delivery["state"], expected, "{arguments:?}: {delivery}");
        let error = delivery["fields"]["lastError"].as_str().unwrap_or_default();
        assert_eq!(error.contains("--allow-delivery-to 127.0.0.1"), expected == "dead", "{error}");
    }
}

#[test]
fn invalid_delivery_target_is_refused_at_start() {
    for (target, expected) in
        [("10.0.0.1/8", "write 10.0.0.0/8"), ("https://hooks.internal", "only the host of the URL")]
    {
        let refused = Command::new(BINARY).args(["serve", "--allow-delivery-to", target]).output().expect("it runs");
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{error}");
        assert!(error.contains("is not a host or network") && error.contains(expected), "{error}");
    }
}

/// Returns the Python example of docs/deliveries.md.
fn python_example() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/deliveries.md");
    let page = std::fs::read_to_string(page).expect("docs/deliveries.md");
    let (_, rest) = page.split_once("```python\n").expect("an example");
    rest.split_once("```").expect("its end").0.to_owned()
}

/// EXE-16: runs the documented check, on the real request and on changed ones.
#[test]
fn documented_signature_check_accepts_delivery_and_refuses_changed_one() {
    let (url, requests) = start_receiver();
    let server = start_server(&["--allow-delivery-to", "127.0.0.1"]);
    let secret = Command::new(BINARY).args(["webhook-secret", "--server", &server.url()]).output().expect("it runs");
    assert!(secret.status.success(), "{secret:?}");
    let secret = String::from_utf8(secret.stdout).expect("text").trim().to_owned();
    server.post("/v1/lifecycles/test.notice/records", &json!({ "fields": { "to": url } })).expect_ok();
    let delivery = ended_delivery(&server);
    let request = requests.recv_timeout(TEST_TIMEOUT).expect("a request");
    assert_eq!(
        (&request.headers["webhook-id"], &request.headers["idempotency-key"]),
        (&delivery["id"], &delivery["id"])
    );
    assert!(!delivery.to_string().contains(&secret), "{delivery}");

    let mut old = request.headers.clone();
    old["webhook-timestamp"] = "1000000000".into();
    let mut other = request.headers.clone();
    other["webhook-id"] = "another".into();
    let changed_body = request.body.replace("hello", "other");
    let body = request.body.as_str();
    let calls = json!([
        [secret, request.headers, body],
        [secret, request.headers, changed_body],
        [secret, old, body],
        [secret, other, body],
        ["whsec_AAAA", request.headers, body],
    ]);
    let script = format!(
        "{}\nimport json, sys\nprint([is_authentic(secret, headers, body.encode()) for secret, headers, body in json.load(sys.stdin)])",
        python_example()
    );
    let mut python = Command::new("python3")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    python.stdin.take().expect("piped").write_all(calls.to_string().as_bytes()).expect("written");
    let output = python.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[True, False, False, False, False]\n", "{output:?}");
}

#[test]
fn webhook_secret_rotates_once_a_day_by_command_line() {
    let server = start_server(&[]);
    let run = |arguments: &[&str]| {
        let output =
            Command::new(BINARY).arg("webhook-secret").args(arguments).args(["--server", &server.url()]).output();
        let output = output.expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text").trim().to_owned();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (_, first, hint) = run(&[]);
    assert!(first.starts_with("whsec_") && hint.is_empty(), "{first} {hint}");
    let (code, second, hint) = run(&["rotate"]);
    assert!(code == Some(0) && second != first && hint.starts_with("The previous secret signs, too, until "), "{hint}");
    let (code, _, error) = run(&["rotate"]);
    assert!(code == Some(1) && error.contains("secret_rotation_pending"), "{error}");
    let (_, shown, _) = run(&["show", "--json"]);
    let shown: Json = serde_json::from_str(&shown).expect("JSON");
    assert_eq!((&shown["secret"], &shown["previous_secret"]), (&json!(second), &json!(first)));
}
