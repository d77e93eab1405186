//! Retries once in real time; on the virtual clock they are played in `systems/document/tests`. No rule is cited here: what waits for a
//! real clock proves none.

use onceward_testkit::served::Db;
use serde_json::json;

use crate::house::House;

/// Fails with a time-out as long as there are no three lines in the file, and then says how often it was run.
const SCRIPT: &str = r#"
cat >/dev/null
echo once >>"$1"
tries=$(wc -l <"$1")
[ "$tries" -gt 3 ] && { echo "run $tries times"; exit 0; }
echo "TIMEOUT: too slow, try $tries" >&2
exit 75
"#;

/// Three time-outs, each followed by a wait of a second, then a success; by a real worker, in real time.
#[test]
fn three_timeouts_and_a_success() {
    let house = House::open(Db::Sqlite);
    let tries = house.folder.join("tries");
    let id = house.submitted("a", b"a document");
    let mut worker =
        house.work(&[], &["sh", "-c", SCRIPT, "sh", &tries.to_string_lossy()]).spawn().expect("the binary runs");
    let story = house.until(&id, &["SUCCEEDED", "FAILED"]);
    worker.kill().expect("it runs");
    worker.wait().expect("it ends");
    let one_try = ["RUNNING", "RETRYING", "QUEUED"];
    let mut expected = vec!["CREATED", "QUEUED"];
    for _ in 0..3 {
        expected.extend(one_try);
    }
    expected.extend(["RUNNING", "SUCCEEDED"]);
    assert_eq!(story, expected);
    let job = house.job(&id);
    assert_eq!((&job["retryCount"], &job["lastError"], &job["errorType"]), (&json!(3), &json!(null), &json!(null)));
    assert_eq!(house.get(&house.alice, &format!("/document/jobs/{id}/result")).text(), "run 4 times");
    // A second between failing and being queued again, by the log's own times.
    let history = house.get(&house.alice, &format!("/v1/records/{id}/history")).json();
    let entries = history["entries"].as_array().expect("its log");
    let at =
        |number: usize| entries[number]["at"].as_str().expect("a time").parse::<jiff::Timestamp>().expect("RFC 3339");
    let mut waits = 0;
    for (number, pair) in entries.windows(2).enumerate() {
        if pair[0]["state"] == "RETRYING" && pair[1]["state"] == "QUEUED" {
            let waited = at(number + 1).duration_since(at(number)).as_millis();
            assert!(waited >= 1_000, "it came back after {waited} ms");
            waits += 1;
        }
    }
    assert_eq!(waits, 3, "{history}");
}
