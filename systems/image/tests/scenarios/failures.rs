//! IMG-4, IMG-5, IMG-11, IMG-12: failures, backoff and the dead letter.

use onceward_core::time::Duration;
use onceward_testkit::Stage;
use serde_json::json;

use super::{credits, failed, image, order, queued, running, stage};
use onceward_core::value::RecordId;

/// It waits this many seconds and a jitter of less than one.
#[track_caller]
fn waits_about(stage: &Stage, id: RecordId, seconds: i64) {
    let wait = stage.until(id, "retryAt");
    let (least, most) = (Duration::from_secs(seconds), Duration::from_secs(seconds + 1));
    assert!(least <= wait && wait < most, "waits {wait}, not {least} and a jitter");
}

/// IMG-4: a server error fails it: the count grows, a time to come back is set, the credits stay reserved.
#[test]
fn a_server_error_is_waited_out() {
    let mut stage = stage();
    let lease = running(&mut stage);
    stage.fail(&lease, "503").message("overloaded").ok();
    assert_eq!(stage.state(lease.record), "failed");
    assert_eq!(stage.field(lease.record, "retryCount"), 1);
    assert_eq!(stage.field(lease.record, "lastError"), "overloaded");
    assert_eq!((credits(&stage, "alice"), stage.hold(lease.record)), (95, 5));
}

/// IMG-4: a lost lease and a yield are failures like a time-out.
#[test]
fn a_lost_lease_and_a_yield_are_failures() {
    let mut stage = stage();
    let lease = running(&mut stage);
    stage.pass_for(Duration::from_micros(60_000_000 - 1));
    assert_eq!(stage.state(lease.record), "running");
    stage.pass_for(Duration::from_micros(1));
    assert_eq!(stage.state(lease.record), "failed");
    assert_eq!(stage.field(lease.record, "retryCount"), 1);
    waits_about(&stage, lease.record, 2);
    stage.pass("3s");
    let lease = stage.lease(lease.record, "w2");
    stage.give_back(&lease).ok();
    assert_eq!(stage.field(lease.record, "retryCount"), 2);
    waits_about(&stage, lease.record, 4);
}

/// IMG-5: it is queued again when its backoff is over, to the microsecond.
#[test]
fn the_backoff_ends_on_time() {
    let mut stage = stage();
    let lease = failed(&mut stage, 1);
    let wait = stage.until(lease.record, "retryAt");
    stage.pass_for(Duration::from_micros(wait.micros() - 1));
    assert_eq!(stage.state(lease.record), "failed");
    stage.pass_for(Duration::from_micros(1));
    assert_eq!(stage.state(lease.record), "queued");
    let lease = stage.lease(lease.record, "w2");
    stage.commit(&lease, image(&lease)).ok();
    assert_eq!(stage.state(lease.record), "completed");
    assert_eq!(stage.field(lease.record, "lastError"), json!(null));
}

/// IMG-11: three retries, after 2, 4 and 8 seconds and a jitter; the fourth failure is the last, and counts.
#[test]
fn the_fourth_failure_is_the_last() {
    let mut stage = stage();
    let id = queued(&mut stage);
    for (failures, seconds) in [(1, 2), (2, 4), (3, 8)] {
        let lease = stage.lease(id, "w1");
        stage.fail(&lease, "500").ok();
        assert_eq!(stage.state(id), "failed");
        assert_eq!(stage.field(id, "retryCount"), failures);
        waits_about(&stage, id, seconds);
        stage.pass_for(stage.until(id, "retryAt"));
        assert_eq!(stage.state(id), "queued");
    }
    let lease = stage.lease(id, "w1");
    stage.fail(&lease, "500").ok();
    assert_eq!(stage.state(id), "dead_letter");
    assert_eq!(stage.field(id, "retryCount"), 4);
}

/// IMG-11: at its last chance it may still succeed.
#[test]
fn the_third_retry_may_succeed() {
    let mut stage = stage();
    let lease = failed(&mut stage, 3);
    stage.pass("10s");
    let lease = stage.lease(lease.record, "w1");
    stage.commit(&lease, image(&lease)).ok();
    assert_eq!(stage.state(lease.record), "completed");
    assert_eq!(stage.field(lease.record, "retryCount"), 3);
}

