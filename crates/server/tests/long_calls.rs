//! Log streams and waiting lease calls: resuming a stream, and the end of a call with its API key.

mod support;

use std::net::TcpStream;
use std::time::{Duration, Instant};

use onceward_core::time::Duration as Length;
use onceward_engine::{ApiKeyCache, ApiKeys, NewApiKey};
use onceward_server::ServerConfig;
use onceward_store::{AnyStore, PostgresStore, Store as _};
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::{SseClient, http, operator};
use serde_json::json;
use support::{TestServer, run_blocking, with_sqlite_server};

const CREATE_RECORD_PATH: &str = "/v1/lifecycles/house.job/records";

/// A stream from its first message.
struct StreamClient(SseClient);

impl StreamClient {
    fn open(server: &TestServer, key: Option<&str>, path: &str, last_event_id: Option<u64>) -> Self {
        let (bearer, last) = (key.map(|key| format!("Bearer {key}")), last_event_id.map(|last| last.to_string()));
        let mut headers = Vec::new();
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        headers.extend(last.as_deref().map(|last| ("last-event-id", last)));
        Self(SseClient::start(server.address(), path, &headers))
    }

    fn next_chunk(&mut self) -> Option<String> {
        self.0.next_chunk()
    }

    /// Reads an `id` without data.
    fn read_position(&mut self) -> u64 {
        let response = self.next_chunk().expect("seq");
        let seq = response.strip_prefix("id: ").and_then(|rest| rest.strip_suffix("\n\n"));
        seq.and_then(|seq| seq.parse().ok()).unwrap_or_else(|| panic!("no id line: {response:?}"))
    }
}

/// Starts a lease call with a long wait.
fn start_long_poll(server: &TestServer, key: &str) -> TcpStream {
    let mut stream = http::connect(server.address());
    let wanted = json!({ "lifecycles": ["house.job"], "worker": "w", "wait_ms": 300_000 }).to_string();
    http::write_request(
        &mut stream,
        "POST",
        "/v1/leases",
        &[("authorization", &format!("Bearer {key}"))],
        Some(wanted.as_bytes()),
    );
    stream
}

fn assert_unauthorized(waiting: &TcpStream) {
    http::read_response(waiting).assert_problem(401, "unauthorized");
}

/// A client that disconnects before the first entry can resume without a gap.
#[test]
fn stream_first_sends_its_log_position() {
    with_sqlite_server(ServerConfig::default(), Vec::new(), async |server| {
        let create_record = || {
            http::send_request(server.address(), "POST", CREATE_RECORD_PATH, &[], Some(b"{}")).expect_ok()["id"]
                .as_str()
                .map(str::to_owned)
        };
        create_record();
        let mut first = StreamClient::open(&server, None, "/v1/stream", None);
        let seq = first.read_position();
        drop(first);
        let missed = create_record().expect("id");
        let mut again = StreamClient::open(&server, None, "/v1/stream", Some(seq));
        assert_eq!(again.read_position(), seq);
        let entry = again.next_chunk().expect("log entry");
        assert!(entry.starts_with(&format!("id: {}\n", seq + 1)) && entry.contains(&missed), "{entry}");
        // With `after=0`, the position is 0.
        assert_eq!(StreamClient::open(&server, None, "/v1/stream?after=0", None).read_position(), 0);
        server.close().await;
    });
}

/// Otherwise a client could resume at a position that was pruned long ago.
#[test]
fn filtered_stream_reports_progress_past_hidden_entries() {
    let settings = ServerConfig { keep_alive_interval: Duration::from_millis(100), ..ServerConfig::default() };
    with_sqlite_server(settings, Vec::new(), async |server| {
        let mut stream = StreamClient::open(&server, None, "/v1/stream?lifecycle=house.other", None);
        let began = stream.read_position();
        for _ in 0..3 {
            http::send_request(server.address(), "POST", CREATE_RECORD_PATH, &[], Some(b"{}")).expect_ok();
        }
        let seq = loop {
            let response = stream.next_chunk().expect("keep-alive message");
            if response != ": keep-alive\n\n" {
                break response;
            }
        };
        let seq: u64 = seq.trim().trim_start_matches("id: ").parse().expect("seq");
        assert!(seq > began && seq <= began + 3, "{began}, then {seq}");
        server.close().await;
    });
}

