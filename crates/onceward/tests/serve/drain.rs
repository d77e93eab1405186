//! Tests the drain: running requests finish, and long polls end.

use std::io::Write as _;
use std::net::TcpStream;

use onceward_testkit::http::{JSON_CONTENT_TYPE, TEST_TIMEOUT, read_response, write_request};
use onceward_testkit::postgres;
use onceward_testkit::server_process::{self, ALL_DATABASES, DatabaseKind, ServerProcess};
use serde_json::json;

use crate::server::{BINARY, start_server};

const LEASE_BODY: &[u8] = br#"{"lifecycles": ["execution.job"], "worker": "w", "wait_ms": 120000}"#;

/// Sends a lease request that waits.
fn start_long_poll(server: &ServerProcess) -> TcpStream {
    let mut stream = server.connect();
    write_request(&mut stream, "POST", "/v1/leases", &[], Some(LEASE_BODY));
    stream
}

/// Counts body bytes of running requests. Needed because a reply on one connection does not show that earlier requests
/// on others have started.
const BODY_BYTES_METRIC: &str = "onceward_http_body_bytes";

#[test]
fn drain_finishes_requests_in_progress() {
    for db in ALL_DATABASES {
        let mut server = start_server(db);
        // A long poll, and a request whose body is incomplete.
        let long_poll = start_long_poll(&server);
        let body = br#"{"payload": "in flight"}"#;
        let headers = [JSON_CONTENT_TYPE, ("content-length", &*body.len().to_string())];
        let mut half = server.begin_request_as("", "POST", "/v1/lifecycles/execution.job/records", &headers);
        half.write_all(&body[..1]).unwrap();
        // Wait until both run. The lease also has to query the database before it waits.
        server.wait_for_metric(BODY_BYTES_METRIC, LEASE_BODY.len() as u64 + 1);
        server.wait_for_metric("onceward_http_long_polls", 1);
        server.signal("TERM");
        // The long poll returns empty at once.
        let empty = read_response(&long_poll);
        assert_eq!((empty.status, empty.json()), (200, json!({ "executions": [] })), "{db:?}");
        // New requests are refused.
        server.call("POST", "/v1/leases", &[], Some(LEASE_BODY)).assert_problem(503, "draining");
        let ready = server.get("/readyz");
        ready.assert_problem(503, "draining");
        assert!(ready.header("retry-after").is_some());
        half.write_all(&body[1..]).unwrap();
        let made = read_response(&half);
        assert_eq!((made.status, &made.json()["state"]), (201, &json!("PENDING")), "{db:?}");
        assert_eq!(server.wait_for_exit().code(), Some(0), "{db:?}");
    }
}

#[test]
fn idle_server_exits_at_once_on_sigint() {
    let mut server = start_server(DatabaseKind::Sqlite);
    // An idle connection does not delay the drain.
    let _idle = server.connect();
    let mut keep_alive = server.connect();
    write_request(&mut keep_alive, "GET", "/livez", &[], None);
    assert_eq!(read_response(&keep_alive).status, 200);
    server.signal("INT");
    assert_eq!(server.wait_for_exit().code(), Some(0));
}

/// Resets SIGHUP, because CI may run the tests under `nohup`.
#[test]
fn sighup_drains_server() {
    let folder = onceward_testkit::TempDir::new();
    let usual = server_process::serve_command(BINARY, &DatabaseKind::Sqlite.new_url(&folder));
    let mut command = std::process::Command::new("env");
    command.arg("--default-signal=HUP").arg(usual.get_program()).args(usual.get_args());
    let mut server = ServerProcess::start(&mut command).with_temp_dir(folder);
    server.create_job(&json!(1));
    server.signal("HUP");
    assert_eq!(server.wait_for_exit().code(), Some(0));
}

/// Neither calls that wait for the database nor the engine's own close delay the exit.
#[test]
fn drain_times_out_while_database_hangs() {
    let database = postgres::PostgresServer::start();
    let mut server = ServerProcess::start(
        server_process::serve_command(BINARY, &database.create_database()).args(["--drain", "2s"]),
    );
    server.create_job(&json!(1));
    let headers = [JSON_CONTENT_TYPE, ("content-length", "2")];
    let mut under_way = server.begin_request_as("", "POST", "/v1/lifecycles/execution.job/records", &headers);
    under_way.write_all(b"{").unwrap();
    // Metrics query the database, so read them before it hangs.
    server.wait_for_metric(BODY_BYTES_METRIC, 1);
    database.freeze();
    under_way.write_all(b"}").unwrap();
    server.signal("TERM");
    let code = exit_code_or_kill(&mut server);
    database.thaw();
    assert_eq!(code, Some(1));
}

/// Returns the exit code, or `None` after killing a server that does not exit.
fn exit_code_or_kill(server: &mut ServerProcess) -> Option<i32> {
    let (pid, (done_sender, done)) = (server.pid().to_string(), std::sync::mpsc::channel::<()>());
    let guard = std::thread::spawn(move || {
        if done.recv_timeout(TEST_TIMEOUT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = std::process::Command::new("kill").args(["-KILL", &pid]).status();
        }
    });
    let code = server.wait_for_exit().code();
    drop(done_sender);
    guard.join().expect("wait for process");
    code
}

#[test]
fn second_signal_exits_at_once() {
    let mut server = start_server(DatabaseKind::Sqlite);
    let mut half = server.begin_request_as("", "POST", "/v1/leases", &[JSON_CONTENT_TYPE, ("content-length", "50")]);
    half.write_all(b"{").unwrap();
    server.wait_for_metric(BODY_BYTES_METRIC, 1);
    let long_poll = start_long_poll(&server);
    server.signal("TERM");
    // The long poll's reply shows that the server has received the first signal.
    let response = read_response(&long_poll);
    assert!(response.status == 200 || response.status == 503, "{}", response.text());
    server.signal("TERM");
    assert_eq!(server.wait_for_exit().code(), Some(1));
}
