//! Limits on time and number, over real sockets: a call over a limit gets an error, and other calls still succeed.
//!
//! Timeouts are short but real. Tests wait for the server instead of sleeping, and no wait is unbounded.

mod support;

use std::io::{BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use axum::routing::{get, post};
use onceward_server::{JsonBody, ServerConfig, SystemRoutes};
use onceward_testkit::http::{self, JSON_CONTENT_TYPE, RawHttpResponse, read_response};
use serde_json::{Value as Json, json};
use support::{TestServer, wait_until, with_sqlite_server};
use utoipa_axum::router::OpenApiRouter;

/// Long enough for an immediate request on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_millis(300);

const CREATE_RECORD_PATH: &str = "/v1/lifecycles/house.job/records";

/// Runs a server with this configuration and one route that never answers.
#[expect(clippy::needless_pass_by_value, reason = "callers write the configuration inline")]
fn with_server(config: ServerConfig, test: impl AsyncFn(&TestServer)) {
    let hold_body = async |JsonBody(_): JsonBody<Json>| std::future::pending::<()>().await;
    let routes =
        OpenApiRouter::default().route("/stuck", get(std::future::pending::<()>)).route("/kept", post(hold_body));
    let systems = SystemRoutes { router: routes, ..SystemRoutes::default() };
    with_sqlite_server(config, vec![systems], async |server| {
        test(&server).await;
        server.close().await;
    });
}

fn send_request(server: &TestServer, method: &str, path: &str, body: Option<&str>) -> RawHttpResponse {
    http::send_request(server.address(), method, path, &[], body.map(str::as_bytes))
}

/// Asserts that the server still does real work for other callers.
fn assert_serves(server: &TestServer) {
    assert_eq!(send_request(server, "POST", CREATE_RECORD_PATH, Some("{}")).status, 201);
}

/// Reads until the server closes the connection.
fn read_to_end(mut stream: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("connection closes");
    rest
}

#[test]
fn slow_request_head_returns_request_head_timeout() {
    with_server(ServerConfig { head_timeout: TEST_TIMEOUT, ..ServerConfig::default() }, async |server| {
        let silent: Vec<_> = (0..20).map(|_| http::connect(server.address())).collect();
        // Sent immediately, so that the server does not treat the connection as idle.
        let begun = || {
            let mut stream = http::connect(server.address());
            stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n").expect("sent");
            stream
        };
        let begun: Vec<_> = (0..20).map(|_| begun()).collect();
        // Sending byte by byte does not extend the time.
        let mut dripping = http::connect(server.address());
        dripping.write_all(b"GET /livez HTTP/1.1\r\nx: ").expect("sent");
        dripping.set_read_timeout(Some(Duration::from_millis(5))).expect("time");
        assert_serves(server);
        let mut first = [0; 12];
        wait_until("response to a slow head", || {
            let _ = dripping.write_all(b"x");
            dripping.peek(&mut first).is_ok_and(|read| read == first.len())
        });
        assert_eq!(&first, b"HTTP/1.1 408");
        for stream in begun {
            read_response(&stream).assert_problem(408, "request_head_timeout");
            assert_eq!(read_to_end(stream), b"", "the connection is closed after the response");
        }
        for stream in silent {
            assert_eq!(read_to_end(stream), b"", "an idle connection is closed without a response");
        }
        assert_serves(server);
    });
}

#[test]
fn slow_request_body_returns_request_body_timeout() {
    with_server(ServerConfig { body_timeout: TEST_TIMEOUT, ..ServerConfig::default() }, async |server| {
        let mut slow = http::connect(server.address());
        http::write_request_head(
            &mut slow,
            "POST",
            CREATE_RECORD_PATH,
            &[JSON_CONTENT_TYPE, ("content-length", "100")],
        );
        slow.write_all(b"{").expect("sent");
        assert_serves(server);
        read_response(&slow).assert_problem(408, "request_body_timeout");
        assert_eq!(read_to_end(slow), b"", "the connection is closed after an incomplete body");
        assert_serves(server);
    });
}

#[test]
fn handler_over_request_timeout_returns_timed_out() {
    with_server(ServerConfig { request_timeout: TEST_TIMEOUT, ..ServerConfig::default() }, async |server| {
        let mut stuck = http::connect(server.address());
        http::write_request(&mut stuck, "GET", "/stuck", &[], None);
        // `/livez` does not depend on the disk.
        let assert_live = || assert_eq!(send_request(server, "GET", "/livez", None).status, 200);
        assert_live();
        let late = read_response(&stuck);
        late.assert_problem(503, "timed_out");
        assert_eq!(late.header("retry-after"), Some("1"));
        // The connection is still usable.
        http::write_request(&mut stuck, "GET", "/livez", &[], None);
        assert_eq!(read_response(&stuck).status, 200);
        assert_live();
    });
}

#[test]
fn connection_closes_when_client_does_not_read() {
    with_server(ServerConfig { write_timeout: TEST_TIMEOUT, ..ServerConfig::default() }, async |server| {
        let payload = json!({ "payload": "x".repeat(1_000_000) }).to_string();
        let made = send_request(server, "POST", CREATE_RECORD_PATH, Some(&payload)).expect_ok();
        let path = format!("/v1/records/{}/payload", made["id"].as_str().expect("id"));
        let mut unread = http::connect(server.address());
        // More than the socket buffers hold.
        for _ in 0..40 {
            http::write_request(&mut unread, "GET", &path, &[], None);
        }
        wait_until("connection is closed", || server.metric_value("onceward_http_connections") == 1);
        assert_serves(server);
    });
}

#[test]
fn connection_over_limit_returns_too_many_connections() {
    let config = ServerConfig { max_connections: 2, address_share_percent: 100, ..ServerConfig::default() };
    with_server(config, async |server| {
        let mut held: Vec<_> = (0..2).map(|_| http::connect(server.address())).collect();
        for stream in &mut held {
            http::write_request(stream, "GET", "/livez", &[], None);
            assert_eq!(read_response(stream).status, 200);
        }
        for path in ["/livez", CREATE_RECORD_PATH] {
            let mut one_more = http::connect(server.address());
            http::write_request(&mut one_more, "POST", path, &[], Some(&b" ".repeat(20_000)));
            let full = read_response(&one_more);
            full.assert_problem(503, "too_many_connections");
            assert_eq!((full.header("retry-after"), full.header("connection")), (Some("1"), Some("close")));
            assert_eq!(full.json()["retry_after_ms"], 1_000);
            assert_eq!(read_to_end(one_more), b"", "the response has the announced length");
        }
        // Open connections are served, and closing one frees its slot.
        http::write_request(&mut held[0], "POST", CREATE_RECORD_PATH, &[], Some(b"{}"));
        assert_eq!(read_response(&held[0]).status, 201);
        drop(held.pop());
        wait_until("free connection slot", || {
            send_request(server, "POST", CREATE_RECORD_PATH, Some("{}")).status == 201
        });
    });
}

#[test]
fn long_poll_over_limit_returns_too_many_long_polls() {
    with_server(ServerConfig { max_long_polls: 1, ..ServerConfig::default() }, async |server| {
        let wanted = |ms: u32| json!({ "lifecycles": ["house.job"], "worker": "w", "wait_ms": ms }).to_string();
        let mut first = http::connect(server.address());
        http::write_request(&mut first, "POST", "/v1/leases", &[], Some(wanted(300_000).as_bytes()));
        wait_until("waiting long poll", || server.metric_value("onceward_http_long_polls") == 1);
        let second = send_request(server, "POST", "/v1/leases", Some(&wanted(300_000)));
        second.assert_problem(503, "too_many_long_polls");
        assert_eq!(second.header("retry-after"), Some("1"));
        // A call without `wait_ms` needs no slot.
        assert_eq!(
            send_request(server, "POST", "/v1/leases", Some(&wanted(0))).expect_ok(),
            json!({ "executions": [] })
        );
        assert_serves(server);
        assert_eq!(read_response(&first).expect_ok()["executions"].as_array().map(Vec::len), Some(1));
        assert_eq!(send_request(server, "POST", "/v1/leases", Some(&wanted(1))).status, 200, "free slot");
    });
}

#[test]
fn stream_over_limit_returns_too_many_streams() {
    with_server(ServerConfig { max_streams: 1, ..ServerConfig::default() }, async |server| {
        let mut first = http::connect(server.address());
        http::write_request(&mut first, "GET", "/v1/stream", &[], None);
        let mut from = BufReader::new(first);
        assert!(http::read_head(&mut from).starts_with("HTTP/1.1 200"));
        let second = send_request(server, "GET", "/v1/stream", None);
        second.assert_problem(503, "too_many_streams");
        assert_eq!(second.header("retry-after"), Some("1"));
        assert_serves(server);
        drop(from);
        wait_until("free slot", || {
            let mut next = http::connect(server.address());
            http::write_request(&mut next, "GET", "/v1/stream", &[], None);
            http::read_head(&mut BufReader::new(next)).starts_with("HTTP/1.1 200")
        });
    });
}

/// Without API keys, there are no shares.
#[test]
fn calls_over_api_key_share_return_api_key_share_exceeded() {
    with_server(ServerConfig { max_streams: 4, max_long_polls: 4, ..ServerConfig::default() }, async |server| {
        let wanted = json!({ "lifecycles": ["house.job"], "worker": "w", "wait_ms": 300_000 }).to_string();
        let open = |key: Option<&str>, path: &str| {
            let bearer = key.map(|key| format!("Bearer {key}"));
            let headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", &**bearer)).collect();
            let mut stream = http::connect(server.address());
            let (method, body) = if path == "/v1/leases" { ("POST", Some(wanted.as_bytes())) } else { ("GET", None) };
            http::write_request(&mut stream, method, path, &headers, body);
            stream
        };
        // The head of a stream arrives at once; a waiting lease call shows in the metrics.
        let streams = |key: Option<&str>| {
            let mut from = BufReader::new(open(key, "/v1/stream"));
            let head = http::read_head(&mut from);
            head.starts_with("HTTP/1.1 200").then_some(from).ok_or(head)
        };
        let without_key: Vec<_> = (0..4).map(|_| streams(None).expect("no limit per API key")).collect();
        drop(without_key);
        let keys = [("ann", "worker"), ("bob", "worker"), ("ops", "operator")];
        let mut api_keys = Vec::new();
        for (owner, role) in keys {
            api_keys.push(server.create_api_key(owner, &[role], &[]).await);
        }
        let [ann, bob, ops] = &api_keys[..] else { panic!("three API keys") };
        let held = |name: &str| {
            let bearer = format!("Bearer {ops}");
            let page =
                http::send_request(server.address(), "GET", "/metrics", &[("authorization", &bearer)], None).text();
            let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|number| number.parse::<usize>().ok()).expect("number")
        };
        wait_until("streams without API key are closed", || held("onceward_http_streams") == 0);
        let mut anns: Vec<_> = (0..2).map(|_| streams(Some(ann)).expect("within the share of 2")).collect();
        let third = read_response(&open(Some(ann), "/v1/stream"));
        third.assert_problem(429, "api_key_share_exceeded");
        assert_eq!((third.header("retry-after"), &third.json()["retry_after_ms"]), (Some("1"), &json!(1_000)));
        let bobs: Vec<_> = (0..2).map(|_| streams(Some(bob)).expect("slots for other API keys")).collect();
        read_response(&open(Some(bob), "/v1/stream")).assert_problem(503, "too_many_streams");
        anns.pop();
        wait_until("free slot of ann", || streams(Some(ann)).map(|again| anns.push(again)).is_ok());
        drop(bobs);
        // The same for long polls.
        let waiting: Vec<_> = (0..2).map(|_| open(Some(ann), "/v1/leases")).collect();
        wait_until("two waiting long polls", || held("onceward_http_long_polls") == 2);
        read_response(&open(Some(ann), "/v1/leases")).assert_problem(429, "api_key_share_exceeded");
        let others = open(Some(bob), "/v1/leases");
        wait_until("third waiting long poll", || held("onceward_http_long_polls") == 3);
        drop((waiting, others));
    });
}

