//! An orderly end: what is under way is finished, and nobody is left waiting.

use std::io::{BufReader, Write as _};

use onceward_testkit::http::{Reply, write};
use serde_json::json;

use crate::client::{BOTH, Db, Served};

#[test]
fn what_is_under_way_is_finished() {
    for db in BOTH {
        let mut served = Served::start(db);
        // A worker that waits, and a call whose body has only half come.
        let mut waiting = served.connect();
        let wanted = json!({ "lifecycles": ["execution.job"], "worker": "w", "wait_ms": 120_000 }).to_string();
        write(&mut waiting, "POST", "/v1/leases", &[], Some(&wanted));
        let mut half = served.connect();
        let body = r#"{"payload": "in flight"}"#;
        let head = "POST /v1/lifecycles/execution.job/records HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
        half.write_all(format!("{head}content-length: {}\r\n\r\n{{", body.len()).as_bytes()).unwrap();
        // Until both are under way: what was sent before on other connections is taken in first.
        served.get("/livez");
        served.get("/livez");
        served.signal("TERM");
        // The worker is told at once that there is nothing.
        let empty = Reply::read(&mut BufReader::new(waiting));
        assert_eq!((empty.status, empty.json()), (200, json!({ "executions": [] })), "{db:?}");
        // Who comes now is told why not.
        served.call("POST", "/v1/leases", &[], Some(&wanted)).is_problem(503, "draining");
        let ready = served.get("/readyz");
        ready.is_problem(503, "draining");
        assert!(ready.header("retry-after").is_some());
        half.write_all(&body.as_bytes()[1..]).unwrap();
        let made = Reply::read(&mut BufReader::new(half));
        assert_eq!((made.status, &made.json()["state"]), (201, &json!("PENDING")), "{db:?}");
        assert_eq!(served.ended().code(), Some(0), "{db:?}");
    }
}

#[test]
fn with_nothing_under_way_it_ends_at_once() {
    let mut served = Served::start(Db::Sqlite);
    // One that is kept open keeps nobody.
    let _idle = served.connect();
    let mut kept = served.connect();
    write(&mut kept, "GET", "/livez", &[], None);
    assert_eq!(Reply::read(&mut BufReader::new(kept.try_clone().unwrap())).status, 200);
    served.signal("INT");
    assert_eq!(served.ended().code(), Some(0));
}

#[test]
fn a_second_signal_ends_it() {
    let mut served = Served::start(Db::Sqlite);
    let mut half = served.connect();
    half.write_all(
        b"POST /v1/leases HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{",
    )
    .unwrap();
    served.get("/livez");
    served.get("/livez");
    let mut waiting = served.connect();
    let wanted = json!({ "lifecycles": ["execution.job"], "worker": "w", "wait_ms": 120_000 }).to_string();
    write(&mut waiting, "POST", "/v1/leases", &[], Some(&wanted));
    served.get("/livez");
    served.signal("TERM");
    // It has heard the first when whoever waits is told so.
    let told = Reply::read(&mut BufReader::new(waiting));
    assert!(told.status == 200 || told.status == 503, "{}", told.text());
    served.signal("TERM");
    assert_eq!(served.ended().code(), Some(1));
}
