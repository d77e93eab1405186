//! Invariants of document jobs under random operations of owners, strangers, operators and workers. `ONCEWARD_SEED=…`
//! replays one case.

use onceward_core::time::Duration;
use onceward_testkit::random::RandomWalk;
use onceward_testkit::{Simulator, operator, systems, user};
use serde_json::{Value, json};

/// DOC-5, DOC-6, DOC-9, DOC-12, DOC-14, DOC-16: retries are counted and bounded, the delay is one second, the error
/// fits the state, and a cancelled job is not retried.
#[test]
fn random_operations_keep_job_invariants() {
    RandomWalk::with_actors(&[user("alice"), user("mallory"), operator("olga")])
        .error_codes(&["TIMEOUT", "QUEUE_OVERLOAD", "CORRUPT_DATA", "SYSTEM_TRANSIENT"])
        .values_for("requestId", [json!("r-1"), json!("r-2"), Value::Null])
        .payloads(&["%PDF-1.7"])
        .run("document", 12, 160, || systems::new_simulator("document"), assert_invariants);
}

fn assert_invariants(stage: &Simulator) {
    let mut requests = std::collections::BTreeSet::new();
    for job in stage.records_of("document.job") {
        let field = |name: &str| stage.field(job.id, name);
        let retries = field("retryCount").as_u64().expect("a number");
        assert!(retries <= 3, "DOC-5: at most three retries");
        assert!(job.attempt == retries || job.attempt == retries + 1, "one attempt more than retries");
        let (error, error_type) = (field("lastError"), field("errorType"));
        assert_eq!(error == Value::Null, field("errorCode") == Value::Null, "DOC-12: an error has a code");
        match &**job.state_name() {
            "CREATED" => assert!(job.attempt == 0 && error_type == Value::Null),
            "QUEUED" => assert!(job.attempt == retries && error != "cancelled", "DOC-16: no retry after a cancel"),
            "RUNNING" => assert!(job.attempt == retries + 1 && job.live_execution().is_some()),
            "RETRYING" => {
                assert!(error_type == "RETRYABLE" && error != Value::Null && retries > 0);
                let due = stage.next_timer_due(job.id).and_then(|due| due.duration_since(job.entered_at));
                assert_eq!(due, Some(Duration::from_secs(1)), "DOC-6");
            }
            "SUCCEEDED" => assert!(error == Value::Null && error_type == Value::Null && job.committed_token.is_some()),
            "FAILED" => {
                assert!(error != Value::Null && error_type != Value::Null && job.committed_token.is_none());
                assert!(job.live_execution().is_none(), "DOC-16: a cancelled job has no live execution");
                assert!(
                    error_type != "RETRYABLE" || retries == 3,
                    "DOC-9: a retryable error fails the job only after all retries"
                );
            }
            other => panic!("no such state: {other}"),
        }
        let request = field("requestId");
        if request != Value::Null {
            assert!(requests.insert((job.owner.clone(), request.to_string())), "DOC-12: one job per request");
        }
    }
}
