//! An orderly end: what is under way is finished, and nobody is left waiting.

use std::io::Write as _;
use std::net::TcpStream;

use onceward_testkit::http::{JSON, PATIENCE, answer, write};
use onceward_testkit::postgres;
use onceward_testkit::served::{self, BOTH, Db, Served};
use serde_json::json;

use crate::server::{BINARY, start};

const WANTED: &[u8] = br#"{"lifecycles": ["execution.job"], "worker": "w", "wait_ms": 120000}"#;

/// A worker that waits.
fn waiting(served: &Served) -> TcpStream {
    let mut stream = served.connect();
    write(&mut stream, "POST", "/v1/leases", &[], Some(WANTED));
    stream
}

/// What a request has sent of its body is counted from when it is under way until it is answered. That a later one has its answer says
/// nothing of those before it: each connection has its own turn.
const BODIES: &str = "onceward_http_body_bytes";

#[test]
fn what_is_under_way_is_finished() {
    for db in BOTH {
        let mut served = start(db);
        // A worker that waits, and a call whose body has only half come.
        let waiting = waiting(&served);
        let body = br#"{"payload": "in flight"}"#;
        let headers = [JSON, ("content-length", &*body.len().to_string())];
        let mut half = served.begin_as("", "POST", "/v1/lifecycles/execution.job/records", &headers);
        half.write_all(&body[..1]).unwrap();
        // Until both are under way. But a lease asks the database before it waits.
        served.until(BODIES, WANTED.len() as u64 + 1);
        served.until("onceward_http_long_polls", 1);
        served.signal("TERM");
        // The worker is told at once that there is nothing.
        let empty = answer(&waiting);
        assert_eq!((empty.status, empty.json()), (200, json!({ "executions": [] })), "{db:?}");
        // Who comes now is told why not.
        served.call("POST", "/v1/leases", &[], Some(WANTED)).is_problem(503, "draining");
        let ready = served.get("/readyz");
        ready.is_problem(503, "draining");
        assert!(ready.header("retry-after").is_some());
        half.write_all(&body[1..]).unwrap();
        let made = answer(&half);
        assert_eq!((made.status, &made.json()["state"]), (201, &json!("PENDING")), "{db:?}");
        assert_eq!(served.ended().code(), Some(0), "{db:?}");
    }
}

#[test]
fn with_nothing_under_way_it_ends_at_once() {
    let mut served = start(Db::Sqlite);
    // One that is kept open keeps nobody.
    let _idle = served.connect();
    let mut kept = served.connect();
    write(&mut kept, "GET", "/livez", &[], None);
    assert_eq!(answer(&kept).status, 200);
    served.signal("INT");
    assert_eq!(served.ended().code(), Some(0));
}

/// The end of its terminal is one, too. Under `nohup`, as some gates run, it would mind none.
#[test]
fn a_closed_terminal_ends_it_in_order() {
    let folder = onceward_testkit::Folder::new();
    let usual = served::command(BINARY, &Db::Sqlite.url(&folder));
    let mut command = std::process::Command::new("env");
    command.arg("--default-signal=HUP").arg(usual.get_program()).args(usual.get_args());
    let mut served = Served::start(&mut command).keeping(folder);
    served.job(&json!(1));
    served.signal("HUP");
    assert_eq!(served.ended().code(), Some(0));
}

/// A database that stands still keeps nobody: neither calls that wait for it nor the engine's own end.
#[test]
fn a_frozen_database_does_not_keep_it() {
    let database = postgres::Server::start();
    let mut served = Served::start(served::command(BINARY, &database.database()).args(["--drain", "2s"]));
    served.job(&json!(1));
    let headers = [JSON, ("content-length", "2")];
    let mut under_way = served.begin_as("", "POST", "/v1/lifecycles/execution.job/records", &headers);
    under_way.write_all(b"{").unwrap();
    // Metrics look at the database, so before it stands still.
    served.until(BODIES, 1);
    database.freeze();
    under_way.write_all(b"}").unwrap();
    served.signal("TERM");
    let code = ended_in_time(&mut served);
    database.thaw();
    assert_eq!(code, Some(1));
}

/// Its exit code. One that goes on for long is killed, and has none.
fn ended_in_time(served: &mut Served) -> Option<i32> {
    let (pid, (over, waits)) = (served.pid().to_string(), std::sync::mpsc::channel::<()>());
    let guard = std::thread::spawn(move || {
        if waits.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = std::process::Command::new("kill").args(["-KILL", &pid]).status();
        }
    });
    let code = served.ended().code();
    drop(over);
    guard.join().expect("it ends");
    code
}

#[test]
fn a_second_signal_ends_it() {
    let mut served = start(Db::Sqlite);
    let mut half = served.begin_as("", "POST", "/v1/leases", &[JSON, ("content-length", "50")]);
    half.write_all(b"{").unwrap();
    served.until(BODIES, 1);
    let waiting = waiting(&served);
    served.signal("TERM");
    // It has heard the first when whoever waits is told so.
    let told = answer(&waiting);
    assert!(told.status == 200 || told.status == 503, "{}", told.text());
    served.signal("TERM");
    assert_eq!(served.ended().code(), Some(1));
}
