//! Retries once in real time; on the virtual clock they are played in `systems/document/tests`. No rule is cited here: what waits for a
//! real clock proves none.

use std::process::Child;

use onceward_testkit::served::BOTH;
use serde_json::{Value as Json, json};

use crate::house::House;

/// Fails with a time-out as long as there are no so many lines in the file, and then says how often it was run.
const SCRIPT: &str = r#"
cat >/dev/null
echo once >>"$1"
tries=$(wc -l <"$1")
[ "$tries" -gt "$2" ] && { echo "run $tries times"; exit 0; }
echo "TIMEOUT: too slow, try $tries" >&2
exit 75
"#;

/// Between failing and being queued again, in milliseconds: a second. How much later it may be on a busy machine is not for this test to
/// say; that it is no other pause is.
const WAIT: std::ops::Range<i128> = 1_000..10_000;

/// A worker that times out so often.
fn worker(house: &House, timeouts: &str) -> Child {
    let tries = house.folder.join("tries");
    house.work(&[], &["sh", "-c", SCRIPT, "sh", &tries.to_string_lossy(), timeouts]).spawn().expect("the binary runs")
}

fn end(mut worker: Child) {
    worker.kill().expect("it runs");
    worker.wait().expect("it ends");
}

/// A job's whole log.
fn entries(house: &House, id: &str) -> Vec<Json> {
    let history = house.get(&house.alice, &format!("/v1/records/{id}/history")).json();
    history["entries"].as_array().expect("its log").clone()
}

/// By the log's own times: how long each wait was.
fn waits(house: &House, id: &str) -> Vec<i128> {
    let at = |entry: &Json| entry["at"].as_str().expect("a time").parse::<jiff::Timestamp>().expect("RFC 3339");
    let entries = entries(house, id);
    let pairs = entries.windows(2).filter(|pair| pair[0]["state"] == "RETRYING" && pair[1]["state"] == "QUEUED");
    pairs.map(|pair| at(&pair[1]).duration_since(at(&pair[0])).as_millis()).collect()
}

/// Up to the end, with three retries on the way.
fn three_retries_and(end: &str) -> Vec<&str> {
    let retry = ["RUNNING", "RETRYING", "QUEUED"];
    [&["CREATED", "QUEUED"], &retry[..], &retry, &retry, &["RUNNING", end]].concat()
}

/// Three time-outs, each followed by a wait of a second, then a success; by a real worker, in real time.
#[test]
fn three_timeouts_and_a_success() {
    for db in BOTH {
        let house = House::open(db);
        let id = house.submitted("a", b"a document");
        let worker = worker(&house, "3");
        let story = house.until(&id, &["SUCCEEDED", "FAILED"]);
        end(worker);
        assert_eq!(story, three_retries_and("SUCCEEDED"));
        let job = house.job(&id);
        assert_eq!((&job["retryCount"], &job["lastError"], &job["errorType"]), (&json!(3), &json!(null), &json!(null)));
        assert_eq!(house.get(&house.alice, &format!("/document/jobs/{id}/result")).text(), "run 4 times");
        let waits = waits(&house, &id);
        assert!(waits.len() == 3 && waits.iter().all(|wait| WAIT.contains(wait)), "{db:?}: {waits:?} ms");
    }
}

/// A time-out each time: the fourth is the last, and the worker is given no fifth try, though it goes on and does others' jobs.
#[test]
fn the_fourth_timeout_is_the_last() {
    for db in BOTH {
        let house = House::open(db);
        let id = house.submitted("a", b"a document");
        let worker = worker(&house, "4");
        let story = house.until(&id, &["SUCCEEDED", "FAILED"]);
        assert_eq!(story, three_retries_and("FAILED"));
        let waits = waits(&house, &id);
        assert!(waits.len() == 3 && waits.iter().all(|wait| WAIT.contains(wait)), "{db:?}: {waits:?} ms");
        let after = house.submitted("b", b"another document");
        house.until(&after, &["SUCCEEDED"]);
        end(worker);
        let told = house.get(&house.alice, &format!("/document/jobs/{after}/result")).text();
        assert_eq!(told, "run 5 times", "four for the first, one for the other");
        let job = house.job(&id);
        assert_eq!((&job["state"], &job["retryCount"]), (&json!("FAILED"), &json!(3)));
        assert_eq!((&job["errorType"], &job["lastError"]), (&json!("RETRYABLE"), &json!("too slow, try 4")));
        let tries = house.get(&house.operator, &format!("/v1/records/{id}/executions")).json();
        assert_eq!(tries["executions"].as_array().map(Vec::len), Some(4), "{tries}");
    }
}