#[test]
fn invalid_request_head_returns_problem() {
    with_server(ServerConfig { max_head_bytes: 8 << 10, ..ServerConfig::default() }, async |server| {
        let long = |name: &str, bytes: usize| {
            format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{name}: {}\r\n\r\n", "x".repeat(bytes))
        };
        let many = format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(200));
        for (text, status, code) in [
            ("nonsense\r\n\r\n".to_owned(), 400, "invalid_request_head"),
            ("GET /livez HTTP/9.9\r\n\r\n".to_owned(), 400, "invalid_request_head"),
            ("GET /livez HTTP/1.1\r\nno colon\r\n\r\n".to_owned(), 400, "invalid_request_head"),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 400, "invalid_request_head"),
            ("\u{16}\u{3}\u{1}\u{2}\0 as TLS begins\r\n\r\n".to_owned(), 400, "invalid_request_head"),
            (long("x", 20_000), 431, "request_head_too_large"),
            (many, 431, "request_head_too_large"),
        ] {
            let mut stream = http::connect(server.address());
            let _ = stream.write_all(text.as_bytes());
            let response = read_response(&stream);
            response.assert_problem(status, code);
            assert_eq!(response.header("connection"), Some("close"));
            assert_eq!(read_to_end(stream), b"", "the connection is closed after the response");
        }
        assert_serves(server);
    });
}