/// IMG-5, IMG-13: with no retries left it goes through `failed` to `dead_letter` in one operation, and the credits go back.
#[test]
fn no_retries_left_is_dead_at_once() {
    let mut stage = stage();
    let lease = failed(&mut stage, 3);
    stage.pass("10s");
    let lease = stage.lease(lease.record, "w1");
    let version = stage.record(lease.record).version;
    let changes = stage.fail(&lease, "504").changes();
    assert_eq!(changes.records.len(), 1);
    let rows: Vec<_> = changes.records[0].rows.iter().map(|(event, _)| event.to_string()).collect();
    assert_eq!(rows, ["fail", "enter"]);
    assert_eq!(stage.record(lease.record).version, version + 1);
    assert_eq!(stage.state(lease.record), "dead_letter");
    assert_eq!((credits(&stage, "alice"), stage.hold(lease.record)), (100, 0));
    assert_eq!(stage.due(lease.record), None);
}

/// IMG-11, IMG-5: a provider's Retry-After counts where it is longer, and not where it is shorter: up to an hour the job waits and is queued again.
#[test]
fn a_longer_retry_after_is_honoured() {
    for (asked, seconds) in [("20s", 20), ("2m", 120), ("1s", 2), ("2s", 2), ("1h", 3_600)] {
        let mut stage = stage();
        let lease = running(&mut stage);
        stage.fail(&lease, "429").retry_after(asked).ok();
        assert_eq!(stage.state(lease.record), "failed", "{asked}");
        waits_about(&stage, lease.record, seconds);
        stage.pass_for(stage.until(lease.record, "retryAt"));
        assert_eq!(stage.state(lease.record), "queued", "{asked}");
    }
}

/// IMG-11, IMG-5, IMG-13: a provider that wants to be left alone for longer than an hour is not waited for, nor asked before its time: the job
/// is a dead letter at once, and its owner has credits and place back.
#[test]
fn nobody_waits_longer_than_an_hour() {
    for asked in ["3601s", "7d", "365d"] {
        let mut stage = stage();
        let lease = running(&mut stage);
        stage.fail(&lease, "429").message("closed").retry_after(asked).ok();
        assert_eq!(stage.state(lease.record), "dead_letter", "{asked}");
        assert_eq!(stage.field(lease.record, "lastError"), "closed");
        assert_eq!(stage.field(lease.record, "retryCount"), 1);
        assert_eq!((credits(&stage, "alice"), stage.hold(lease.record), stage.due(lease.record)), (100, 0, None));
        order(&mut stage, "a dog").ok();
    }
}

/// IMG-11: jobs that fail together come back apart.
#[test]
fn the_jitter_spreads() {
    let mut stage = stage();
    let waits: std::collections::BTreeSet<Duration> = (0..20)
        .map(|number| {
            let name = format!("user-{number}");
            super::grant(&mut stage, &name, 5);
            let id = stage.create("image.job", &onceward_testkit::user(&name)).payload(b"a cat").ok();
            let lease = stage.lease(id, "w1");
            stage.fail(&lease, "500").ok();
            stage.until(id, "retryAt")
        })
        .collect();
    assert!(waits.len() > 15, "twenty jobs came back at only {} times", waits.len());
}

/// IMG-12, IMG-4: these pass with time, whatever the worker says of them.
#[test]
fn transient_errors_are_retried() {
    for code in ["429", "500", "502", "503", "504", "timeout"] {
        let mut stage = stage();
        let lease = running(&mut stage);
        stage.fail(&lease, code).retryable(false).ok();
        assert_eq!(stage.state(lease.record), "failed", "{code}");
    }
}

/// IMG-12, IMG-5, IMG-13: these do not: `dead_letter` at once, counted as one failure, credits returned.
#[test]
fn permanent_errors_are_dead_at_once() {
    for code in ["400", "401", "403"] {
        let mut stage = stage();
        let lease = running(&mut stage);
        stage.fail(&lease, code).retryable(true).ok();
        assert_eq!(stage.state(lease.record), "dead_letter", "{code}");
        assert_eq!(stage.field(lease.record, "retryCount"), 1, "{code}");
        assert_eq!(credits(&stage, "alice"), 100, "{code}");
    }
}

/// IMG-12: of a code that nobody listed the worker's word counts, and silence means no.
#[test]
fn an_unknown_code_is_what_the_worker_says() {
    for (word, state) in [(Some(true), "failed"), (Some(false), "dead_letter"), (None, "dead_letter")] {
        let mut stage = stage();
        let lease = running(&mut stage);
        let attempt = stage.fail(&lease, "418");
        match word {
            Some(word) => attempt.retryable(word).ok(),
            None => attempt.ok(),
        };
        assert_eq!(stage.state(lease.record), state);
    }
}

/// IMG-5: a dead letter makes room: its owner may order again at once.
#[test]
fn a_dead_letter_is_no_longer_active() {
    let mut stage = stage();
    super::dead(&mut stage);
    order(&mut stage, "a dog").ok();
}
