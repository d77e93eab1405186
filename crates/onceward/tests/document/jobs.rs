//! Tests document jobs from upload to end, over HTTP.

use onceward_testkit::server_process::ALL_DATABASES;
use serde_json::{Value as Json, json};

use crate::support::DocumentServer;

/// DOC-1, DOC-2, DOC-3, DOC-12
#[test]
fn job_shows_each_state_and_result() {
    for db in ALL_DATABASES {
        let server = DocumentServer::open(db);
        let id = server.submit_document("a", b"a document");
        let path = format!("/document/jobs/{id}");
        server.post(&server.alice, &format!("{path}/submit"), &json!({})).assert_problem(409, "wrong_state");
        server.get(&server.alice, &format!("{path}/result")).assert_problem(404, "not_found");
        let leased = server.lease_job();
        let running = server.job(&id);
        assert_eq!((&running["state"], running["startedAt"].is_string()), (&json!("RUNNING"), true));
        server.get(&server.alice, &format!("{path}/result")).assert_problem(404, "not_found");
        let bytes = json!({ "result_base64": "AP8BIg==", "finish": true });
        assert_eq!(server.report(&leased, "commit", bytes).status, 200);
        let done = server.job(&id);
        assert_eq!((&done["state"], done["completedAt"].is_string()), (&json!("SUCCEEDED"), true));
        assert_eq!((&done["lastError"], &done["errorType"]), (&Json::Null, &Json::Null));
        let result = server.get(&server.alice, &format!("{path}/result"));
        assert_eq!((result.status, &*result.body), (200, &b"\x00\xff\x01\""[..]));
        assert_eq!(result.header("content-type"), Some("application/octet-stream"));
        assert_eq!(result.header("x-content-type-options"), Some("nosniff"));
    }
}

#[test]
fn result_is_returned_with_its_content_type() {
    for db in ALL_DATABASES {
        let server = DocumentServer::open(db);
        let given = [
            (json!("a text\n"), "a text\n", "text/plain; charset=utf-8"),
            (json!({ "pages": 2 }), "{\"pages\":2}", "application/json"),
            (json!(12), "12", "application/json"),
            (Json::Null, "", "application/octet-stream"),
        ];
        for (number, (result, shown, kind)) in given.into_iter().enumerate() {
            let id = server.submit_document(&number.to_string(), b"a document");
            let leased = server.lease_job();
            assert_eq!(server.report(&leased, "commit", json!({ "result": result, "finish": true })).status, 200);
            let response = server.get(&server.alice, &format!("/document/jobs/{id}/result"));
            assert_eq!((response.status, &*response.text(), response.header("content-type")), (200, shown, Some(kind)));
        }
    }
}

/// DOC-4, DOC-5, DOC-12
#[test]
fn failed_job_shows_message_or_code_and_class() {
    for db in ALL_DATABASES {
        let server = DocumentServer::open(db);
        let id = server.submit_document("a", b"a document");
        let fail = |error: Json| {
            let leased = server.lease_job();
            assert_eq!(server.report(&leased, "fail", json!({ "error": error })).status, 200);
            server.job(&id)
        };
        let shown = fail(json!({ "code": "TIMEOUT", "message": "too slow" }));
        assert_eq!((&shown["state"], &shown["retryCount"]), (&json!("RETRYING"), &json!(1)));
        let error_of = |shown: &Json| ["lastError", "errorCode", "errorType"].map(|name| shown[name].clone());
        assert_eq!(error_of(&shown), ["too slow", "TIMEOUT", "RETRYABLE"]);
        assert!(shown["completedAt"].is_null() && shown["startedAt"].is_string(), "{shown}");
        let shown = fail(json!({ "code": "CORRUPT_DATA" }));
        assert_eq!((&shown["state"], &shown["retryCount"]), (&json!("FAILED"), &json!(1)));
        assert_eq!(error_of(&shown), ["CORRUPT_DATA", "CORRUPT_DATA", "TERMINAL"], "without a message, the code");
        assert!(shown["completedAt"].is_string(), "{shown}");
        server.get(&server.alice, &format!("/document/jobs/{id}/result")).assert_problem(404, "not_found");
    }
}

/// DOC-8, DOC-16: an ended job stays unchanged, and the refusal names its state and the event.
#[test]
fn cancel_ends_waiting_and_running_jobs_only() {
    for db in ALL_DATABASES {
        let server = DocumentServer::open(db);
        let cancel = |id: &str| server.post(&server.alice, &format!("/document/jobs/{id}/cancel"), &json!({}));
        let waiting = server.submit_document("waits", b"a document");
        let shown = cancel(&waiting).json();
        assert_eq!((&shown["state"], &shown["lastError"]), (&json!("FAILED"), &json!("cancelled")));
        let over = cancel(&waiting);
        over.assert_problem(409, "wrong_state");
        assert_eq!((&over.json()["state"], &over.json()["event"]), (&json!("FAILED"), &json!("cancel")));
        let running = server.submit_document("runs", b"a document");
        let leased = server.lease_job();
        let shown = cancel(&running).json();
        assert_eq!((&shown["state"], &shown["errorCode"]), (&json!("FAILED"), &json!("CANCELLED")));
        for kind in ["heartbeat", "commit", "yield"] {
            server.report(&leased, kind, json!({})).assert_problem(409, "lease_lost");
        }
        assert_eq!(server.job(&running), shown);
        let won = server.submit_document("wins", b"a document");
        let leased = server.lease_job();
        assert_eq!(server.report(&leased, "commit", json!({ "result": "won", "finish": true })).status, 200);
        let late = cancel(&won);
        late.assert_problem(409, "already_committed");
        assert_eq!(late.json()["effect"]["execution"], leased["id"], "{}", late.text());
        assert_eq!(server.job(&won)["state"], "SUCCEEDED");
        server
            .post(&server.alice, &format!("/document/jobs/{won}/cancel"), &json!({ "why": 1 }))
            .assert_problem(422, "invalid_input");
    }
}

/// DOC-8
#[test]
fn refused_submit_names_state_and_event() {
    for db in ALL_DATABASES {
        let server = DocumentServer::open(db);
        let id = server.submit_document("a", b"a document");
        let refused = server.post(&server.alice, &format!("/document/jobs/{id}/submit"), &json!({}));
        refused.assert_problem(409, "wrong_state");
        assert_eq!((&refused.json()["state"], &refused.json()["event"]), (&json!("QUEUED"), &json!("submit")));
    }
}
