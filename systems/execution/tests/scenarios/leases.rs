//! EXE-5 to EXE-9: states of an execution, leases and fencing tokens.

use onceward_core::decide::{Call, Decision};
use onceward_core::record::ExecutionStatus::{Aborted, Committed, Done, InProgress, Leased};
use onceward_core::record::FencingToken;
use onceward_core::time::Duration;
use onceward_testkit::{SimulatedLease, user, worker};
use serde_json::json;

use super::{create_job, new_simulator};

const ONE_MICROSECOND: Duration = Duration::from_micros(1);

/// EXE-5
#[test]
fn leased_job_is_not_leasable_until_lease_ends() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let lease = stage.lease(id, "w1");
    assert_eq!(stage.state(id), "RUNNING");
    stage.try_lease(id, "w2").expect_not_leasable();
    stage.advance_by(Duration::from_micros(30_000_000 - 1));
    assert_eq!(stage.status(&lease), Leased);
    stage.try_lease(id, "w2").expect_not_leasable();
    stage.advance_by(ONE_MICROSECOND);
    assert_eq!(stage.status(&lease), Aborted);
    assert_eq!(stage.state(id), "PENDING");
}

/// EXE-5: a heartbeat grants a full lease from now and does not change the version.
#[test]
fn heartbeat_extends_lease_without_log_entry() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let lease = stage.lease(id, "w1");
    let version = stage.record(id).version;
    for _ in 0..10 {
        stage.advance("29s");
        let changes = stage.heartbeat(&lease).expect_changes();
        assert!(changes.records.is_empty());
        assert!(!changes.stop_requested);
    }
    assert_eq!(stage.record(id).version, version);
    assert_eq!(stage.execution(&lease).expires_at.duration_since(stage.now()), Some(Duration::from_secs(30)));
    stage.advance("30s");
    assert_eq!(stage.status(&lease), Aborted);
}

/// EXE-5
#[test]
fn heartbeat_at_lease_end_returns_lease_lost() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.advance_without_engine("30s");
    stage.heartbeat(&lease).expect_lease_lost();
    assert_eq!(stage.status(&lease), Aborted);
}

/// EXE-6: the execution passes through LEASED, `IN_PROGRESS`, COMMITTED and DONE, and the job follows.
#[test]
fn execution_goes_from_leased_to_done() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let lease = stage.lease(id, "w1");
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (Leased, "RUNNING"));
    stage.start(&lease).expect_ok();
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (InProgress, "RUNNING"));
    stage.commit_only(&lease, json!({ "width": 10 })).expect_ok();
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (Committed, "RUNNING"));
    stage.finish(&lease).expect_ok();
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (Done, "SUCCEEDED"));
}

/// EXE-6
#[test]
fn finish_before_commit_is_refused() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let lease = stage.lease(id, "w1");
    for _ in 0..2 {
        let refusal = stage.finish(&lease).run().expect_refusal();
        assert_eq!(refusal.status, 409, "{}", refusal.reason);
        stage.start(&lease).run();
    }
    assert_eq!((stage.status(&lease), stage.state(id).as_str()), (InProgress, "RUNNING"));
}

/// EXE-6
#[test]
fn report_on_leased_execution_implies_start() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.advance("3s");
    stage.commit(&lease, json!(null)).expect_ok();
    let execution = stage.execution(&lease);
    assert_eq!(execution.status, Done);
    assert_eq!(execution.started_at, Some(stage.now()));
}

