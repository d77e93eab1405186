//! EXE-5 to EXE-9: the execution machine, and who may move it.

use onceward_core::decide::{Call, Decision};
use onceward_core::record::ExecutionStatus::{Aborted, Committed, Done, InProgress, Leased};
use onceward_core::record::Token;
use onceward_core::time::Duration;
use onceward_testkit::{Lease, user, worker};
use serde_json::json;

use super::{job, stage};

const MICROSECOND: Duration = Duration::from_micros(1);

/// EXE-5: while one worker holds the job nobody else gets it, and it is gone the moment its lease ends.
#[test]
fn a_lease_keeps_others_out_until_it_ends() {
    let mut stage = stage();
    let id = job(&mut stage);
    let lease = stage.lease(id, "w1");
    assert_eq!(stage.state(id), "RUNNING");
    stage.try_lease(id, "w2").not_leasable();
    stage.pass_for(Duration::from_micros(30_000_000 - 1));
    assert_eq!(stage.status(&lease), Leased);
    stage.try_lease(id, "w2").not_leasable();
    stage.pass_for(MICROSECOND);
    assert_eq!(stage.status(&lease), Aborted);
    assert_eq!(stage.state(id), "PENDING");
}

/// EXE-5: a heartbeat gives the worker a whole lease from now, changes no version and writes no log.
#[test]
fn a_heartbeat_extends_the_lease() {
    let mut stage = stage();
    let id = job(&mut stage);
    let lease = stage.lease(id, "w1");
    let version = stage.record(id).version;
    for _ in 0..10 {
        stage.pass("29s");
        let beat = stage.heartbeat(&lease).changes();
        assert!(beat.records.is_empty());
        assert!(!beat.stop);
    }
    assert_eq!(stage.record(id).version, version);
    assert_eq!(stage.execution(&lease).expires_at.since(stage.now()), Some(Duration::from_secs(30)));
    stage.pass("30s");
    assert_eq!(stage.status(&lease), Aborted);
}

/// EXE-5: a heartbeat that comes as the lease ends is too late.
#[test]
fn a_late_heartbeat_revives_nothing() {
    let mut stage = stage();
    let id = job(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.doze("30s");
    stage.heartbeat(&lease).lease_lost();
    assert_eq!(stage.status(&lease), Aborted);
}

/// EXE-6: LEASED, `IN_PROGRESS`, COMMITTED, DONE: one after the other, and the job follows.
#[test]
fn an_execution_goes_through_its_four_steps() {
    let mut stage = stage();
    let id = job(&mut stage);
    let lease = stage.lease(id, "w1");
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (Leased, "RUNNING"));
    stage.start(&lease).ok();
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (InProgress, "RUNNING"));
    stage.commit_only(&lease, json!({ "width": 10 })).ok();
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (Committed, "RUNNING"));
    stage.finish(&lease).ok();
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (Done, "SUCCEEDED"));
}

/// EXE-6: finishing before the commit is out of order, and nothing comes of it.
#[test]
fn nothing_finishes_before_it_commits() {
    let mut stage = stage();
    let id = job(&mut stage);
    let lease = stage.lease(id, "w1");
    for _ in 0..2 {
        let refusal = stage.finish(&lease).outcome().refusal();
        assert_eq!(refusal.status, 409, "{}", refusal.reason);
        stage.start(&lease).outcome();
    }
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (InProgress, "RUNNING"));
}

