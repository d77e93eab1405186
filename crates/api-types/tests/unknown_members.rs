//! Requests reject unknown members, and responses ignore them.

use onceward_api_types::{
    Effect, Execution, LeaseBody, NewEvent, NewRecord, NewReport, Problem, PruneBody, RecordPage,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

#[expect(clippy::needless_pass_by_value, reason = "callers pass literals")]
fn parses<T: DeserializeOwned>(value: Value) -> bool {
    serde_json::from_str::<T>(&value.to_string()).is_ok()
}

#[test]
fn requests_reject_unknown_members() {
    assert!(parses::<NewRecord>(json!({})) && !parses::<NewRecord>(json!({ "new": 1 })));
    assert!(parses::<NewEvent>(json!({})) && !parses::<NewEvent>(json!({ "new": 1 })));
    assert!(parses::<PruneBody>(json!({})) && !parses::<PruneBody>(json!({ "new": 1 })));
    assert!(parses::<NewReport>(json!({ "token": 1 })) && !parses::<NewReport>(json!({ "token": 1, "new": 1 })));
    let lease = json!({ "lifecycles": ["a"], "worker": "w" });
    assert!(parses::<LeaseBody>(lease) && !parses::<LeaseBody>(json!({ "lifecycles": [], "worker": "w", "new": 1 })));
}

#[test]
fn responses_ignore_unknown_members() {
    let record = json!({
        "id": "0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b", "lifecycle": "a.job", "state": "RUNNING", "version": 2, "owner": "ann",
        "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z", "new": 1,
    });
    assert!(parses::<RecordPage>(json!({ "records": [record], "next": null, "new": 1 })));
}

#[test]
fn execution_keeps_unknown_status() {
    let execution = json!({
        "id": "0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b.1", "record": "0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b", "attempt": 1,
        "token": 1, "worker": "w", "status": "PAUSED", "leased_at": "2026-01-01T00:00:00Z",
        "expires_at": "2026-01-01T00:00:00Z", "started_at": null, "finished_at": null, "aborted": null,
    });
    let parsed: Execution = serde_json::from_value(execution.clone()).expect("execution");
    assert_eq!(json!(parsed), execution);
}

#[test]
fn effect_keeps_null_result() {
    for effect in [json!({ "execution": "a.1", "token": 1, "result": null }), json!({ "execution": "a.1", "token": 1 })]
    {
        let parsed: Effect = serde_json::from_value(effect.clone()).expect("an effect");
        assert_eq!(json!(parsed), effect);
    }
}

#[test]
fn problem_keeps_members_that_depend_on_its_code() {
    let problem = json!({
        "type": "/errors/pruned", "title": "pruned", "status": 410, "code": "pruned", "detail": "gone", "oldest": 7,
        "retry_after_ms": 5,
    });
    let parsed: Problem = serde_json::from_value(problem.clone()).expect("a problem");
    assert_eq!(json!(parsed), problem);
    assert_eq!((parsed.message(), parsed.extra["oldest"].as_u64()), ("gone", Some(7)));
}
