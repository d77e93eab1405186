//! Limits on the bytes of responses: of one call, and of all responses that clients have not read.

mod support;

use std::net::TcpStream;
use std::time::Duration;

use onceward_core::diagnostic::InputFile;
use onceward_server::ServerConfig;
use onceward_testkit::http::{self, read_response};
use serde_json::{Value as Json, json};
use support::{TestServer, lifecycle_files, wait_until, with_sqlite_server};
use tokio::net::TcpSocket;

/// A job with a large field, and an event that changes another field.
const BIG_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "house.big"
about     = "A job with a large field"

[states]
waiting = { about = "for a worker", ready = true }
running = { about = "a worker has it" }
done    = { about = "and over", final = true }

[fields]
note    = { type = "string", max = 1_000_000 }
touches = { type = "int", min = 0, max = 1_000_000, default = 0 }

[work]
lease = "1h"

[[on.create]]
go   = "-> waiting"
take = ["note"]

[[on.touch]]
go  = "waiting"
by  = "owner"
set = { touches = "record.touches + 1" }

[[on.lease]]
go = "waiting -> running"

[[on.commit]]
go = "running -> done"

[[on.yield]]
go = "running -> waiting"

[[on.fail]]
go = "running -> waiting"
"#;

const BIG_PATH: &str = "/v1/lifecycles/house.big/records";

/// About the size of a large record.
const NOTE_BYTES: usize = 800_000;

/// About the size of the record of a batch, so that ten fit into 1 MB.
const BATCH_NOTE_BYTES: usize = 100_000;

const MB: usize = 1 << 20;

#[expect(clippy::needless_pass_by_value, reason = "callers write the test inline")]
fn with_big_jobs(config: ServerConfig, test: impl AsyncFn(&TestServer)) {
    with_sqlite_server(config, Vec::new(), async |server| {
        let mut files = lifecycle_files();
        files.files.push(InputFile { name: "big.toml".to_owned(), text: BIG_LIFECYCLE.into() });
        server.engine.put_lifecycles(&files).await.expect("valid lifecycle files");
        test(&server).await;
        server.close().await;
    });
}

fn create_big(server: &TestServer, key: Option<&str>, note_bytes: usize) -> Json {
    let body = json!({ "fields": { "note": "x".repeat(note_bytes) }, "payload": "small" });
    server.send(key, "POST", BIG_PATH, Some(&body)).expect_ok()
}

fn results(response: &Json) -> &[Json] {
    response["results"].as_array().expect("results")
}

/// Sends a request from a client with a small receive buffer that does not read.
async fn send_unread(server: &TestServer, key: Option<&str>, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("socket");
    socket.set_recv_buffer_size(4 << 10).expect("buffer size");
    let stream = socket.connect(server.address()).await.expect("the server listens").into_std().expect("socket");
    stream.set_nonblocking(false).expect("blocking");
    stream.set_read_timeout(Some(Duration::from_millis(1))).expect("time");
    let mut writer = stream.try_clone().expect("socket");
    let bearer = key.map(|key| format!("Bearer {key}"));
    let headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", &**bearer)).collect();
    http::write_request(&mut writer, "GET", path, &headers, None);
    stream
}

/// Returns the status once it has arrived, without taking anything from the socket.
fn peek_status(stream: &TcpStream) -> Option<u16> {
    let mut first = [0; 12];
    let read = stream.peek(&mut first).ok()?;
    std::str::from_utf8(&first[..read]).ok()?.strip_prefix("HTTP/1.1 ")?.parse().ok()
}

