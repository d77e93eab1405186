//! Requests that nobody should send: each has a clear answer, and the server goes on serving.

use std::io::{Read as _, Write as _};

use onceward_testkit::http::{JSON, answer, write};
use onceward_testkit::served::Db;
use serde_json::json;

use crate::server::start;

const PATH: &str = "/v1/lifecycles/execution.job/records";

#[test]
fn malformed_bodies_have_clear_answers() {
    let served = start(Db::Sqlite);
    let send = |body: &str| served.call("POST", PATH, &[], Some(body.as_bytes()));
    for bad in ["", "{", "nonsense", "{\"payload\": }", "{\"payload\": 1} 2", "\u{0}"] {
        send(bad).is_problem(400, "bad_json");
    }
    for bad in ["[]", "1", "null", "{\"no\": 1}", "{\"id\": \"x\"}", "{\"fields\": []}", "{\"payload_base64\": \"?\"}"]
    {
        send(bad).is_problem(422, "bad_input");
    }
    send(r#"{"payload": 1, "payload_base64": ""}"#).is_problem(422, "bad_input");
    let deep = |by: usize| format!("{}{}", "[".repeat(by), "]".repeat(by));
    send(&format!("{{\"fields\": {{\"budget\": {}}}}}", deep(100_000))).is_problem(422, "bad_input");
    send(&format!("{{\"fields\": {{\"budget\": {}}}}}", deep(110))).is_problem(422, "bad_input");
    send(&format!("{{\"payload\": {}}}", deep(100_000))).is_problem(422, "bad_input");
    assert_eq!(send(&format!("{{\"payload\": {}}}", deep(100))).status, 201);
    served.call("POST", PATH, &[], Some(b"{\"payload\": \"\xff\"}")).is_problem(400, "bad_json");
}

#[test]
fn other_kinds_of_content_are_not_read() {
    let served = start(Db::Sqlite);
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "application/jsonp"] {
        served.call("POST", PATH, &[("content-type", kind)], Some(b"{}")).is_problem(415, "not_json");
    }
    let made = served.call("POST", PATH, &[("content-type", "Application/JSON; charset=utf-8")], Some(b"{}"));
    assert_eq!(made.status, 201, "{}", made.text());
}

#[test]
fn what_is_too_large_is_refused_before_it_is_read() {
    let served = start(Db::Sqlite);
    let stream = served.begin_as("", "POST", PATH, &[JSON, ("content-length", "99999999999")]);
    answer(&stream).is_problem(413, "too_large");
    // One that does not say how long it is.
    let mut stream = served.begin_as("", "POST", PATH, &[JSON, ("transfer-encoding", "chunked")]);
    let chunk = format!("10000\r\n{}\r\n", "a".repeat(0x10000));
    let reading = stream.try_clone().unwrap();
    let told = std::thread::spawn(move || answer(&reading));
    while stream.write_all(chunk.as_bytes()).is_ok() && !told.is_finished() {}
    told.join().unwrap().is_problem(413, "too_large");
    let many: Vec<_> = (0..1_001).map(|_| json!({})).collect();
    served.post(&format!("{PATH}/batch"), &json!({ "records": many })).is_problem(422, "batch_too_large");
    let huge = "a".repeat(200_000);
    assert_eq!(served.call("GET", "/livez", &[("x", &huge)], None).status, 431);
    assert_eq!(served.get("/livez").status, 200);
}

#[test]
fn nonsense_is_no_request() {
    let served = start(Db::Sqlite);
    for nonsense in [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"GET\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"\0\0\0\0\r\n\r\n"]
    {
        let mut stream = served.connect();
        stream.write_all(nonsense).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&answer));
    }
    served.get("/nowhere").is_problem(404, "no_such_route");
    served.get("/v1/records/%ff").is_problem(404, "not_found");
    served.get("/v1/records/not-an-id").is_problem(404, "not_found");
    let wrong = served.call("DELETE", "/v1/records", &[], None);
    wrong.is_problem(405, "no_such_method");
    assert!(wrong.header("allow").is_some_and(|allow| allow.contains("GET")), "{:?}", wrong.header("allow"));
    served.call("POST", "/livez", &[], Some(b"{}")).is_problem(405, "no_such_method");
    // Who tries what is near is told what does it.
    let near = served.call("POST", "/v1/records", &[], Some(b"{}"));
    near.is_problem(405, "no_such_method");
    assert!(near.text().contains("`POST /v1/lifecycles/{name}/records` makes a record"), "{}", near.text());
    assert!(served.get("/records").text().contains("routes begin with /v1"));
    // A report that is none says nothing of the job, which may be there.
    let report = "/v1/executions/0199a000-0000-7000-8000-000000000001.1/comit";
    let unknown = served.call("POST", report, &[], Some(b"{\"token\": 1}"));
    unknown.is_problem(404, "no_such_route");
    assert!(unknown.text().contains("commit, finish"), "{}", unknown.text());
}

/// Connections that say nothing, or say it very slowly, keep nobody else out.
#[test]
fn the_slow_keep_nobody_waiting() {
    let served = start(Db::Sqlite);
    let mut slow: Vec<_> = (0..200).map(|_| served.connect()).collect();
    for stream in &mut slow {
        stream.write_all(b"POST /v1/leases HTTP/1.1\r\nhost: localhost\r\n").unwrap();
    }
    let half = || served.begin_as("", "POST", "/v1/leases", &[JSON, ("content-length", "50")]);
    let mut half: Vec<_> = (0..50).map(|_| half()).collect();
    for stream in &mut half {
        stream.write_all(b"{").unwrap();
    }
    for n in 0..50 {
        served.job(&json!(n));
    }
    drop((slow, half));
    assert_eq!(served.get("/readyz").status, 200);
}

/// A client that goes away in the middle of a body, or does not read its answer.
#[test]
fn whoever_breaks_off_breaks_nothing() {
    let served = start(Db::Sqlite);
    for _ in 0..20 {
        let mut half = served.begin_as("", "POST", PATH, &[JSON, ("content-length", "50")]);
        half.write_all(b"{").unwrap();
        drop(half);
        let wanted = br#"{"lifecycles": ["execution.job"], "worker": "w", "wait_ms": 60000}"#;
        write(&mut served.connect(), "POST", "/v1/leases", &[], Some(wanted));
        write(&mut served.connect(), "GET", "/v1/stream?after=0", &[], None);
    }
    // Whoever has just found the job is given it; so first all that the server has still to notice. They came before us who ask, and are
    // counted from when they come: those too whose request was not looked at yet.
    served.until("onceward_http_connections", 1);
    let id = served.job(&json!(1));
    // Those that waited are gone, and take nothing with them.
    assert_eq!(served.lease()["record"]["id"], json!(id));
}
