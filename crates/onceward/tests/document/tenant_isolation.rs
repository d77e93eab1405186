//! Tests that other callers learn nothing about a job, not even that it exists.

use onceward_testkit::http::RawHttpResponse;
use onceward_testkit::server_process::{ALL_DATABASES, DatabaseKind};
use serde_json::json;

use crate::support::DocumentServer;

const MISSING_ID: &str = "01938d6e-7a2b-7c00-8000-000000000001";

/// A request with an API key and a job id.
type JobRequest<'a> = &'a dyn Fn(&str, &str) -> RawHttpResponse;

/// Covers foreign jobs, missing jobs, records of other lifecycles, malformed ids, and missing results.
#[test]
fn missing_and_foreign_jobs_return_identical_404() {
    for db in ALL_DATABASES {
        let server = DocumentServer::open(db);
        let (foreign, done) = (server.submit_document("a", b"a document"), server.submit_document("b", b"a document"));
        for _ in 0..2 {
            let leased = server.lease_job();
            if leased["record"]["id"] == *done {
                assert_eq!(server.report(&leased, "commit", json!({ "result": "secret", "finish": true })).status, 200);
            }
        }
        let other = server.post(&server.bob, "/v1/lifecycles/execution.job/records", &json!({ "payload": 1 }));
        let other = other.json()["id"].as_str().expect("record of Bob").to_owned();
        let ways: [(&str, JobRequest); 4] = [
            ("get", &|key, id| server.get(key, &format!("/document/jobs/{id}"))),
            ("submit", &|key, id| server.post(key, &format!("/document/jobs/{id}/submit"), &json!({}))),
            ("cancel", &|key, id| server.post(key, &format!("/document/jobs/{id}/cancel"), &json!({}))),
            ("result", &|key, id| server.get(key, &format!("/document/jobs/{id}/result"))),
        ];
        for (way, send) in ways {
            let missing = send(&server.bob, MISSING_ID).without_volatile_headers();
            missing.assert_problem(404, "not_found");
            for id in [&*foreign, &done, &other, "no-id", "%ff"] {
                assert_eq!(send(&server.bob, id).without_volatile_headers(), missing, "{db:?}: {way} of {id}");
            }
        }
        // The owner of a job without a result gets the same 404.
        let result =
            |id: &str| server.get(&server.alice, &format!("/document/jobs/{id}/result")).without_volatile_headers();
        assert_eq!(result(&foreign), result(MISSING_ID));
        assert_eq!(result(&done).text(), "secret");
        // The requests changed nothing.
        assert_eq!(
            (&server.job(&foreign)["state"], &server.job(&done)["state"]),
            (&json!("RUNNING"), &json!("SUCCEEDED"))
        );
    }
}

#[test]
fn requests_without_key_return_401() {
    let server = DocumentServer::open(DatabaseKind::Sqlite);
    let id = server.submit_document("a", b"a document");
    for path in [format!("/document/jobs/{id}"), format!("/document/jobs/{id}/result"), "/document/jobs/x".to_owned()] {
        server.get("", &path).assert_problem(401, "unauthorized");
        server.get("ow_wrong", &path).assert_problem(401, "unauthorized");
    }
    server.post("", &format!("/document/jobs/{id}/cancel"), &json!({})).assert_problem(401, "unauthorized");
    assert_eq!(server.job(&id)["state"], "QUEUED");
}
