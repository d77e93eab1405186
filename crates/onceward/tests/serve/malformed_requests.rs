//! Tests malformed requests: each gets a clear reply, and the server keeps serving.

use std::io::{Read as _, Write as _};

use onceward_testkit::http::{BINARY_CONTENT_TYPE, JSON_CONTENT_TYPE, read_response, write_request};
use onceward_testkit::server_process::DatabaseKind;
use serde_json::json;

use crate::server::start_server;

const RECORDS_PATH: &str = "/v1/lifecycles/execution.job/records";

#[test]
fn malformed_bodies_return_specific_errors() {
    let server = start_server(DatabaseKind::Sqlite);
    let send = |body: &str| server.call("POST", RECORDS_PATH, &[], Some(body.as_bytes()));
    for bad in ["", "{", "nonsense", "{\"payload\": }", "{\"payload\": 1} 2", "\u{0}"] {
        send(bad).assert_problem(400, "invalid_json");
    }
    for bad in ["[]", "1", "null", "{\"no\": 1}", "{\"id\": \"x\"}", "{\"fields\": []}", "{\"payload_base64\": \"?\"}"]
    {
        send(bad).assert_problem(422, "invalid_input");
    }
    send(r#"{"payload": 1, "payload_base64": ""}"#).assert_problem(422, "invalid_input");
    let deep = |by: usize| format!("{}{}", "[".repeat(by), "]".repeat(by));
    send(&format!("{{\"fields\": {{\"budget\": {}}}}}", deep(100_000))).assert_problem(422, "invalid_input");
    send(&format!("{{\"fields\": {{\"budget\": {}}}}}", deep(110))).assert_problem(422, "invalid_input");
    send(&format!("{{\"payload\": {}}}", deep(100_000))).assert_problem(422, "invalid_input");
    assert_eq!(send(&format!("{{\"payload\": {}}}", deep(100))).status, 201);
    server.call("POST", RECORDS_PATH, &[], Some(b"{\"payload\": \"\xff\"}")).assert_problem(400, "invalid_json");
}

#[test]
fn non_json_content_type_returns_415() {
    let server = start_server(DatabaseKind::Sqlite);
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "application/jsonp"] {
        server.call("POST", RECORDS_PATH, &[("content-type", kind)], Some(b"{}")).assert_problem(415, "json_required");
    }
    let made = server.call("POST", RECORDS_PATH, &[("content-type", "Application/JSON; charset=utf-8")], Some(b"{}"));
    assert_eq!(made.status, 201, "{}", made.text());
}

#[test]
fn oversized_request_returns_413_before_body_is_read() {
    let server = start_server(DatabaseKind::Sqlite);
    let stream =
        server.begin_request_as("", "POST", RECORDS_PATH, &[JSON_CONTENT_TYPE, ("content-length", "99999999999")]);
    read_response(&stream).assert_problem(413, "request_too_large");
    // A request without a length.
    let mut stream =
        server.begin_request_as("", "POST", RECORDS_PATH, &[JSON_CONTENT_TYPE, ("transfer-encoding", "chunked")]);
    let chunk = format!("10000\r\n{}\r\n", "a".repeat(0x10000));
    let reading = stream.try_clone().unwrap();
    let response = std::thread::spawn(move || read_response(&reading));
    while stream.write_all(chunk.as_bytes()).is_ok() && !response.is_finished() {}
    response.join().unwrap().assert_problem(413, "request_too_large");
    let many: Vec<_> = (0..1_001).map(|_| json!({})).collect();
    server.post(&format!("{RECORDS_PATH}/batch"), &json!({ "records": many })).assert_problem(422, "batch_too_large");
    let huge = "a".repeat(200_000);
    assert_eq!(server.call("GET", "/livez", &[("x", &huge)], None).status, 431);
    assert_eq!(server.get("/livez").status, 200);
}

