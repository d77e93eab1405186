//! Workers: long polls, keys, batches of reports, and leases that are lost.

use std::time::Instant;

use onceward_testkit::http::PATIENCE;
use onceward_testkit::served::{BOTH, Db};
use serde_json::json;

use crate::server::start;

#[test]
fn a_waiting_worker_is_woken_by_a_job() {
    for db in BOTH {
        let served = start(db);
        let before = Instant::now();
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| served.lease());
            let id = served.job(&json!("hello"));
            let leased = waiting.join().unwrap();
            assert_eq!((&leased["record"]["id"], &leased["payload"]), (&json!(id), &json!("hello")));
        });
        assert!(before.elapsed() < PATIENCE / 2, "it waited to the end");
    }
}

#[test]
fn nobody_waits_for_what_cannot_come() {
    let served = start(Db::Sqlite);
    let ask = |more: serde_json::Value| {
        let mut wanted = json!({ "lifecycles": ["execution.job"], "worker": "w" });
        wanted.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        served.post("/v1/leases", &wanted)
    };
    assert_eq!(ask(json!({})).json(), json!({ "executions": [] }));
    ask(json!({ "lifecycles": ["no.such"] })).is_problem(404, "no_such_lifecycle");
    ask(json!({ "lifecycles": [] })).is_problem(422, "bad_input");
    ask(json!({ "max": 0 })).is_problem(422, "bad_input");
    ask(json!({ "wait_ms": 300_001 })).is_problem(422, "bad_input");
    ask(json!({ "lease_ms": 0 })).is_problem(422, "bad_input");
    ask(json!({ "max": -1 })).is_problem(422, "bad_input");
}

#[test]
fn the_same_key_gets_the_same_jobs() {
    for db in BOTH {
        let served = start(db);
        served.job(&json!(1));
        served.job(&json!(2));
        let wanted = json!({ "lifecycles": ["execution.job"], "worker": "w", "max": 1 });
        let ask = |key: &str| {
            served.call("POST", "/v1/leases", &[("Idempotency-Key", key)], Some(wanted.to_string().as_bytes())).json()
        };
        let mut first = ask("a");
        assert_eq!(first["executions"].as_array().unwrap().len(), 1);
        let mut again = ask("a");
        // The answer is the same but for what is left of the lease, which is never more than it was.
        let left = [&mut first, &mut again].map(|answer| answer["executions"][0]["expires_in_ms"].take());
        let left = left.map(|left| left.as_u64().unwrap());
        assert!(left[0] <= 30_000 && left[1] <= left[0], "{left:?}");
        assert_eq!(again, first);
        assert_ne!(ask("b")["executions"][0]["id"], first["executions"][0]["id"]);
    }
}

#[test]
fn many_report_at_once() {
    for db in BOTH {
        let served = start(db);
        let records: Vec<_> = (0..5).map(|n| json!({ "payload": n })).collect();
        served.post("/v1/lifecycles/execution.job/records/batch", &json!({ "records": records }));
        let wanted = json!({ "lifecycles": ["execution.job"], "worker": "w", "max": 10, "start": true });
        let leased = served.post("/v1/leases", &wanted).json();
        let ids: Vec<_> = leased["executions"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
        assert_eq!(ids.len(), 5);
        let reports = json!({ "reports": [
            { "execution": ids[0], "token": 1, "do": "commit", "result": 7, "finish": true },
            { "execution": ids[1], "token": 1, "do": "fail", "error": { "code": "NO", "message": "not ever", "retryable": false } },
            { "execution": ids[2], "token": 1, "do": "yield" },
            { "execution": ids[3], "token": 1, "do": "heartbeat", "lease_ms": 60_000 },
            { "execution": ids[4], "token": 2, "do": "finish" },
            { "execution": ids[4], "token": 1, "do": "finish" },
        ] });
        let told = served.post("/v1/executions/batch", &reports).json();
        let results = told["results"].as_array().unwrap();
        let states: Vec<_> = results.iter().map(|one| one["record"]["state"].as_str().unwrap_or("")).collect();
        assert_eq!(states, ["SUCCEEDED", "FAILED", "PENDING", "RUNNING", "", ""], "{told}");
        let codes: Vec<_> = results.iter().map(|one| one["error"]["code"].as_str().unwrap_or("")).collect();
        assert_eq!(codes, ["", "", "", "", "bad_input", "not_committed"]);
        assert_eq!(results[1]["execution"]["aborted"]["code"], "NO");
    }
}

/// One call that nobody can read keeps nobody from the others of its batch.
#[test]
fn what_is_malformed_is_refused_in_its_place() {
    for db in BOTH {
        let served = start(db);
        let codes = |results: &serde_json::Value| -> Vec<String> {
            let results = results["results"].as_array().unwrap_or_else(|| panic!("{results}"));
            results.iter().map(|one| one["error"]["code"].as_str().unwrap_or_default().to_owned()).collect()
        };
        let records = json!({ "records": [{ "payload": 1 }, { "id": "none" }, [], { "payload": 2 }] });
        let made = served.post("/v1/lifecycles/execution.job/records/batch", &records).json();
        assert_eq!(codes(&made), ["", "bad_input", "bad_input", ""], "{db:?} {made}");
        let wanted = json!({ "lifecycles": ["execution.job"], "worker": "w", "max": 2, "start": true });
        let leased = served.post("/v1/leases", &wanted).json();
        let id = |at: usize| leased["executions"][at]["id"].clone();
        let reports = json!({ "reports": [
            { "execution": id(0), "token": 1, "do": "commit", "result": 7, "finish": true },
            { "token": 1, "do": "finish" },
            { "execution": id(1), "token": 1 },
            { "execution": id(1), "token": "one", "do": "yield" },
            { "execution": id(1), "token": 1, "do": "commit", "finish": true },
        ] });
        let told = served.post("/v1/executions/batch", &reports).json();
        assert_eq!(codes(&told), ["", "bad_input", "bad_input", "bad_input", ""], "{db:?} {told}");
        assert_eq!(told["results"][4]["record"]["state"], "SUCCEEDED");
        let job = served.job(&json!(3));
        let events = json!({ "events": [{ "record": 7, "event": "cancel" }, { "event": "cancel" }, { "record": job, "event": "cancel" }] });
        let fired = served.post("/v1/events/batch", &events).json();
        assert_eq!(codes(&fired), ["bad_input", "bad_input", "no_such_event"], "{db:?} {fired}");
        served.post("/v1/events/batch", &json!({ "events": {} })).is_problem(422, "bad_input");
    }
}

#[test]
fn a_lost_lease_is_told() {
    let served = start(Db::Sqlite);
    let id = served.job(&json!(1));
    served.lease();
    served.post(&format!("/v1/executions/{id}.1/yield"), &json!({ "token": 1 }));
    let late = served.post(&format!("/v1/executions/{id}.1/heartbeat"), &json!({ "token": 1 }));
    late.is_problem(409, "lease_lost");
    assert_eq!((&late.json()["event"], &late.json()["state"]), (&json!("heartbeat"), &json!("PENDING")));
    served.post(&format!("/v1/executions/{id}.1/dance"), &json!({ "token": 1 })).is_problem(404, "no_such_route");
    served.post("/v1/executions/x.1/start", &json!({ "token": 1 })).is_problem(404, "not_found");
    served.post(&format!("/v1/executions/{id}.1/fail"), &json!({ "token": 1 })).is_problem(422, "bad_input");
}
