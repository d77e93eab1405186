//! Tests retries in real time. `systems/document/tests` covers them with a virtual clock and proves the rules, so these
//! tests cite none.

use std::process::Child;

use onceward_testkit::server_process::ALL_DATABASES;
use serde_json::{Value as Json, json};

use crate::support::DocumentServer;

/// Times out until the file has the given number of lines, then prints how often it ran.
const TIMEOUT_SCRIPT: &str = r#"
cat >/dev/null
echo once >>"$1"
tries=$(wc -l <"$1")
[ "$tries" -gt "$2" ] && { echo "run $tries times"; exit 0; }
echo "TIMEOUT: too slow, try $tries" >&2
exit 75
"#;

/// The retry delay is a second. The wide upper bound allows for a busy machine, but excludes other delays.
const RETRY_DELAY_RANGE_MILLIS: std::ops::Range<i128> = 1_000..10_000;

/// Starts a worker that times out `timeouts` times.
fn spawn_worker(server: &DocumentServer, timeouts: &str) -> Child {
    let tries = server.folder.join("tries");
    server
        .work_command(&[], &["sh", "-c", TIMEOUT_SCRIPT, "sh", &tries.to_string_lossy(), timeouts])
        .spawn()
        .expect("the binary runs")
}

fn kill_worker(mut worker: Child) {
    worker.kill().expect("start process");
    worker.wait().expect("wait for process");
}

/// Returns all log entries of a job.
fn history_entries(server: &DocumentServer, id: &str) -> Vec<Json> {
    let history = server.get(&server.alice, &format!("/v1/records/{id}/history")).json();
    history["entries"].as_array().expect("log").clone()
}

/// Returns each delay, from the times in the log.
fn retry_delays_millis(server: &DocumentServer, id: &str) -> Vec<i128> {
    let at = |entry: &Json| entry["at"].as_str().expect("time").parse::<jiff::Timestamp>().expect("RFC 3339");
    let entries = history_entries(server, id);
    let pairs = entries.windows(2).filter(|pair| pair[0]["state"] == "RETRYING" && pair[1]["state"] == "QUEUED");
    pairs.map(|pair| at(&pair[1]).duration_since(at(&pair[0])).as_millis()).collect()
}

/// Returns the expected states with three retries.
fn states_with_three_retries(end: &str) -> Vec<&str> {
    let retry = ["RUNNING", "RETRYING", "QUEUED"];
    [&["CREATED", "QUEUED"], &retry[..], &retry, &retry, &["RUNNING", end]].concat()
}

/// Each retry waits a second.
#[test]
fn job_succeeds_after_three_timeouts() {
    for db in ALL_DATABASES {
        let server = DocumentServer::open(db);
        let id = server.submit_document("a", b"a document");
        let worker = spawn_worker(&server, "3");
        let states = server.wait_for_states(&id, &["SUCCEEDED", "FAILED"]);
        kill_worker(worker);
        assert_eq!(states, states_with_three_retries("SUCCEEDED"));
        let job = server.job(&id);
        assert_eq!((&job["retryCount"], &job["lastError"], &job["errorType"]), (&json!(3), &json!(null), &json!(null)));
        assert_eq!(server.get(&server.alice, &format!("/document/jobs/{id}/result")).text(), "run 4 times");
        let waits = retry_delays_millis(&server, &id);
        assert!(
            waits.len() == 3 && waits.iter().all(|wait| RETRY_DELAY_RANGE_MILLIS.contains(wait)),
            "{db:?}: {waits:?} ms"
        );
    }
}

/// The worker gets no fifth attempt, and goes on with other jobs.
#[test]
fn fourth_timeout_fails_job() {
    for db in ALL_DATABASES {
        let server = DocumentServer::open(db);
        let id = server.submit_document("a", b"a document");
        let worker = spawn_worker(&server, "4");
        let states = server.wait_for_states(&id, &["SUCCEEDED", "FAILED"]);
        assert_eq!(states, states_with_three_retries("FAILED"));
        let waits = retry_delays_millis(&server, &id);
        assert!(
            waits.len() == 3 && waits.iter().all(|wait| RETRY_DELAY_RANGE_MILLIS.contains(wait)),
            "{db:?}: {waits:?} ms"
        );
        let after = server.submit_document("b", b"other document");
        server.wait_for_states(&after, &["SUCCEEDED"]);
        kill_worker(worker);
        let result = server.get(&server.alice, &format!("/document/jobs/{after}/result")).text();
        assert_eq!(result, "run 5 times", "four runs for the first document, one for the other");
        let job = server.job(&id);
        assert_eq!((&job["state"], &job["retryCount"]), (&json!("FAILED"), &json!(3)));
        assert_eq!((&job["errorType"], &job["lastError"]), (&json!("RETRYABLE"), &json!("too slow, try 4")));
        let tries = server.get(&server.operator, &format!("/v1/records/{id}/executions")).json();
        assert_eq!(tries["executions"].as_array().map(Vec::len), Some(4), "{tries}");
    }
}