/// EXE-7: applies to LEASED and `IN_PROGRESS` executions.
#[test]
fn lost_failed_or_yielded_execution_is_aborted() {
    type EndExecution = fn(&mut onceward_testkit::Simulator, &SimulatedLease);
    let endings: [(&str, EndExecution); 4] = [
        ("lost", |stage, _| stage.advance("30s")),
        ("HICCUP", |stage, lease| {
            stage.fail(lease, "HICCUP").retryable(true).expect_ok();
        }),
        ("yielded", |stage, lease| {
            stage.yield_job(lease).expect_ok();
        }),
        ("lost", |stage, lease| {
            stage.lose_lease(lease).expect_ok();
        }),
    ];
    for (code, ending) in endings {
        for is_started in [false, true] {
            let mut stage = new_simulator();
            let id = create_job(&mut stage);
            let lease = stage.lease(id, "w1");
            if is_started {
                stage.start(&lease).expect_ok();
            }
            ending(&mut stage, &lease);
            let execution = stage.execution(&lease);
            assert_eq!(execution.status, Aborted, "{code}, started: {is_started}");
            assert_eq!(
                execution.aborted.map(|abort| abort.code.to_string()).as_deref(),
                Some(code),
                "started: {is_started}"
            );
            assert_eq!(execution.finished_at, Some(stage.now()));
            assert_eq!(stage.state(id), "PENDING", "{code}, started: {is_started}");
            assert!(stage.effects(id).is_empty());
        }
    }
}

/// EXE-8: tokens grow with every lease and are never reused, even if a worker returns under its old name.
#[test]
fn new_lease_invalidates_older_token() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let old = stage.lease(id, "w1");
    stage.yield_job(&old).expect_ok();
    stage.advance("2s");
    let new = stage.lease(id, "w1");
    assert!(new.token > old.token);
    stage.heartbeat(&old).expect_lease_lost();
    stage.start(&old).expect_lease_lost();
    stage.commit(&old, json!(null)).expect_lease_lost();
    stage.fail(&old, "HICCUP").expect_lease_lost();
    assert_eq!(stage.status(&new), Leased, "the old token changed the new execution");
    stage.commit(&new, json!(null)).expect_ok();
}

/// EXE-8
#[test]
fn unknown_token_returns_lease_lost() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let lease = stage.lease(id, "w1");
    for token in [0, lease.token.0 + 1, u64::MAX] {
        let forged = SimulatedLease { token: FencingToken(token), ..lease.clone() };
        stage.heartbeat(&forged).expect_lease_lost();
        stage.start(&forged).expect_lease_lost();
        stage.commit(&forged, json!(null)).expect_lease_lost();
        stage.finish(&forged).expect_lease_lost();
        stage.fail(&forged, "HICCUP").expect_lease_lost();
        stage.yield_job(&forged).expect_lease_lost();
    }
    assert_eq!(stage.status(&lease), Leased);
}

/// EXE-8
#[test]
fn repeated_report_returns_first_answer() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let failed = stage.lease(id, "w1");
    stage.start(&failed).expect_ok();
    stage.start(&failed).expect_repeated();
    stage.fail(&failed, "HICCUP").retryable(true).expect_ok();
    stage.fail(&failed, "HICCUP").retryable(true).expect_repeated();
    assert_eq!(stage.field(id, "failures"), 1);

    stage.advance("1m");
    let yielded = stage.lease(id, "w1");
    stage.yield_job(&yielded).expect_ok();
    stage.yield_job(&yielded).expect_repeated();

    stage.advance("1m");
    let done = stage.lease(id, "w1");
    stage.commit_only(&done, json!({ "n": 1 })).expect_ok();
    stage.commit_only(&done, json!({ "n": 1 })).expect_repeated();
    stage.finish(&done).expect_ok();
    stage.finish(&done).expect_repeated();
    stage.commit(&done, json!({ "n": 1 })).expect_repeated();
    assert_eq!(stage.effects(id).len(), 1);
}

/// EXE-8: the answer names the winning effect if another worker committed.
#[test]
fn late_worker_gets_lease_lost_or_winning_effect() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let slow = stage.lease(id, "slow");
    stage.advance("30s");
    stage.commit(&slow, json!(null)).expect_lease_lost();
    stage.advance("2s");
    let quick = stage.lease(id, "quick");
    stage.commit(&slow, json!(null)).expect_lease_lost();
    stage.commit(&quick, json!(null)).expect_ok();
    stage.commit(&slow, json!(null)).expect_already_committed(&quick);
    stage.commit_only(&slow, json!(null)).expect_already_committed(&quick);
}

