//! Requests that nobody should send: each has a clear answer, and the server goes on serving.

use std::io::{BufReader, Read as _, Write as _};
use std::time::Duration;

use onceward_testkit::http::{Reply, write};
use serde_json::json;

use crate::client::{Db, Served};

const PATH: &str = "/v1/lifecycles/execution.job/records";

#[test]
fn malformed_bodies_have_clear_answers() {
    let served = Served::start(Db::Sqlite);
    let send = |body: &str| served.call("POST", PATH, &[], Some(body));
    for bad in ["", "{", "nonsense", "{\"payload\": }", "{\"payload\": 1} 2", "\u{0}"] {
        send(bad).is_problem(400, "bad_json");
    }
    for bad in ["[]", "1", "null", "{\"no\": 1}", "{\"id\": \"x\"}", "{\"fields\": []}", "{\"payload_base64\": \"?\"}"]
    {
        send(bad).is_problem(422, "bad_input");
    }
    send(r#"{"payload": 1, "payload_base64": ""}"#).is_problem(422, "bad_input");
    let deep = |by: usize| format!("{}{}", "[".repeat(by), "]".repeat(by));
    send(&format!("{{\"fields\": {{\"budget\": {}}}}}", deep(100_000))).is_problem(400, "bad_json");
    send(&format!("{{\"payload\": {}}}", deep(100_000))).is_problem(422, "bad_input");
    assert_eq!(send(&format!("{{\"payload\": {}}}", deep(100))).status, 201);
    let mut stream = served.connect();
    let body = b"{\"payload\": \"\xff\"}";
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    Reply::read(&mut BufReader::new(stream)).is_problem(400, "bad_json");
}

#[test]
fn other_kinds_of_content_are_not_read() {
    let served = Served::start(Db::Sqlite);
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "application/jsonp"] {
        served.call("POST", PATH, &[("content-type", kind)], Some("{}")).is_problem(415, "not_json");
    }
    let made = served.call("POST", PATH, &[("content-type", "Application/JSON; charset=utf-8")], Some("{}"));
    assert_eq!(made.status, 201, "{}", made.text());
}

#[test]
fn what_is_too_large_is_refused_before_it_is_read() {
    let served = Served::start(Db::Sqlite);
    let mut stream = served.connect();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99999999999\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    Reply::read(&mut BufReader::new(stream)).is_problem(413, "too_large");
    // One that does not say how long it is.
    let mut stream = served.connect();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("10000\r\n{}\r\n", "a".repeat(0x10000));
    let mut reading = BufReader::new(stream.try_clone().unwrap());
    let answer = std::thread::spawn(move || Reply::read(&mut reading));
    while stream.write_all(chunk.as_bytes()).is_ok() && !answer.is_finished() {}
    answer.join().unwrap().is_problem(413, "too_large");
    let many: Vec<_> = (0..1_001).map(|_| json!({})).collect();
    served.post(&format!("{PATH}/batch"), &json!({ "records": many })).is_problem(422, "batch_too_large");
    let huge = "a".repeat(200_000);
    assert_eq!(served.call("GET", "/livez", &[("x", &huge)], None).status, 431);
    assert_eq!(served.get("/livez").status, 200);
}

#[test]
fn nonsense_is_no_request() {
    let served = Served::start(Db::Sqlite);
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
    served.call("POST", "/livez", &[], Some("{}")).is_problem(405, "no_such_method");
}

/// Connections that say nothing, or say it very slowly, keep nobody else out.
#[test]
fn the_slow_keep_nobody_waiting() {
    let served = Served::start(Db::Sqlite);
    let mut slow: Vec<_> = (0..200).map(|_| served.connect()).collect();
    for stream in &mut slow {
        stream.write_all(b"POST /v1/leases HTTP/1.1\r\nhost: localhost\r\n").unwrap();
    }
    let mut half: Vec<_> = (0..50).map(|_| served.connect()).collect();
    for stream in &mut half {
        stream
            .write_all(
                b"POST /v1/leases HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{",
            )
            .unwrap();
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
    let served = Served::start(Db::Sqlite);
    for _ in 0..20 {
        let mut stream = served.connect();
        stream
            .write_all(
                format!(
                    "POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{{"
                )
                .as_bytes(),
            )
            .unwrap();
        drop(stream);
        let mut stream = served.connect();
        write(
            &mut stream,
            "POST",
            "/v1/leases",
            &[],
            Some(r#"{"lifecycles": ["execution.job"], "worker": "w", "wait_ms": 60000}"#),
        );
        drop(stream);
        let mut stream = served.connect();
        write(&mut stream, "GET", "/v1/stream?after=0", &[], None);
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        drop(stream);
    }
    let id = served.job(&json!(1));
    // Those that waited are gone, and take nothing with them.
    assert_eq!(served.lease()["record"]["id"], json!(id));
}
