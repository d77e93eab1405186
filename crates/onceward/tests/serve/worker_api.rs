//! Tests long polls, idempotency keys, batches of reports, and lost leases.

use std::time::Instant;

use onceward_testkit::http::TEST_TIMEOUT;
use onceward_testkit::server_process::{ALL_DATABASES, DatabaseKind};
use serde_json::json;

use crate::server::start_server;

#[test]
fn new_job_wakes_waiting_worker() {
    for db in ALL_DATABASES {
        let server = start_server(db);
        let before = Instant::now();
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| server.lease());
            let id = server.create_job(&json!("hello"));
            let leased = waiting.join().unwrap();
            assert_eq!((&leased["record"]["id"], &leased["payload"]), (&json!(id), &json!("hello")));
        });
        assert!(before.elapsed() < TEST_TIMEOUT / 2, "the poll waited until its timeout");
    }
}

#[test]
fn invalid_lease_request_is_refused() {
    let server = start_server(DatabaseKind::Sqlite);
    let request_lease = |more: serde_json::Value| {
        let mut lease_body = json!({ "lifecycles": ["execution.job"], "worker": "w" });
        lease_body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/v1/leases", &lease_body)
    };
    assert_eq!(request_lease(json!({})).json(), json!({ "executions": [] }));
    request_lease(json!({ "lifecycles": ["no.such"] })).assert_problem(404, "unknown_lifecycle");
    request_lease(json!({ "lifecycles": [] })).assert_problem(422, "invalid_input");
    request_lease(json!({ "max": 0 })).assert_problem(422, "invalid_input");
    request_lease(json!({ "wait_ms": 300_001 })).assert_problem(422, "invalid_input");
    request_lease(json!({ "lease_ms": 0 })).assert_problem(422, "invalid_input");
    request_lease(json!({ "max": -1 })).assert_problem(422, "invalid_input");
}

#[test]
fn repeated_lease_key_returns_same_executions() {
    for db in ALL_DATABASES {
        let server = start_server(db);
        server.create_job(&json!(1));
        server.create_job(&json!(2));
        let lease_body = json!({ "lifecycles": ["execution.job"], "worker": "w", "max": 1 });
        let request_lease = |key: &str| {
            server
                .call("POST", "/v1/leases", &[("Idempotency-Key", key)], Some(lease_body.to_string().as_bytes()))
                .json()
        };
        let mut first = request_lease("a");
        assert_eq!(first["executions"].as_array().unwrap().len(), 1);
        let mut again = request_lease("a");
        // The replies are equal except for the remaining lease time, which must not grow.
        let remaining_ms = [&mut first, &mut again].map(|answer| answer["executions"][0]["expires_in_ms"].take());
        let remaining_ms = remaining_ms.map(|left| left.as_u64().unwrap());
        assert!(remaining_ms[0] <= 30_000 && remaining_ms[1] <= remaining_ms[0], "{remaining_ms:?}");
        assert_eq!(again, first);
        assert_ne!(request_lease("b")["executions"][0]["id"], first["executions"][0]["id"]);
    }
}