/// EXE-6: a report on a job that was never started implies the start.
#[test]
fn a_report_implies_the_start() {
    let mut stage = stage();
    let id = job(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.pass("3s");
    stage.commit(&lease, json!(null)).ok();
    let execution = stage.execution(&lease);
    assert_eq!(execution.status, Done);
    assert_eq!(execution.started_at, Some(stage.now()));
}

/// EXE-7: LEASED and `IN_PROGRESS` both end ABORTED: by the lease's end, by a failure, by a yield, by a worker known dead.
#[test]
fn every_way_to_fail_aborts_the_execution() {
    type Way = fn(&mut onceward_testkit::Stage, &Lease);
    let ways: [(&str, Way); 4] = [
        ("lost", |stage, _| stage.pass("30s")),
        ("HICCUP", |stage, lease| {
            stage.fail(lease, "HICCUP").retryable(true).ok();
        }),
        ("yielded", |stage, lease| {
            stage.give_back(lease).ok();
        }),
        ("lost", |stage, lease| {
            stage.lost(lease).ok();
        }),
    ];
    for (code, way) in ways {
        for started in [false, true] {
            let mut stage = stage();
            let id = job(&mut stage);
            let lease = stage.lease(id, "w1");
            if started {
                stage.start(&lease).ok();
            }
            way(&mut stage, &lease);
            let execution = stage.execution(&lease);
            assert_eq!(execution.status, Aborted, "{code}, started: {started}");
            assert_eq!(
                execution.aborted.map(|abort| abort.code.to_string()).as_deref(),
                Some(code),
                "started: {started}"
            );
            assert_eq!(execution.finished_at, Some(stage.now()));
            assert_eq!(stage.state(id), "PENDING", "{code}, started: {started}");
            assert!(stage.effects(id).is_empty());
        }
    }
}

/// EXE-8: tokens grow with every lease of the job and are never used again, also for a worker that comes back by its old
/// name.
#[test]
fn tokens_grow_and_are_never_reused() {
    let mut stage = stage();
    let id = job(&mut stage);
    let old = stage.lease(id, "w1");
    stage.give_back(&old).ok();
    stage.pass("2s");
    let new = stage.lease(id, "w1");
    assert!(new.token > old.token);
    stage.heartbeat(&old).lease_lost();
    stage.start(&old).lease_lost();
    stage.commit(&old, json!(null)).lease_lost();
    stage.fail(&old, "HICCUP").lease_lost();
    assert_eq!(stage.status(&new), Leased, "the old token moved the new execution");
    stage.commit(&new, json!(null)).ok();
}

/// EXE-8: a token from nowhere is no better than an old one.
#[test]
fn a_made_up_token_moves_nothing() {
    let mut stage = stage();
    let id = job(&mut stage);
    let lease = stage.lease(id, "w1");
    for token in [0, lease.token.0 + 1, u64::MAX] {
        let forged = Lease { token: Token(token), ..lease.clone() };
        stage.heartbeat(&forged).lease_lost();
        stage.start(&forged).lease_lost();
        stage.commit(&forged, json!(null)).lease_lost();
        stage.finish(&forged).lease_lost();
        stage.fail(&forged, "HICCUP").lease_lost();
        stage.give_back(&forged).lease_lost();
    }
    assert_eq!(stage.status(&lease), Leased);
}

/// EXE-8: whoever says the same thing twice hears the same answer twice, and nothing happens twice.
#[test]
fn a_repeated_call_gets_the_first_answer() {
    let mut stage = stage();
    let id = job(&mut stage);
    let failed = stage.lease(id, "w1");
    stage.start(&failed).ok();
    stage.start(&failed).repeated();
    stage.fail(&failed, "HICCUP").retryable(true).ok();
    stage.fail(&failed, "HICCUP").retryable(true).repeated();
    assert_eq!(stage.field(id, "failures"), 1);

    stage.pass("1m");
    let yielded = stage.lease(id, "w1");
    stage.give_back(&yielded).ok();
    stage.give_back(&yielded).repeated();

    stage.pass("1m");
    let done = stage.lease(id, "w1");
    stage.commit_only(&done, json!({ "n": 1 })).ok();
    stage.commit_only(&done, json!({ "n": 1 })).repeated();
    stage.finish(&done).ok();
    stage.finish(&done).repeated();
    stage.commit(&done, json!({ "n": 1 })).repeated();
    assert_eq!(stage.effects(id).len(), 1);
}

/// EXE-8: a worker that lost its lease and comes back late is told so; one that lost to a commit is told whose effect won.
#[test]
fn the_late_are_told_why() {
    let mut stage = stage();
    let id = job(&mut stage);
    let slow = stage.lease(id, "slow");
    stage.pass("30s");
    stage.commit(&slow, json!(null)).lease_lost();
    stage.pass("2s");
    let quick = stage.lease(id, "quick");
    stage.commit(&slow, json!(null)).lease_lost();
    stage.commit(&quick, json!(null)).ok();
    stage.commit(&slow, json!(null)).already_committed(&quick);
    stage.commit_only(&slow, json!(null)).already_committed(&quick);
}

/// EXE-9: a commit that comes as the lease ends is refused although nobody has noticed yet; one microsecond before, it lands.
#[test]
fn a_commit_is_refused_from_the_moment_the_lease_ends() {
    for (early, lands) in [(1, true), (0, false)] {
        let mut stage = stage();
        let id = job(&mut stage);
        let lease = stage.lease(id, "w1");
        stage.doze_for(Duration::from_micros(30_000_000 - early));
        if lands {
            stage.commit(&lease, json!(null)).ok();
            assert_eq!(stage.state(id), "SUCCEEDED");
        } else {
            stage.commit(&lease, json!(null)).lease_lost();
            assert_eq!(stage.state(id), "PENDING");
            assert!(stage.effects(id).is_empty());
        }
    }
}

/// EXE-9, EXE-5: a clock that steps back gives no lease away and ends none: time never runs below what the log has seen.
#[test]
fn a_clock_that_steps_back_gives_nothing_twice() {
    let mut stage = stage();
    let id = job(&mut stage);
    stage.pass("1h");
    let lease = stage.lease(id, "w1");
    stage.step_back("1h");
    stage.try_lease(id, "w2").not_leasable();
    assert!(stage.execution(&lease).expires_at > stage.now());
    stage.commit(&lease, json!(null)).ok();
    assert!(stage.record(id).updated_at >= stage.execution(&lease).leased_at);
}

/// EXE-8: a commit after a fail of the same lease finds the lease gone; it does not undo the failure.
#[test]
fn a_worker_cannot_change_its_mind() {
    let mut stage = stage();
    let id = job(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.fail(&lease, "HICCUP").retryable(true).ok();
    stage.commit(&lease, json!(null)).lease_lost();
    assert_eq!(stage.state(id), "PENDING");

    stage.pass("1m");
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, json!(null)).ok();
    let late = stage.fail(&lease, "HICCUP").retryable(true).outcome();
    assert!(matches!(late.decision, Decision::Refusal(_)), "a failure after the commit");
    assert_eq!(stage.state(id), "SUCCEEDED");
}

/// EXE-8, INV-9: the token is no secret (it is the attempt's number), so it serves nobody but a worker: not the job's owner, and
/// to a stranger the job is not even there.
#[test]
fn a_token_serves_only_workers() {
    let mut stage = stage();
    let id = job(&mut stage);
    let lease = stage.lease(id, "w1");
    let owner = Lease { worker: user("alice"), ..lease.clone() };
    let thief = Lease { worker: user("mallory"), ..lease.clone() };
    stage.fail(&owner, "HICCUP").not_allowed();
    stage.give_back(&owner).not_allowed();
    stage.heartbeat(&owner).not_allowed();
    stage.commit(&owner, json!(null)).not_allowed();
    stage.fail(&thief, "HICCUP").not_found();
    stage.heartbeat(&thief).not_found();
    stage.commit(&thief, json!(null)).not_found();
    stage.fire(id, "anything", &thief.worker).token(lease.token).not_found();
    assert_eq!(stage.status(&lease), Leased);
}

/// EXE-5, INV-9: only a worker's key takes a lease.
#[test]
fn only_workers_lease() {
    let mut stage = stage();
    let id = job(&mut stage);
    let call = || Call::Lease { record: id, worker: "w1".into(), lease: None, start: false };
    stage.attempt(&user("alice"), call()).not_allowed();
    stage.attempt(&user("mallory"), call()).not_found();
    stage.attempt(&worker("w1"), call()).ok();
}

/// EXE-8, INV-9: a worker moves only the execution whose lease it holds: another worker's key with the right token is told
/// `lease_lost`, whatever it reports, and the holder goes on undisturbed.
#[test]
fn a_stolen_token_is_worth_nothing() {
    let mut stage = stage();
    let id = job(&mut stage);
    let lease = stage.lease(id, "w1");
    let stolen = Lease { worker: worker("w2"), ..lease.clone() };
    stage.start(&stolen).lease_lost();
    stage.heartbeat(&stolen).lease_lost();
    stage.fail(&stolen, "HICCUP").lease_lost();
    stage.give_back(&stolen).lease_lost();
    stage.commit(&stolen, json!({})).lease_lost();
    assert_eq!(stage.status(&lease), Leased);
    stage.commit_only(&lease, json!({})).ok();
    stage.finish(&stolen).lease_lost();
    stage.finish(&lease).ok();
    assert_eq!(stage.state(id), "SUCCEEDED");
}
