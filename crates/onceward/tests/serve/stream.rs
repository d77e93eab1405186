//! Tests the log stream over server-sent events.

use onceward_testkit::SseClient;
use onceward_testkit::server_process::{ALL_DATABASES, DatabaseKind};
use serde_json::json;

use crate::server::start_server;

#[test]
fn stream_resumes_without_gap_or_duplicate() {
    for db in ALL_DATABASES {
        let server = start_server(db);
        let ids: Vec<_> = (0..20).map(|n| server.create_job(&json!(n))).collect();
        let mut seen = Vec::new();
        let mut last_seq = 0;
        // Disconnects after every seventh entry and reconnects while entries are written.
        while seen.len() < 30 {
            // Like a browser: the same URL, with the last `seq` in a header.
            let last = last_seq.to_string();
            let headers = [("Last-Event-ID", &*last)];
            let headers = if last_seq == 0 { &[][..] } else { &headers };
            let mut stream = SseClient::start(&server.address, "/v1/stream?after=0", headers);
            for _ in 0..7 {
                if seen.len() >= 20 {
                    server.create_job(&json!("more"));
                }
                let (seq, entry) = stream.next_entry().expect("next event");
                assert_eq!(entry["seq"], seq);
                last_seq = seq;
                seen.push(entry);
            }
        }
        let seqs: Vec<_> = seen.iter().map(|entry| entry["seq"].as_u64().unwrap()).collect();
        assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seqs:?}");
        let first: Vec<_> = seen.iter().take(20).map(|entry| entry["record"].as_str().unwrap().to_owned()).collect();
        assert_eq!(first, ids);
        assert!(seen.iter().all(|entry| entry["event"] == "create" && entry["lifecycle"] == "execution.job"));
    }
}

#[test]
fn stream_filters_by_record_and_lifecycle() {
    let server = start_server(DatabaseKind::Sqlite);
    let (one, two) = (server.create_job(&json!(1)), server.create_job(&json!(2)));
    let mut of_two = server.stream_log_as("", &format!("/v1/stream?after=0&record={two}"));
    let mut of_lifecycle = server.stream_log_as("", "/v1/stream?after=0&lifecycle=execution.job");
    let mut from_now = server.stream_log_as("", "/v1/stream");
    assert_eq!(of_two.next_entry().unwrap().1["record"], json!(two));
    assert_eq!(of_lifecycle.next_entry().unwrap().1["record"], json!(one));
    server.lease();
    assert_eq!(
        (&from_now.next_entry().unwrap().1["event"], &of_lifecycle.next_entry().unwrap().1["record"]),
        (&json!("lease"), &json!(two))
    );
    server.get("/v1/stream?after=x").assert_problem(422, "invalid_input");
    server.get("/v1/stream?record=x").assert_problem(422, "invalid_input");
    server.call("GET", "/v1/stream", &[("Last-Event-ID", "x")], None).assert_problem(422, "invalid_input");
}

#[test]
fn stream_before_pruned_seq_returns_410() {
    for db in ALL_DATABASES {
        let server = start_server(db);
        let id = server.create_job(&json!(1));
        server.lease();
        server.post(&format!("/v1/executions/{id}.1/commit"), &json!({ "token": 1, "finish": true }));
        let pruned = server.post("/v1/prune", &json!({ "older_than": "0s" }));
        assert_eq!(pruned.json()["records"], 1, "{db:?} {}", pruned.text());
        let gone = server.get("/v1/stream?after=0");
        gone.assert_problem(410, "pruned");
        let oldest = gone.json()["oldest"].as_u64().unwrap();
        let mut stream = server.stream_log_as("", &format!("/v1/stream?after={oldest}"));
        assert_eq!(stream.next_entry().unwrap().1["pruned"], 1);
        server.get(&format!("/v1/records/{id}")).assert_problem(404, "not_found");
    }
}

#[test]
fn stream_ends_when_server_drains() {
    let mut server = start_server(DatabaseKind::Sqlite);
    let mut stream = server.stream_log_as("", "/v1/stream");
    server.signal("TERM");
    assert!(stream.next_entry().is_none());
    assert_eq!(server.wait_for_exit().code(), Some(0));
}
