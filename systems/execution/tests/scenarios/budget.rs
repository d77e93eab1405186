//! EXE-10, EXE-11 and the job's side of EXE-7: how a job comes back, and how it ends without an effect.

use onceward_core::time::Duration;
use onceward_testkit::{Stage, user};
use serde_json::json;

use super::{job, job_with_budget, stage};

/// The wait is this long, plus less than a second of spread.
#[track_caller]
fn waits_about(stage: &Stage, id: onceward_core::value::RecordId, seconds: i64) {
    let wait = stage.until(id, "readyAt");
    let (least, most) = (Duration::from_secs(seconds), Duration::from_secs(seconds + 1));
    assert!(least <= wait && wait < most, "waits {wait}, not {least} and a bit");
}

/// EXE-10: what has succeeded or failed stays so, whoever asks for what.
#[test]
fn final_is_final() {
    let mut stage = stage();
    let (won, lost) = (job(&mut stage), job(&mut stage));
    let (winner, loser) = (stage.lease(won, "w1"), stage.lease(lost, "w1"));
    stage.commit(&winner, json!(null)).ok();
    stage.fail(&loser, "BROKEN").ok();
    let ended = Some(stage.now());
    for (id, state, lease) in [(won, "SUCCEEDED", &winner), (lost, "FAILED", &loser)] {
        assert_eq!(stage.state(id), state);
        assert_eq!(stage.record(id).finished_at, ended);
        stage.try_lease(id, "w2").not_leasable();
        stage.lost(lease).repeated();
        stage.heartbeat(lease).outcome().refusal();
        stage.pass("1h");
        assert_eq!(stage.state(id), state);
        assert_eq!(stage.record(id).attempt, 1);
    }
}

/// EXE-11: an error classed terminal ends the job at once, whatever budget is left. Silence means terminal.
#[test]
fn a_terminal_error_ends_the_job() {
    for word in [Some(false), None] {
        let mut stage = stage();
        let id = job_with_budget(&mut stage, 100);
        let lease = stage.lease(id, "w1");
        let attempt = stage.fail(&lease, "BROKEN").message("no such font");
        match word {
            Some(word) => attempt.retryable(word).ok(),
            None => attempt.ok(),
        };
        assert_eq!(stage.state(id), "FAILED");
        assert_eq!(stage.field(id, "lastError"), "no such font");
        assert_eq!(stage.field(id, "failures"), 1);
    }
}

/// EXE-11: a budget of N is spent by the Nth failed attempt, at exactly 1, 2 and N.
#[test]
fn the_budget_is_the_number_of_failures_it_may_have() {
    for budget in [1, 2, 5] {
        let mut stage = stage();
        let id = job_with_budget(&mut stage, budget);
        for failure in 1..=budget {
            stage.pass("1h");
            let lease = stage.lease(id, "w1");
            stage.fail(&lease, "HICCUP").retryable(true).ok();
            let then = if failure < budget { "PENDING" } else { "FAILED" };
            assert_eq!(stage.state(id), then, "after failure {failure} of {budget}");
            assert_eq!(stage.field(id, "failures"), failure);
        }
    }
}

/// EXE-11: a job that kills each worker that takes it spends its budget on lost leases and ends, not in a loop.
#[test]
fn a_poison_pill_ends_failed() {
    let mut stage = stage();
    let id = job(&mut stage);
    for death in 1..=5 {
        stage.lease(id, &format!("victim-{death}"));
        stage.pass("30s");
        assert_eq!(stage.state(id), if death < 5 { "PENDING" } else { "FAILED" }, "after death {death}");
        stage.pass("10m");
    }
    assert_eq!(stage.record(id).attempt, 5);
    assert_eq!(stage.executions(id).len(), 5);
}

/// EXE-11, EXE-7: after each failure the job waits twice as long, from a second up, and spread by less than another.
#[test]
fn retries_wait_longer_each_time() {
    let mut stage = stage();
    let id = job_with_budget(&mut stage, 100);
    for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        let lease = stage.lease(id, "w1");
        stage.fail(&lease, "HICCUP").retryable(true).ok();
        waits_about(&stage, id, seconds);
        let wait = stage.until(id, "readyAt");
        stage.pass_for(Duration::from_micros(wait.micros() - 1));
        stage.try_lease(id, "w1").not_leasable();
        stage.pass_for(Duration::from_micros(1));
    }
}

/// EXE-7: jobs that fail together come back apart.
#[test]
fn retries_are_spread() {
    let mut stage = stage();
    let waits: std::collections::BTreeSet<Duration> = (0..20)
        .map(|_| {
            let id = job(&mut stage);
            let lease = stage.lease(id, "w1");
            stage.fail(&lease, "HICCUP").retryable(true).ok();
            stage.until(id, "readyAt")
        })
        .collect();
    assert!(waits.len() > 15, "twenty jobs came back at only {} times", waits.len());
}

/// EXE-7: a worker that knows how long to wait is heard where that is longer.
#[test]
fn a_longer_wait_is_honoured() {
    for (asked, seconds) in [("10s", 10), ("500ms", 1)] {
        let mut stage = stage();
        let id = job(&mut stage);
        let lease = stage.lease(id, "w1");
        stage.fail(&lease, "BUSY").retryable(true).retry_after(asked).ok();
        waits_about(&stage, id, seconds);
    }
}

/// EXE-7: a yield is nobody's failure: it costs no budget, and the job is back within a second.
#[test]
fn a_yield_costs_nothing() {
    let mut stage = stage();
    let id = job_with_budget(&mut stage, 1);
    for _ in 0..10 {
        let lease = stage.lease(id, "w1");
        stage.give_back(&lease).ok();
        assert_eq!(stage.state(id), "PENDING");
        assert_eq!(stage.field(id, "failures"), 0);
        waits_about(&stage, id, 0);
        stage.pass("1s");
    }
    assert_eq!(stage.field(id, "yields"), 10);
}

/// EXE-7, EXE-11: but not for ever: from the hundred and first on, a yield counts like a failure.
#[test]
fn a_job_that_is_always_given_back_ends() {
    let mut stage = stage();
    let id = job_with_budget(&mut stage, 2);
    for turn in 1..=102 {
        let lease = stage.lease(id, "w1");
        stage.give_back(&lease).ok();
        let then = if turn < 102 { "PENDING" } else { "FAILED" };
        assert_eq!(stage.state(id), then, "after yield {turn}");
        stage.pass("1m");
    }
    assert_eq!(stage.field(id, "yields"), 100);
    assert_eq!(stage.field(id, "failures"), 2);
}

/// EXE-11: a worker's message is kept, cut where it is too long, and gone when the job succeeds after all.
#[test]
fn the_last_error_is_told_until_it_no_longer_matters() {
    let mut stage = stage();
    let id = job(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.fail(&lease, "HICCUP").retryable(true).message(&"é".repeat(1_001)).ok();
    assert_eq!(stage.field(id, "lastError"), "é".repeat(1_000));
    stage.pass("2s");
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, json!(null)).ok();
    assert_eq!(stage.field(id, "lastError"), json!(null));
}

/// EXE-11: nobody ends a job by hand: it has no events but its workers'.
#[test]
fn a_job_moves_only_by_its_executions() {
    let mut stage = stage();
    let id = job(&mut stage);
    for event in ["cancel", "fail_now", "succeed"] {
        stage.fire(id, event, &user("alice")).refused(404, "no_such_event");
    }
}