#[test]
fn body_bytes_over_total_limit_return_overloaded() {
    with_server(ServerConfig { max_total_body_bytes: 10_000, ..ServerConfig::default() }, async |server| {
        let long = format!("{{\"payload\": \"{}\"}}", "x".repeat(40_000));
        let mut first = http::connect(server.address());
        http::write_request_head(
            &mut first,
            "POST",
            CREATE_RECORD_PATH,
            &[JSON_CONTENT_TYPE, ("content-length", &long.len().to_string())],
        );
        first.write_all(&long.as_bytes()[..9_000]).expect("sent");
        wait_until("bytes of the first body are counted", || server.metric_value("onceward_http_body_bytes") == 9_000);
        let other = format!("{{\"payload\": \"{}\"}}", "y".repeat(5_000));
        let response = send_request(server, "POST", CREATE_RECORD_PATH, Some(&other));
        response.assert_problem(503, "overloaded");
        assert_eq!(response.header("retry-after"), Some("1"));
        assert_eq!(server.metric_value("onceward_http_body_bytes"), 9_000, "a rejected body reserves no bytes");
        // A small body still fits, and a single body fits at any length.
        assert_serves(server);
        first.write_all(&long.as_bytes()[9_000..]).expect("sent");
        assert_eq!(read_response(&first).status, 201);
        assert_eq!(
            send_request(server, "POST", CREATE_RECORD_PATH, Some(&other)).status,
            201,
            "the bytes are released"
        );
    });
}