/// 1,000 records of this size would be 100 MB.
#[test]
fn batches_answer_with_summaries_unless_records_are_requested_and_fit() {
    with_big_jobs(ServerConfig { max_response_bytes: MB, ..ServerConfig::default() }, async |server| {
        let id = create_big(server, None, BATCH_NOTE_BYTES)["id"].clone();
        let events = |returns: Json| {
            let event = json!({ "record": id, "event": "touch" });
            let mut body = json!({ "events": vec![event; 1_000] });
            if !returns.is_null() {
                body["return"] = returns;
            }
            server.send(None, "POST", "/v1/events/batch", Some(&body))
        };
        let short = events(Json::Null);
        assert!(short.body.len() < 200_000, "{} bytes", short.body.len());
        let short = short.expect_ok();
        assert_eq!(results(&short)[0], json!({ "id": id, "state": "waiting", "version": 2 }));
        assert_eq!(results(&short)[999], json!({ "id": id, "state": "waiting", "version": 1_001 }));
        let full = events(json!("record"));
        assert!(full.body.len() < 2 * MB, "{} bytes", full.body.len());
        let full = full.expect_ok();
        assert_eq!(results(&full)[0]["record"]["version"], 1_002);
        assert_eq!(results(&full)[0]["spawned"], json!([]));
        // Applied, too: an item without space for its record is no error.
        assert_eq!(results(&full)[999], json!({ "id": id, "state": "waiting", "version": 2_001 }));
        let with_records = results(&full).iter().filter(|item| item.get("record").is_some()).count();
        assert!((9..=10).contains(&with_records), "{with_records} records fit");
        server
            .send(None, "POST", "/v1/events/batch", Some(&json!({ "events": [], "return": "all" })))
            .assert_problem(422, "invalid_input");
        // A repeated key returns the whole record each time, as far as the response has space for it.
        let fields = json!({ "note": "x".repeat(BATCH_NOTE_BYTES) });
        let create = |count: usize| {
            let body = json!({ "records": vec![json!({ "fields": fields, "key": "one" }); count] });
            server.send(None, "POST", &format!("{BIG_PATH}/batch"), Some(&body)).expect_ok()
        };
        let created = create(18);
        assert_eq!(results(&created)[0]["created"], true);
        assert_eq!(results(&created)[17]["created"], false);
        assert_eq!(results(&created)[17]["id"], results(&created)[0]["record"]["id"]);
        assert!(results(&created)[17].get("record").is_none());
        wait_until("memory is released", || server.metric_value("onceward_http_response_bytes") == 0);
    });
}

#[test]
fn report_batch_answers_with_summaries_and_stop() {
    with_big_jobs(ServerConfig { max_response_bytes: MB, ..ServerConfig::default() }, async |server| {
        let id = create_big(server, None, BATCH_NOTE_BYTES)["id"].clone();
        let wanted = json!({ "lifecycles": ["house.big"], "worker": "w" });
        let leased = server.send(None, "POST", "/v1/leases", Some(&wanted)).expect_ok();
        let (execution, token) = (&leased["executions"][0]["id"], &leased["executions"][0]["token"]);
        let heartbeat = json!({ "execution": execution, "token": token, "do": "heartbeat" });
        let reports = |returns: &str| {
            let body = json!({ "reports": vec![heartbeat.clone(); 1_000], "return": returns });
            server.send(None, "POST", "/v1/executions/batch", Some(&body))
        };
        let short = reports("summary");
        assert!(short.body.len() < 200_000, "{} bytes", short.body.len());
        assert_eq!(results(&short.expect_ok())[999], json!({ "id": id, "state": "running", "version": 2 }));
        let full = reports("record");
        assert!(full.body.len() < 2 * MB, "{} bytes", full.body.len());
        let full = full.expect_ok();
        assert_eq!(results(&full)[0]["execution"]["id"], *execution);
        assert_eq!(results(&full)[0]["record"]["id"], id);
        assert_eq!(results(&full)[999], json!({ "id": id, "state": "running", "version": 2 }));
    });
}

