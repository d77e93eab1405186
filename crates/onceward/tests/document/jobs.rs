//! A job from its upload to its end, over HTTP.

use onceward_testkit::served::BOTH;
use serde_json::{Value as Json, json};

use crate::house::House;

/// DOC-1, DOC-2, DOC-3, DOC-12: what a job shows of itself as it goes on, and its result once there is one.
#[test]
fn a_job_is_followed_to_its_end() {
    for db in BOTH {
        let house = House::open(db);
        let id = house.submitted("a", b"a document");
        let path = format!("/document/jobs/{id}");
        house.post(&house.alice, &format!("{path}/submit"), &json!({})).is_problem(409, "wrong_state");
        house.get(&house.alice, &format!("{path}/result")).is_problem(404, "not_found");
        let leased = house.lease();
        let running = house.job(&id);
        assert_eq!((&running["state"], running["startedAt"].is_string()), (&json!("RUNNING"), true));
        house.get(&house.alice, &format!("{path}/result")).is_problem(404, "not_found");
        let bytes = json!({ "result_base64": "AP8BIg==", "finish": true });
        assert_eq!(house.report(&leased, "commit", bytes).status, 200);
        let done = house.job(&id);
        assert_eq!((&done["state"], done["completedAt"].is_string()), (&json!("SUCCEEDED"), true));
        assert_eq!((&done["lastError"], &done["errorType"]), (&Json::Null, &Json::Null));
        let result = house.get(&house.alice, &format!("{path}/result"));
        assert_eq!((result.status, &*result.body), (200, &b"\x00\xff\x01\""[..]));
        assert_eq!(result.header("content-type"), Some("application/octet-stream"));
        assert_eq!(result.header("x-content-type-options"), Some("nosniff"));
    }
}

/// A result comes out as it went in, whatever it is.
#[test]
fn a_result_is_what_was_committed() {
    for db in BOTH {
        let house = House::open(db);
        let given = [
            (json!("a text\n"), "a text\n", "text/plain; charset=utf-8"),
            (json!({ "pages": 2 }), "{\"pages\":2}", "application/json"),
            (json!(12), "12", "application/json"),
            (Json::Null, "", "application/octet-stream"),
        ];
        for (number, (result, shown, kind)) in given.into_iter().enumerate() {
            let id = house.submitted(&number.to_string(), b"a document");
            let leased = house.lease();
            assert_eq!(house.report(&leased, "commit", json!({ "result": result, "finish": true })).status, 200);
            let told = house.get(&house.alice, &format!("/document/jobs/{id}/result"));
            assert_eq!((told.status, &*told.text(), told.header("content-type")), (200, shown, Some(kind)));
        }
    }
}

/// DOC-4, DOC-5, DOC-12: a failure shows its message and its class.
#[test]
fn a_failure_shows_why() {
    for db in BOTH {
        let house = House::open(db);
        let id = house.submitted("a", b"a document");
        let fail = |code: &str| {
            let leased = house.lease();
            let error = json!({ "code": code, "message": format!("it was {code}") });
            assert_eq!(house.report(&leased, "fail", json!({ "error": error })).status, 200);
            house.job(&id)
        };
        let shown = fail("TIMEOUT");
        assert_eq!((&shown["state"], &shown["retryCount"]), (&json!("RETRYING"), &json!(1)));
        assert_eq!((&shown["lastError"], &shown["errorType"]), (&json!("it was TIMEOUT"), &json!("RETRYABLE")));
        assert!(shown["completedAt"].is_null() && shown["startedAt"].is_string(), "{shown}");
        let shown = fail("CORRUPT_DATA");
        assert_eq!((&shown["state"], &shown["retryCount"]), (&json!("FAILED"), &json!(1)));
        assert_eq!((&shown["lastError"], &shown["errorType"]), (&json!("it was CORRUPT_DATA"), &json!("TERMINAL")));
        assert!(shown["completedAt"].is_string(), "{shown}");
        house.get(&house.alice, &format!("/document/jobs/{id}/result")).is_problem(404, "not_found");
    }
}

/// DOC-8, DOC-16: what waits is cancelled at once, what runs is asked to stop, what is over stays as it is; a refusal names the state and
/// the event.
#[test]
fn cancelling() {
    for db in BOTH {
        let house = House::open(db);
        let cancel = |id: &str| house.post(&house.alice, &format!("/document/jobs/{id}/cancel"), &json!({}));
        let waiting = house.submitted("waits", b"a document");
        let shown = cancel(&waiting).json();
        assert_eq!((&shown["state"], &shown["lastError"]), (&json!("FAILED"), &json!("cancelled")));
        let over = cancel(&waiting);
        over.is_problem(409, "wrong_state");
        assert_eq!((&over.json()["state"], &over.json()["event"]), (&json!("FAILED"), &json!("cancel")));
        let running = house.submitted("runs", b"a document");
        let leased = house.lease();
        assert_eq!(cancel(&running).json()["state"], "RUNNING");
        assert_eq!(house.report(&leased, "heartbeat", json!({})).json()["stop"], true);
        assert_eq!(house.report(&leased, "yield", json!({})).status, 200);
        assert_eq!(house.job(&running)["lastError"], "cancelled");
        let won = house.submitted("wins", b"a document");
        let leased = house.lease();
        assert_eq!(cancel(&won).json()["state"], "RUNNING");
        assert_eq!(house.report(&leased, "commit", json!({ "result": "won", "finish": true })).status, 200);
        assert_eq!(house.job(&won)["state"], "SUCCEEDED");
        house
            .post(&house.alice, &format!("/document/jobs/{won}/cancel"), &json!({ "why": 1 }))
            .is_problem(422, "bad_input");
    }
}

/// DOC-8: a refusal names the state and the event.
#[test]
fn a_refusal_names_the_state_and_the_event() {
    for db in BOTH {
        let house = House::open(db);
        let id = house.submitted("a", b"a document");
        let refused = house.post(&house.alice, &format!("/document/jobs/{id}/submit"), &json!({}));
        refused.is_problem(409, "wrong_state");
        assert_eq!((&refused.json()["state"], &refused.json()["event"]), (&json!("QUEUED"), &json!("submit")));
    }
}