#[test]
fn invalid_requests_return_client_errors() {
    let server = start_server(DatabaseKind::Sqlite);
    for nonsense in [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"GET\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"\0\0\0\0\r\n\r\n"]
    {
        let mut stream = server.connect();
        stream.write_all(nonsense).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&answer));
    }
    server.get("/nowhere").assert_problem(404, "unknown_route");
    server.get("/v1/records/%ff").assert_problem(404, "not_found");
    server.get("/v1/records/not-an-id").assert_problem(404, "not_found");
    let wrong = server.call("DELETE", "/v1/records", &[], None);
    wrong.assert_problem(405, "method_not_allowed");
    assert!(wrong.header("allow").is_some_and(|allow| allow.contains("GET")), "{:?}", wrong.header("allow"));
    server.call("POST", "/livez", &[], Some(b"{}")).assert_problem(405, "method_not_allowed");
    // A similar route gets a hint.
    let near = server.call("POST", "/v1/records", &[], Some(b"{}"));
    near.assert_problem(405, "method_not_allowed");
    assert!(near.text().contains("`POST /v1/lifecycles/{name}/records` creates a record"), "{}", near.text());
    assert!(server.get("/records").text().contains("routes begin with /v1"));
    // An unknown report says nothing about whether the job exists.
    let report = "/v1/executions/0199a000-0000-7000-8000-000000000001.1/comit";
    let unknown = server.call("POST", report, &[], Some(b"{\"token\": 1}"));
    unknown.assert_problem(404, "unknown_route");
    assert!(unknown.text().contains("commit, finish"), "{}", unknown.text());
}

#[test]
fn slow_clients_do_not_block_others() {
    let server = start_server(DatabaseKind::Sqlite);
    let mut slow: Vec<_> = (0..200).map(|_| server.connect()).collect();
    for stream in &mut slow {
        stream.write_all(b"POST /v1/leases HTTP/1.1\r\nhost: localhost\r\n").unwrap();
    }
    let half = || server.begin_request_as("", "POST", "/v1/leases", &[JSON_CONTENT_TYPE, ("content-length", "50")]);
    let mut half: Vec<_> = (0..50).map(|_| half()).collect();
    for stream in &mut half {
        stream.write_all(b"{").unwrap();
    }
    for n in 0..50 {
        server.create_job(&json!(n));
    }
    drop((slow, half));
    assert_eq!(server.get("/readyz").status, 200);
}

/// Clients that disconnect within a body, or do not read the reply.
#[test]
fn disconnected_clients_lose_no_jobs() {
    let server = start_server(DatabaseKind::Sqlite);
    for _ in 0..20 {
        let mut half =
            server.begin_request_as("", "POST", RECORDS_PATH, &[JSON_CONTENT_TYPE, ("content-length", "50")]);
        half.write_all(b"{").unwrap();
        drop(half);
        let lease_body = br#"{"lifecycles": ["execution.job"], "worker": "w", "wait_ms": 60000}"#;
        write_request(&mut server.connect(), "POST", "/v1/leases", &[], Some(lease_body));
        write_request(&mut server.connect(), "GET", "/v1/stream?after=0", &[], None);
    }
    // The server may still lease the job to a client that is gone. So first wait until it has noticed all disconnects;
    // the gauge counts connections from accept on.
    server.wait_for_metric("onceward_http_connections", 1);
    let id = server.create_job(&json!(1));
    // The disconnected long polls took no job.
    assert_eq!(server.lease()["record"]["id"], json!(id));
}

/// Each documented route refuses an unknown query parameter, and names it and the known ones.
#[test]
fn unknown_query_parameter_is_refused_on_all_routes() {
    let server = start_server(DatabaseKind::Sqlite);
    let api = server.get("/openapi.json").json();
    let mut refused = 0;
    for (path, methods) in api["paths"].as_object().expect("paths") {
        let mut concrete: Vec<&str> = Vec::new();
        for part in path.split('/') {
            concrete.push(if part.starts_with('{') { "0199a000-0000-7000-8000-000000000001" } else { part });
        }
        let concrete = concrete.join("/");
        for (method, route) in methods.as_object().expect("methods") {
            let method = method.to_uppercase();
            let takes_bytes = route["requestBody"]["content"].get("application/octet-stream").is_some();
            let kind = if takes_bytes { BINARY_CONTENT_TYPE } else { JSON_CONTENT_TYPE };
            let reply = server.call(&method, &format!("{concrete}?nosuch=1"), &[kind], Some(b"{}"));
            assert_eq!(reply.status, 422, "{method} {path}: {}", reply.text());
            reply.assert_problem(422, "invalid_input");
            assert!(reply.text().contains("`nosuch`"), "{method} {path}: {}", reply.text());
            refused += 1;
        }
    }
    assert!(refused > 40, "{refused}");
    let reply = server.get("/v1/workers?limits=1");
    assert!(reply.text().contains("the query parameter `limits` is unknown; expected `limit`"), "{}", reply.text());
    assert_eq!(server.get("/v1/records?limit=1&lifecycle=execution.job").status, 200);
    assert_eq!(server.get("/v1/records?").status, 200);
}