/// A job that does not fit stays ready, and one that is larger than a response is leased alone, its payload by hash.
#[test]
fn lease_response_stops_at_its_limit() {
    for (max_response_bytes, expected) in [(2 * MB, [2, 2, 1]), (1_000, [1, 1, 1])] {
        with_big_jobs(ServerConfig { max_response_bytes, ..ServerConfig::default() }, async |server| {
            for _ in 0..5 {
                create_big(server, None, NOTE_BYTES);
            }
            let wanted = json!({ "lifecycles": ["house.big"], "worker": "w", "max": 100, "wait_ms": 60_000 });
            for jobs in expected {
                let leased = server.send(None, "POST", "/v1/leases", Some(&wanted)).expect_ok();
                let executions = leased["executions"].as_array().expect("executions");
                assert_eq!(executions.len(), jobs, "limit of {max_response_bytes}");
                for execution in executions {
                    assert_eq!(execution["attempt"], 1, "no job was leased without being sent");
                    assert_eq!(execution.get("payload").is_some(), max_response_bytes > NOTE_BYTES);
                    assert_eq!(execution["record"]["payload"]["bytes"], 7);
                }
            }
        });
    }
}

/// One API key has half of the memory, so that another is still served.
#[test]
fn unread_responses_are_bounded_for_each_api_key() {
    let config = ServerConfig {
        max_total_response_bytes: 40 * MB,
        response_memory_timeout: Duration::from_millis(300),
        // The test ends much earlier.
        write_timeout: Duration::from_mins(10),
        ..ServerConfig::default()
    };
    with_big_jobs(config, async |server| {
        let ann = server.create_api_key("ann", &["producer", "worker"], &[]).await;
        let bob = server.create_api_key("bob", &["viewer"], &[]).await;
        let ops = server.create_api_key("ops", &["operator"], &[]).await;
        let response_bytes = || server.send(Some(&ops), "GET", "/metrics", None).metric("onceward_http_response_bytes");
        for _ in 0..9 {
            create_big(server, Some(&ann), NOTE_BYTES);
        }
        let mut unread = Vec::new();
        for _ in 0..12 {
            unread.push(send_unread(server, Some(&ann), "/v1/records?limit=1000").await);
        }
        wait_until("every client has a status", || unread.iter().all(|stream| peek_status(stream).is_some()));
        let granted = unread.iter().filter(|stream| peek_status(stream) == Some(200)).count();
        assert_eq!(granted, 2, "pages of 7 MB in 20 MB");
        let (held, share) = (response_bytes(), 20 * MB as u64);
        assert!(held > 0 && held <= share, "{held} bytes");
        let refused = unread.iter().find(|stream| peek_status(stream) == Some(503)).expect("a refused client");
        refused.set_read_timeout(Some(http::TEST_TIMEOUT)).expect("time");
        let refused = read_response(refused);
        refused.assert_problem(503, "overloaded");
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(server.send(Some(&bob), "GET", "/v1/records", None).status, 200, "another API key");
        // Jobs whose response has no memory are returned at once.
        let wanted = json!({ "lifecycles": ["house.big"], "worker": "w", "max": 9 });
        server.send(Some(&ann), "POST", "/v1/leases", Some(&wanted)).assert_problem(503, "overloaded");
        drop(unread);
        wait_until("memory is released", || response_bytes() == 0);
        let leased = server.send(Some(&ann), "POST", "/v1/leases", Some(&wanted)).expect_ok();
        assert_eq!(leased["executions"].as_array().map(Vec::len), Some(9), "no job waits for the end of its lease");
        assert_eq!(server.send(Some(&ann), "GET", "/v1/records?limit=1000", None).status, 200);
    });
}

/// It costs the time of parsing a few names.
#[test]
fn list_of_millions_of_names_is_refused() {
    with_big_jobs(ServerConfig::default(), async |server| {
        let names = format!("[{}\"a\"]", "\"a\",".repeat(3_500_000));
        for (path, body) in [
            ("/v1/leases", format!("{{\"worker\":\"w\",\"lifecycles\":{names}}}")),
            ("/v1/keys", format!("{{\"owner\":\"a\",\"roles\":{names}}}")),
            ("/v1/prune", format!("{{\"only\":{names}}}")),
        ] {
            let refused = http::send_request(server.address(), "POST", path, &[], Some(body.as_bytes()));
            refused.assert_problem(422, "invalid_input");
            let detail = refused.json()["detail"].as_str().expect("detail").to_owned();
            assert!(detail.contains("at most 1000 items"), "{path}: {detail}");
        }
    });
}
