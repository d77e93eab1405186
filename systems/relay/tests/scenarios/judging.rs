//! REL-12, REL-14, REL-21: a submission under judgement, and every way it can fail.

use onceward_core::time::Duration;
use serde_json::{Value, json};

use super::{alice, depositor, funded, judged, post, stage, submitted, verdict};

/// REL-12, REL-16: a score below the threshold fails, with the score, the steps and the reason; the job goes on.
#[test]
fn below_the_threshold_it_fails() {
    let mut stage = stage();
    let job = funded(&mut stage);
    let lease = judged(&mut stage, job, "bob");
    stage.commit(&lease, verdict(79)).ok();
    assert_eq!(stage.state(lease.record), "failed");
    assert_eq!(stage.field(lease.record, "reason"), "below_threshold");
    assert_eq!(stage.field(lease.record, "score"), 79);
    assert_eq!(stage.field(lease.record, "steps"), verdict(79)["steps"]);
    assert_eq!((stage.state(job).as_str(), stage.hold(job)), ("funded", super::PRICE));
    let again = judged(&mut stage, job, "bob");
    stage.commit(&again, verdict(80)).ok();
    assert_eq!(stage.state(job), "resolved");
}

/// REL-3, REL-16: the score decides, at the job's own threshold to the point.
#[test]
fn the_threshold_is_the_jobs() {
    for (threshold, score, state) in [
        (80, 80, "passed"),
        (80, 79, "failed"),
        (95, 94, "failed"),
        (95, 95, "passed"),
        (100, 100, "passed"),
        (1, 0, "failed"),
    ] {
        let mut stage = stage();
        let job = post(&mut stage).with("threshold", threshold).ok();
        super::pay(&mut stage, job);
        let lease = judged(&mut stage, job, "bob");
        stage.commit(&lease, verdict(score)).ok();
        assert_eq!(stage.state(lease.record), state, "{score} at {threshold}");
    }
}

/// REL-12, REL-16: a verdict has a score from 0 to 100 and its steps, or it is none, and the oracle may still give one.
#[test]
fn a_verdict_is_bounded() {
    let mut stage = stage();
    let job = funded(&mut stage);
    let lease = judged(&mut stage, job, "bob");
    for bad in [
        json!(null),
        json!({}),
        verdict(101),
        verdict(-1),
        json!({ "score": 99.5, "steps": [] }),
        json!({ "steps": [] }),
        json!({ "score": 100 }),
        json!({ "score": 100, "steps": "x".repeat(64 * 1024 - 1) }),
    ] {
        stage.commit(&lease, bad).bad_input();
    }
    assert_eq!(stage.state(lease.record), "judging");
    let longest = json!("x".repeat(64 * 1024 - 2));
    stage.commit(&lease, json!({ "score": 100, "steps": longest })).ok();
    assert_eq!(stage.field(lease.record, "steps"), longest);
}

/// REL-12, REL-15, REL-17: what the guard blocks and what the oracle cannot judge fail, each with its reason, and for good.
#[test]
fn guard_and_errors_fail_it() {
    for (code, reason) in [("guard_blocked", "guard_blocked"), ("timeout", "oracle_error"), ("500", "oracle_error")] {
        let mut stage = stage();
        let job = funded(&mut stage);
        let lease = judged(&mut stage, job, "bob");
        stage.fail(&lease, code).retryable(true).ok();
        assert_eq!(stage.state(lease.record), "failed");
        assert_eq!(stage.field(lease.record, "reason"), reason);
        assert_eq!(stage.field(lease.record, "score"), Value::Null);
        stage.try_lease(lease.record, "w2").not_leasable();
        assert_eq!(stage.state(job), "funded");
    }
}

/// REL-14, REL-12: a restart fails what was being judged, at once; so does an oracle that gives it back.
#[test]
fn a_restart_fails_what_was_judged() {
    let mut stage = stage();
    let job = funded(&mut stage);
    let lost = judged(&mut stage, job, "bob");
    let given_back = judged(&mut stage, job, "bob");
    let untouched = submitted(&mut stage, job, "bob");
    stage.lost(&lost).ok();
    stage.give_back(&given_back).ok();
    for lease in [&lost, &given_back] {
        assert_eq!(stage.state(lease.record), "failed");
        assert_eq!(stage.field(lease.record, "reason"), "restarted");
        stage.commit(lease, verdict(100)).lease_lost();
    }
    assert_eq!(stage.state(untouched), "judging", "what nobody was judging is judged later");
}