#[test]
fn stream_with_wait_ms_ends_after_existing_entries() {
    with_sqlite_server(ServerConfig::default(), Vec::new(), async |server| {
        for _ in 0..5 {
            http::send_request(server.address(), "POST", CREATE_RECORD_PATH, &[], Some(b"{}")).expect_ok();
        }
        let read = |query: &str| http::send_request(server.address(), "GET", &format!("/v1/stream?{query}"), &[], None);
        let all = read("after=0&wait_ms=0").text();
        assert_eq!(all.matches("event: entry").count(), 5, "{all}");
        assert_eq!(read("wait_ms=20").text(), "id: 5\n\n");
        assert_eq!(read("after=0&lifecycle=house.other&wait_ms=20").text(), "id: 0\n\nid: 5\n\n");
        read("wait_ms=300001").assert_problem(422, "invalid_input");
        server.close().await;
    });
}

/// Only calls with the revoked key end, immediately in this process.
#[test]
fn revoked_key_ends_its_stream_and_long_poll() {
    with_sqlite_server(ServerConfig::default(), Vec::new(), async |server| {
        let (ann, bob) = (
            server.create_api_key("ann", &["worker"], &[]).await,
            server.create_api_key("bob", &["worker"], &[]).await,
        );
        let mut stream = StreamClient::open(&server, Some(&ann), "/v1/stream", None);
        let mut other = StreamClient::open(&server, Some(&bob), "/v1/stream", None);
        stream.read_position();
        other.read_position();
        let long_poll = start_long_poll(&server, &ann);
        let other_long_poll = start_long_poll(&server, &bob);
        let id = ann.split('_').nth(1).expect("id");
        server.engine.api_keys().revoke(&operator("ops"), id).await.expect("revoked");
        assert_eq!(stream.next_chunk(), None, "the stream has ended");
        assert_unauthorized(&long_poll);
        // Bob's calls continue.
        let producer = server.create_api_key("bob", &["producer"], &[]).await;
        let made = server.send(Some(&producer), "POST", CREATE_RECORD_PATH, Some(&json!({})));
        assert_eq!(made.status, 201);
        let leased = http::read_response(&other_long_poll).expect_ok();
        assert_eq!(leased["executions"][0]["record"]["id"], made.json()["id"]);
        assert!(other.next_chunk().expect("log entry").contains("event: entry"));
        server.close().await;
    });
}

#[test]
fn expired_key_ends_its_stream_and_long_poll() {
    with_sqlite_server(ServerConfig::default(), Vec::new(), async |server| {
        let now = server.engine.store().now().await.expect("time");
        let expires_at = now.checked_add(Length::from_millis(5_000));
        server.create_api_key("ops", &["operator"], &[]).await;
        let new = NewApiKey { owner: "ann".into(), roles: vec!["worker".into()], expires_at, ..NewApiKey::default() };
        let (_, text) = server.engine.api_keys().create(&operator("ops"), new).await.expect("API key");
        let mut stream = StreamClient::open(&server, Some(&text.reveal()), "/v1/stream", None);
        stream.read_position();
        let long_poll = start_long_poll(&server, &text.reveal());
        assert_eq!(stream.next_chunk(), None);
        assert_unauthorized(&long_poll);
        server.close().await;
    });
}

#[test]
fn first_key_ends_streams_opened_without_key() {
    with_sqlite_server(ServerConfig::default(), Vec::new(), async |server| {
        let mut stream = StreamClient::open(&server, None, "/v1/stream", None);
        stream.read_position();
        server.create_api_key("ops", &["operator"], &[]).await;
        assert_eq!(stream.next_chunk(), None);
        server.close().await;
    });
}

/// Within a second.
#[test]
fn key_revoked_by_other_process_ends_its_stream_and_long_poll() {
    run_blocking(async {
        let url = PostgresServer::shared().create_database();
        let store = PostgresStore::open(&url).await.expect("new database");
        let server = TestServer::start(AnyStore::Postgres(store), ServerConfig::default()).await;
        let ann = server.create_api_key("ann", &["worker"], &[]).await;
        let mut stream = StreamClient::open(&server, Some(&ann), "/v1/stream", None);
        stream.read_position();
        let long_poll = start_long_poll(&server, &ann);
        let (elsewhere, desk) = (PostgresStore::open(&url).await.expect("database"), ApiKeyCache::default());
        let id = ann.split('_').nth(1).expect("id");
        ApiKeys::on_store(&elsewhere, &desk).revoke(&operator("ops"), id).await.expect("revoked");
        let began = Instant::now();
        assert_eq!(stream.next_chunk(), None);
        println!("the stream ended after {:?}", began.elapsed());
        assert_unauthorized(&long_poll);
        println!("the long poll ended after {:?}", began.elapsed());
        server.close().await;
    });
}