#[test]
fn body_bytes_count_until_request_ends() {
    with_server(ServerConfig { max_total_body_bytes: 10_000, ..ServerConfig::default() }, async |server| {
        let body = json!({ "x": "x".repeat(8_000) }).to_string();
        let other = json!({ "payload": "y".repeat(5_000) }).to_string();
        let mut kept = http::connect(server.address());
        http::write_request(&mut kept, "POST", "/kept", &[], Some(body.as_bytes()));
        wait_until("body is held", || server.metric_value("onceward_http_body_bytes") == body.len() as u64);
        send_request(server, "POST", CREATE_RECORD_PATH, Some(&other)).assert_problem(503, "overloaded");
        drop(kept);
        wait_until("body is released", || server.metric_value("onceward_http_body_bytes") == 0);
        assert_eq!(send_request(server, "POST", CREATE_RECORD_PATH, Some(&other)).status, 201);
    });
}

/// A batch may be small in bytes but huge in items.
#[test]
fn batch_over_limit_returns_batch_too_large() {
    with_server(ServerConfig::default(), async |server| {
        let many = format!("{{\"records\": [{}{{}}]}}", "{},".repeat(2_000_000));
        send_request(server, "POST", &format!("{CREATE_RECORD_PATH}/batch"), Some(&many))
            .assert_problem(422, "batch_too_large");
        assert_serves(server);
    });
}

#[test]
fn api_key_over_rate_limit_returns_rate_limited() {
    with_server(ServerConfig { requests_per_second: 3, ..ServerConfig::default() }, async |server| {
        let (ann, bob) = (
            server.create_api_key("ann", &["producer"], &[]).await,
            server.create_api_key("bob", &["producer"], &[]).await,
        );
        let send = |key: &str| {
            let bearer = format!("Bearer {key}");
            http::send_request(server.address(), "GET", "/v1/records", &[("authorization", &bearer)], None)
        };
        assert_eq!(send(&ann).status, 200);
        let mut limited = None;
        wait_until("rate limit", || {
            limited = Some(send(&ann)).filter(|response| response.status != 200);
            limited.is_some()
        });
        let limited = limited.expect("response");
        limited.assert_problem(429, "rate_limited");
        assert_eq!(limited.header("retry-after"), Some("1"), "whole seconds");
        let wait = limited.json()["retry_after_ms"].as_u64().expect("number");
        assert!((1..=334).contains(&wait), "{wait} ms at 3 requests per second");
        // Another API key has its own limit, and public paths have none.
        assert_eq!(send(&bob).status, 200);
        assert_eq!(send_request(server, "GET", "/livez", None).status, 200);
    });
}

#[test]
fn response_arrives_though_body_was_not_read() {
    with_server(ServerConfig { max_body_bytes: 1_000, ..ServerConfig::default() }, async |server| {
        for _ in 0..20 {
            let mut stream = http::connect(server.address());
            http::write_request(&mut stream, "POST", CREATE_RECORD_PATH, &[], Some(&b" ".repeat(400_000)));
            let _ = stream.shutdown(Shutdown::Write);
            read_response(&stream).assert_problem(413, "request_too_large");
        }
        assert_serves(server);
    });
}