/// REL-14, REL-12: an oracle that falls silent loses its lease after a minute, and what it held fails as after a restart.
#[test]
fn a_silent_oracle_loses_it() {
    let mut stage = stage();
    let job = funded(&mut stage);
    let lease = judged(&mut stage, job, "bob");
    stage.pass("50s");
    stage.heartbeat(&lease).ok();
    stage.pass_for(Duration::from_micros(60_000_000 - 1));
    assert_eq!(stage.state(lease.record), "judging");
    stage.pass_for(Duration::from_micros(1));
    assert_eq!(stage.state(lease.record), "failed");
    assert_eq!(stage.field(lease.record, "reason"), "restarted");
}

/// REL-14: one oracle at a time.
#[test]
fn one_oracle_holds_it() {
    let mut stage = stage();
    let job = funded(&mut stage);
    let lease = judged(&mut stage, job, "bob");
    stage.try_lease(lease.record, "w2").not_leasable();
    assert_eq!(stage.state(lease.record), "judging");
}

/// REL-21, REL-12: with no oracle running a submission fails after an hour and says so; the job can then be cancelled.
#[test]
fn with_no_oracle_it_fails_in_the_end() {
    let mut stage = stage();
    let job = post(&mut stage).with("expiry", Value::Null).ok();
    super::pay(&mut stage, job);
    let submission = submitted(&mut stage, job, "bob");
    stage.pass_for(Duration::from_micros(3_600_000_000 - 1));
    assert_eq!(stage.state(submission), "judging");
    stage.fire(job, "cancel", &alice()).refused(409, "judging");
    stage.pass_for(Duration::from_micros(1));
    assert_eq!(stage.state(submission), "failed");
    assert_eq!(stage.field(submission, "reason"), "no_oracle");
    stage.fire(job, "cancel", &alice()).ok();
    assert_eq!(depositor(&stage), super::PRICE);
}

/// REL-21: nobody has to be awake for it: who asks to cancel after the hour finds it failed.
#[test]
fn with_no_oracle_and_no_engine_awake() {
    let mut stage = stage();
    let job = funded(&mut stage);
    let submission = submitted(&mut stage, job, "bob");
    stage.doze("1h");
    stage.fire(job, "cancel", &alice()).ok();
    assert_eq!(stage.field(submission, "reason"), "no_oracle");
    assert_eq!(stage.state(job), "cancelled");
}

/// REL-4, REL-12: a job that ran out before its submission did takes it along, even if the engine slept through both.
#[test]
fn a_sleeping_engine_changes_no_reason() {
    let mut stage = stage();
    let soon = stage.now().checked_add("30m".parse().expect("a duration")).expect("a time");
    let job = post(&mut stage).with("expiry", soon.to_string()).ok();
    super::pay(&mut stage, job);
    let submission = submitted(&mut stage, job, "bob");
    stage.doze("2h");
    stage.fire(job, "cancel", &alice()).refused(409, "wrong_state");
    assert_eq!((stage.state(job), stage.state(submission)), ("expired".into(), "failed".into()));
    assert_eq!(stage.field(submission, "reason"), "job_expired");
}

/// REL-21, REL-17, REL-12: an oracle that came at the last moment has its full time, and no oracle has more, however alive
/// it says it is.
#[test]
fn an_oracle_has_its_time_and_no_more() {
    let mut stage = stage();
    let job = funded(&mut stage);
    let submission = submitted(&mut stage, job, "bob");
    stage.pass_for(Duration::from_micros(3_600_000_000 - 1));
    let lease = stage.lease(submission, "w1");
    for _ in 0..3 {
        stage.pass("40s");
        stage.heartbeat(&lease).ok();
    }
    stage.pass_for(Duration::from_micros(30_000_000 - 1));
    assert_eq!(stage.state(submission), "judging");
    stage.pass_for(Duration::from_micros(1));
    assert_eq!(stage.state(submission), "failed");
    assert_eq!(stage.field(submission, "reason"), "oracle_error");
    stage.commit(&lease, verdict(100)).lease_lost();
}

/// REL-12: passed and failed are ends, whatever is tried.
#[test]
fn final_is_final() {
    let mut stage = stage();
    let job = funded(&mut stage);
    let failed = judged(&mut stage, job, "bob");
    stage.commit(&failed, verdict(1)).ok();
    let passed = judged(&mut stage, job, "bob");
    stage.commit(&passed, verdict(99)).ok();
    for (lease, state) in [(failed, "failed"), (passed, "passed")] {
        assert!(stage.record(lease.record).is_final(), "{state} is declared as an end");
        stage.try_lease(lease.record, "w2").not_leasable();
        stage.fail(&lease, "500").outcome().refusal();
        stage.fire(lease.record, "discard", &alice()).with("reason", "job_expired").wrong_state(state, "discard");
        stage.pass("2d");
        assert_eq!(stage.state(lease.record), state);
    }
}