/// EXE-9: the refusal does not depend on the scheduler; a commit one microsecond earlier succeeds.
#[test]
fn commit_at_lease_end_returns_lease_lost() {
    for (micros_before_end, succeeds) in [(1, true), (0, false)] {
        let mut stage = new_simulator();
        let id = create_job(&mut stage);
        let lease = stage.lease(id, "w1");
        stage.advance_without_engine_by(Duration::from_micros(30_000_000 - micros_before_end));
        if succeeds {
            stage.commit(&lease, json!(null)).expect_ok();
            assert_eq!(stage.state(id), "SUCCEEDED");
        } else {
            stage.commit(&lease, json!(null)).expect_lease_lost();
            assert_eq!(stage.state(id), "PENDING");
            assert!(stage.effects(id).is_empty());
        }
    }
}

/// EXE-9, EXE-5: the engine's time never falls below the last time in the log.
#[test]
fn clock_step_back_does_not_release_lease() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    stage.advance("1h");
    let lease = stage.lease(id, "w1");
    stage.step_clock_back("1h");
    stage.try_lease(id, "w2").expect_not_leasable();
    assert!(stage.execution(&lease).expires_at > stage.now());
    stage.commit(&lease, json!(null)).expect_ok();
    assert!(stage.record(id).updated_at >= stage.execution(&lease).leased_at);
}

/// EXE-8
#[test]
fn contrary_report_after_fail_or_commit_is_refused() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let lease = stage.lease(id, "w1");
    stage.fail(&lease, "HICCUP").retryable(true).expect_ok();
    stage.commit(&lease, json!(null)).expect_lease_lost();
    assert_eq!(stage.state(id), "PENDING");

    stage.advance("1m");
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, json!(null)).expect_ok();
    let late = stage.fail(&lease, "HICCUP").retryable(true).run();
    assert!(matches!(late.decision, Decision::Refusal(_)), "a failure after the commit");
    assert_eq!(stage.state(id), "SUCCEEDED");
}

/// EXE-8, INV-9: the token is the attempt's number and therefore not a secret. The engine refuses it from the job's
/// owner; to a stranger the job does not exist.
#[test]
fn token_of_non_worker_is_refused() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let lease = stage.lease(id, "w1");
    let owner = SimulatedLease { worker: user("alice"), ..lease.clone() };
    let thief = SimulatedLease { worker: user("mallory"), ..lease.clone() };
    stage.fail(&owner, "HICCUP").expect_not_allowed();
    stage.yield_job(&owner).expect_not_allowed();
    stage.heartbeat(&owner).expect_not_allowed();
    stage.commit(&owner, json!(null)).expect_not_allowed();
    stage.fail(&thief, "HICCUP").expect_not_found();
    stage.heartbeat(&thief).expect_not_found();
    stage.commit(&thief, json!(null)).expect_not_found();
    stage.fire(id, "anything", &thief.worker).token(lease.token).expect_not_found();
    assert_eq!(stage.status(&lease), Leased);
}

/// EXE-5, INV-9
#[test]
fn lease_requires_worker_role() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let call = || Call::Lease { record: id, worker: "w1".into(), lease: None, start: false };
    stage.call(&user("alice"), call()).expect_not_allowed();
    stage.call(&user("mallory"), call()).expect_not_found();
    stage.call(&worker("w1"), call()).expect_ok();
}

/// EXE-8, INV-9: applies to every kind of report; the holder keeps its lease.
#[test]
fn token_of_other_worker_returns_lease_lost() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let lease = stage.lease(id, "w1");
    let stolen = SimulatedLease { worker: worker("w2"), ..lease.clone() };
    stage.start(&stolen).expect_lease_lost();
    stage.heartbeat(&stolen).expect_lease_lost();
    stage.fail(&stolen, "HICCUP").expect_lease_lost();
    stage.yield_job(&stolen).expect_lease_lost();
    stage.commit(&stolen, json!({})).expect_lease_lost();
    assert_eq!(stage.status(&lease), Leased);
    stage.commit_only(&lease, json!({})).expect_ok();
    stage.finish(&stolen).expect_lease_lost();
    stage.finish(&lease).expect_ok();
    assert_eq!(stage.state(id), "SUCCEEDED");
}