#[test]
fn batch_reports_are_answered_individually() {
    for db in ALL_DATABASES {
        let server = start_server(db);
        let records: Vec<_> = (0..5).map(|n| json!({ "payload": n })).collect();
        server.post("/v1/lifecycles/execution.job/records/batch", &json!({ "records": records }));
        let lease_body = json!({ "lifecycles": ["execution.job"], "worker": "w", "max": 10, "start": true });
        let leased = server.post("/v1/leases", &lease_body).json();
        let ids: Vec<_> = leased["executions"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
        assert_eq!(ids.len(), 5);
        let reports = json!({ "reports": [
            { "execution": ids[0], "token": 1, "do": "commit", "result": 7, "finish": true },
            { "execution": ids[1], "token": 1, "do": "fail", "error": { "code": "NO", "message": "never", "retryable": false } },
            { "execution": ids[2], "token": 1, "do": "yield" },
            { "execution": ids[3], "token": 1, "do": "heartbeat", "lease_ms": 60_000 },
            { "execution": ids[4], "token": 2, "do": "finish" },
            { "execution": ids[4], "token": 1, "do": "finish" },
        ], "return": "record" });
        let response = server.post("/v1/executions/batch", &reports).json();
        let results = response["results"].as_array().unwrap();
        let states: Vec<_> = results.iter().map(|one| one["record"]["state"].as_str().unwrap_or("")).collect();
        assert_eq!(states, ["SUCCEEDED", "FAILED", "PENDING", "RUNNING", "", ""], "{response}");
        let codes: Vec<_> = results.iter().map(|one| one["error"]["code"].as_str().unwrap_or("")).collect();
        assert_eq!(codes, ["", "", "", "", "invalid_input", "not_committed"]);
        assert_eq!(results[1]["execution"]["aborted"]["code"], "NO");
    }
}

#[test]
fn malformed_batch_item_is_refused_alone() {
    for db in ALL_DATABASES {
        let server = start_server(db);
        let codes = |results: &serde_json::Value| -> Vec<String> {
            let results = results["results"].as_array().unwrap_or_else(|| panic!("{results}"));
            results.iter().map(|one| one["error"]["code"].as_str().unwrap_or_default().to_owned()).collect()
        };
        let records = json!({ "records": [{ "payload": 1 }, { "id": "none" }, [], { "payload": 2 }] });
        let made = server.post("/v1/lifecycles/execution.job/records/batch", &records).json();
        assert_eq!(codes(&made), ["", "invalid_input", "invalid_input", ""], "{db:?} {made}");
        let lease_body = json!({ "lifecycles": ["execution.job"], "worker": "w", "max": 2, "start": true });
        let leased = server.post("/v1/leases", &lease_body).json();
        let id = |at: usize| leased["executions"][at]["id"].clone();
        let reports = json!({ "reports": [
            { "execution": id(0), "token": 1, "do": "commit", "result": 7, "finish": true },
            { "token": 1, "do": "finish" },
            { "execution": id(1), "token": 1 },
            { "execution": id(1), "token": "one", "do": "yield" },
            { "execution": id(1), "token": 1, "do": "commit", "finish": true },
        ] });
        let response = server.post("/v1/executions/batch", &reports).json();
        assert_eq!(codes(&response), ["", "invalid_input", "invalid_input", "invalid_input", ""], "{db:?} {response}");
        assert_eq!(response["results"][4]["state"], "SUCCEEDED");
        let job = server.create_job(&json!(3));
        let events = json!({ "events": [{ "record": 7, "event": "cancel" }, { "event": "cancel" }, { "record": job, "event": "cancel" }] });
        let fired = server.post("/v1/events/batch", &events).json();
        assert_eq!(codes(&fired), ["invalid_input", "invalid_input", "unknown_event"], "{db:?} {fired}");
        server.post("/v1/events/batch", &json!({ "events": {} })).assert_problem(422, "invalid_input");
    }
}

#[test]
fn heartbeat_after_yield_returns_lease_lost() {
    let server = start_server(DatabaseKind::Sqlite);
    let id = server.create_job(&json!(1));
    server.lease();
    server.post(&format!("/v1/executions/{id}.1/yield"), &json!({ "token": 1 }));
    let late = server.post(&format!("/v1/executions/{id}.1/heartbeat"), &json!({ "token": 1 }));
    late.assert_problem(409, "lease_lost");
    assert_eq!((&late.json()["event"], &late.json()["state"]), (&json!("heartbeat"), &json!("PENDING")));
    server.post(&format!("/v1/executions/{id}.1/dance"), &json!({ "token": 1 })).assert_problem(404, "unknown_route");
    server.post("/v1/executions/x.1/start", &json!({ "token": 1 })).assert_problem(404, "not_found");
    server.post(&format!("/v1/executions/{id}.1/fail"), &json!({ "token": 1 })).assert_problem(422, "invalid_input");
}
