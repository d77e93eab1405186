//! Tests a job from create to finish over HTTP.

use onceward_testkit::server_process::{ALL_DATABASES, DatabaseKind};
use serde_json::json;

use crate::server::start_server;

#[test]
fn job_runs_from_create_to_effect_over_http() {
    for db in ALL_DATABASES {
        let server = start_server(db);
        let payload = r#"{"a": 1.50,  "b":"\u00e9"}"#;
        let body = format!(r#"{{"payload": {payload}, "fields": {{"budget": 3}}}}"#);
        let made = server.call("POST", "/v1/lifecycles/execution.job/records", &[], Some(body.as_bytes()));
        assert_eq!(made.status, 201, "{db:?} {}", made.text());
        assert_eq!(made.header("etag"), Some("\"1\""));
        let record = made.json();
        assert_eq!(
            (&record["state"], &record["version"], &record["owner"]),
            (&json!("PENDING"), &json!(1), &json!("local"))
        );
        assert_eq!(record["fields"]["budget"], 3);
        let id = record["id"].as_str().unwrap();

        let leased = server.lease();
        assert_eq!((&leased["id"], &leased["token"]), (&json!(format!("{id}.1")), &json!(1)));
        assert_eq!(leased["record"]["state"], "RUNNING");
        let report = |what: &str, more: serde_json::Value| {
            let mut body = more;
            body["token"] = json!(1);
            server.post(&format!("/v1/executions/{id}.1/{what}"), &body)
        };
        assert_eq!(report("start", json!({})).json()["execution"]["status"], "IN_PROGRESS");
        assert_eq!(report("heartbeat", json!({})).json()["stop"], false);
        let committed = report("commit", json!({ "result": { "sum": 3 } }));
        assert_eq!(committed.json()["execution"]["status"], "COMMITTED", "{}", committed.text());
        let finished = report("finish", json!({})).json();
        assert_eq!(
            (&finished["execution"]["status"], &finished["record"]["state"]),
            (&json!("DONE"), &json!("SUCCEEDED"))
        );

        let effect = server.get(&format!("/v1/records/{id}/effect")).json();
        assert_eq!(effect, json!({ "execution": format!("{id}.1"), "token": 1, "result": { "sum": 3 } }));
        let bytes = server.get(&format!("/v1/records/{id}/payload"));
        assert_eq!((bytes.text().as_str(), bytes.header("content-type")), (payload, Some("application/json")));
        let attempts = server.get(&format!("/v1/records/{id}/executions")).json();
        assert_eq!(attempts["executions"].as_array().map(Vec::len), Some(1));
        assert_eq!(server.get(&format!("/v1/executions/{id}.1")).json(), attempts["executions"][0]);
        server.get(&format!("/v1/executions/{id}.2")).assert_problem(404, "not_found");

        let history = server.get(&format!("/v1/records/{id}/history")).json();
        let events: Vec<_> =
            history["entries"].as_array().unwrap().iter().map(|entry| entry["event"].clone()).collect();
        assert_eq!(events, ["create", "lease", "start", "commit", "finish"]);
        let first = server.get(&format!("/v1/records/{id}/history?limit=2")).json();
        assert_eq!((first["entries"].as_array().unwrap().len(), &first["next"]), (2, &json!("2")));
        let rest = server.get(&format!("/v1/records/{id}/history?limit=100&cursor=2")).json();
        assert_eq!(rest["entries"].as_array().unwrap()[0]["version"], 3);
        // A repeated commit succeeds, but a committed job cannot fail.
        assert_eq!(report("commit", json!({ "result": { "sum": 3 } })).status, 200);
        let late = report("fail", json!({ "error": { "code": "late" } }));
        late.assert_problem(409, "already_committed");
        assert_eq!(late.json()["effect"]["result"], json!({ "sum": 3 }));
    }
}

#[test]
fn repeated_idempotency_key_returns_first_record() {
    for db in ALL_DATABASES {
        let server = start_server(db);
        let path = "/v1/lifecycles/execution.job/records";
        let create_with_key =
            |key: &str, body: &str| server.call("POST", path, &[("Idempotency-Key", key)], Some(body.as_bytes()));
        let first = create_with_key("k", r#"{"payload": 1}"#);
        let again = create_with_key("k", r#"{ "payload": 1 }"#);
        assert_eq!((first.status, again.status), (201, 200));
        assert_eq!(first.json(), again.json());
        create_with_key("k", r#"{"payload": 2}"#).assert_problem(422, "idempotency_key_reused");
        create_with_key("", r#"{"payload": 2}"#).assert_problem(422, "invalid_idempotency_key");
        let batch = json!({ "records": [{ "payload": 1, "key": "k" }, { "payload": 5, "key": "l" }, { "fields": { "no": 1 } }] });
        let made = server.post(&format!("{path}/batch"), &batch).json();
        let results = made["results"].as_array().unwrap();
        assert_eq!((&results[0]["record"]["id"], &results[0]["created"]), (&first.json()["id"], &json!(false)));
        assert_eq!(results[1]["created"], true);
        assert_eq!(
            (&results[2]["error"]["code"], &results[2]["error"]["status"]),
            (&json!("invalid_input"), &json!(422))
        );
        let all = server.get("/v1/records?lifecycle=execution.job").json();
        assert_eq!(all["records"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn event_with_stale_version_returns_412() {
    let server = start_server(DatabaseKind::Sqlite);
    let made =
        server.post("/v1/lifecycles/document.job/records", &json!({ "payload": 1, "fields": { "requestId": "r" } }));
    assert_eq!(made.status, 201, "{}", made.text());
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/records/{id}/events/cancel");
    server.call("POST", &path, &[("If-Match", "\"7\"")], Some(b"{}")).assert_problem(412, "version_mismatch");
    server.call("POST", &path, &[("If-Match", "7")], Some(b"{}")).assert_problem(422, "invalid_input");
    server.post(&format!("/v1/records/{id}/events/nothing"), &json!({})).assert_problem(404, "unknown_event");
    let same = server.call("GET", &format!("/v1/records/{id}"), &[("If-None-Match", "\"1\"")], None);
    assert_eq!((same.status, same.body.len()), (304, 0));
    let cancel = || server.call("POST", &path, &[("If-Match", "\"1\""), ("Idempotency-Key", "k")], Some(b"{}"));
    let cancelled = cancel();
    assert_eq!(
        (cancelled.status, &cancelled.json()["record"]["state"]),
        (200, &json!("FAILED")),
        "{}",
        cancelled.text()
    );
    assert_eq!(cancel().json(), cancelled.json());
    server.post(&path, &json!({})).assert_problem(409, "wrong_state");
}

#[test]
fn record_list_is_paged_without_duplicates() {
    for db in ALL_DATABASES {
        let server = start_server(db);
        let records: Vec<_> = (0..25).map(|n| json!({ "payload": n })).collect();
        server.post("/v1/lifecycles/execution.job/records/batch", &json!({ "records": records }));
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = server.get(&format!("/v1/records?state=PENDING&limit=10{cursor}")).json();
            seen.extend(page["records"].as_array().unwrap().iter().map(|record| record["id"].clone()));
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        let mut unique = seen.clone();
        unique.dedup();
        assert_eq!((seen.len(), unique.len()), (25, 25));
        let known = server.get("/v1/lifecycles/execution.job").json();
        assert_eq!(known["counts"], json!({ "PENDING": 25 }));
        assert_eq!(
            server.get("/v1/lifecycles/execution.job/diagram.svg").header("content-type"),
            Some("image/svg+xml")
        );
        assert!(server.get("/v1/lifecycles/execution.job/diagram.mmd").text().starts_with("stateDiagram"));
        server.get("/v1/lifecycles/none").assert_problem(404, "unknown_lifecycle");
        server.get("/v1/records?limit=0").assert_problem(422, "invalid_input");
        server.get("/v1/records?sate=x").assert_problem(422, "invalid_input");
    }
}

#[test]
fn binary_payload_and_result_round_trip() {
    let server = start_server(DatabaseKind::Sqlite);
    let body = json!({ "payload_base64": "AAEC/w==" });
    let id = server.post("/v1/lifecycles/execution.job/records", &body).json()["id"].as_str().unwrap().to_owned();
    let leased = server.lease();
    assert_eq!((&leased["payload_base64"], leased.get("payload")), (&json!("AAEC/w=="), None));
    assert_eq!(server.get(&format!("/v1/records/{id}/payload")).body, [0, 1, 2, 255]);
    let commit = json!({ "token": 1, "result_base64": "AP8=", "finish": true });
    assert_eq!(server.post(&format!("/v1/executions/{id}.1/commit"), &commit).json()["record"]["state"], "SUCCEEDED");
    assert_eq!(server.get(&format!("/v1/records/{id}/effect")).json()["result_base64"], "AP8=");
    let nul = json!({ "fields": { "budget": 1 }, "owner": "a\u{0}b" });
    server.post("/v1/lifecycles/execution.job/records", &nul).assert_problem(422, "invalid_input");
}

#[test]
fn server_describes_health_errors_and_lifecycles() {
    let server = start_server(DatabaseKind::Sqlite);
    assert!(server.get("/").text().contains("/openapi.json"));
    assert_eq!(server.get("/livez").json(), json!({ "status": "live" }));
    assert_eq!(server.get("/readyz").json(), json!({ "status": "ready" }));
    assert_eq!(server.get("/openapi.json").json()["openapi"], "3.1.0");
    assert!(server.get("/errors/lease_lost").text().starts_with("# `lease_lost`"));
    server.get("/errors/none").assert_problem(404, "not_found");
    let all = server.get("/v1/lifecycles").json();
    let names: Vec<_> = all["lifecycles"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"execution.job") && names.contains(&"document.job"), "{names:?}");
    // Systems whose checks have no handler are not loaded.
    assert!(names.contains(&"image.job") && !names.contains(&"relay.job"), "{names:?}");
    let pruned = server.post("/v1/prune", &json!({ "older_than": "1d", "dry_run": true }));
    assert_eq!(pruned.json()["records"], 0, "{}", pruned.text());
}
