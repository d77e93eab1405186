//! What holds of every document job, whatever anybody does: random operations of owners, strangers, operators and
//! workers. `ONCEWARD_SEED=…` plays one case again.

use onceward_core::time::Duration;
use onceward_testkit::random::Wander;
use onceward_testkit::{Stage, operator, systems, user};
use serde_json::{Value, json};

/// DOC-5, DOC-6, DOC-9, DOC-12, DOC-14, DOC-16: retries are counted and bounded, the delay is a second, the error shows what
/// the state says, and what is to stop is not tried again.
#[test]
fn jobs_keep_their_books() {
    Wander::with(&[user("alice"), user("mallory"), operator("olga")])
        .codes(&["TIMEOUT", "QUEUE_OVERLOAD", "CORRUPT_DATA", "SYSTEM_TRANSIENT"])
        .value("requestId", [json!("r-1"), json!("r-2"), Value::Null])
        .payloads(&["%PDF-1.7"])
        .run("document", 12, 160, || systems::stage("document"), holds);
}

fn holds(stage: &Stage) {
    let mut requests = std::collections::BTreeSet::new();
    for job in stage.all("document.job") {
        let field = |name: &str| stage.field(job.id, name);
        let retries = field("retryCount").as_u64().expect("a number");
        assert!(retries <= 3, "DOC-5: three retries at most");
        assert!(job.attempt == retries || job.attempt == retries + 1, "an attempt for each retry, and the first");
        let (error, kind) = (field("lastError"), field("errorType"));
        let stopping = field("cancelRequested") == json!(true);
        match &**job.state_name() {
            "CREATED" => assert!(job.attempt == 0 && kind == Value::Null && !stopping),
            "QUEUED" => assert!(job.attempt == retries && !stopping, "DOC-16: asked to stop, it is not tried again"),
            "RUNNING" => assert!(job.attempt == retries + 1 && job.live_execution().is_some()),
            "RETRYING" => {
                assert!(kind == "RETRYABLE" && error != Value::Null && !stopping && retries > 0);
                let due = stage.due(job.id).and_then(|due| due.since(job.entered_at));
                assert_eq!(due, Some(Duration::from_secs(1)), "DOC-6");
            }
            "SUCCEEDED" => assert!(error == Value::Null && kind == Value::Null && job.committed.is_some()),
            "FAILED" => {
                assert!(error != Value::Null && kind != Value::Null && job.committed.is_none());
                assert!(kind != "RETRYABLE" || retries == 3, "DOC-9: given up only when all retries are spent");
            }
            other => panic!("no such state: {other}"),
        }
        let request = field("requestId");
        if request != Value::Null {
            assert!(requests.insert((job.owner.clone(), request.to_string())), "DOC-12: one job for each request");
        }
    }
}
