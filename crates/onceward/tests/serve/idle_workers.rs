//! Tests many idle workers and the startup time.

use std::time::Instant;

use onceward_testkit::http::{TEST_TIMEOUT, read_response, write_request};
use onceward_testkit::server_process::{DatabaseKind, ServerProcess};
use serde_json::json;

use crate::server::start_server;

/// Returns the number of long polls, from the server's metrics.
fn long_poll_count(server: &ServerProcess) -> usize {
    let metrics = server.get("/metrics").text();
    let line = metrics.lines().find(|line| line.starts_with("onceward_http_long_polls "));
    line.and_then(|line| line.split(' ').nth(1))
        .and_then(|count| count.parse().ok())
        .unwrap_or_else(|| panic!("{metrics}"))
}

/// Polls, because the server sends no notification of this.
fn poll_until(condition: impl Fn() -> bool) {
    let started_at = Instant::now();
    while !condition() {
        assert!(started_at.elapsed() < TEST_TIMEOUT, "timed out");
    }
}

#[test]
fn idle_workers_use_bounded_memory_and_each_job_goes_to_one() {
    let server = start_server(DatabaseKind::Sqlite);
    server.get("/livez");
    let before = server.memory_kb("VmRSS");
    let lease_body = json!({ "lifecycles": ["execution.job"], "worker": "w", "wait_ms": 300_000 }).to_string();
    let mut pollers: Vec<_> = (0..2_000).map(|_| server.connect()).collect();
    for stream in &mut pollers {
        write_request(stream, "POST", "/v1/leases", &[], Some(lease_body.as_bytes()));
    }
    poll_until(|| long_poll_count(&server) == 2_000);
    let after = server.memory_kb("VmRSS");
    let mut jobs: Vec<_> = (0..50).map(|n| server.create_job(&json!(n))).collect();
    poll_until(|| long_poll_count(&server) == 1_950);
    println!("{before} KB before, {after} KB with 2,000 waiting workers");
    assert!(after - before < 200_000, "{before} KB before, {after} KB after");
    // All jobs are leased before the drain: no worker got two, and no job was lost.
    server.signal("TERM");
    let mut leased = Vec::new();
    for stream in pollers {
        let answer = read_response(&stream);
        assert_eq!(answer.status, 200);
        for one in answer.json()["executions"].as_array().unwrap() {
            leased.push(one["record"]["id"].as_str().unwrap().to_owned());
        }
    }
    leased.sort();
    jobs.sort();
    assert_eq!(leased, jobs);
}

/// Prints the time. The bound is very loose, because a busy machine is not a bug.
#[test]
fn server_becomes_ready_on_empty_database() {
    let before = Instant::now();
    let server = start_server(DatabaseKind::Sqlite);
    assert_eq!(server.get("/readyz").status, 200);
    println!("ready on an empty database after {:?}", before.elapsed());
    assert!(before.elapsed() < TEST_TIMEOUT, "{:?}", before.elapsed());
    assert!(server.startup_output.starts_with("onceward "), "{}", server.startup_output);
}
