//! A lease is shorter than the work, so two workers finish the same job. Runs on each store with a manual clock.

use onceward_core::record::ExecutionStatus;
use onceward_store::Store as _;

use crate::support::lab_engine::{LabEngine, on_each_store};
use crate::support::store_checks::{count_effects, shop_balance, verify_against_log};

const LEASE_AND_WORK_SECS: [(i64, i64); 3] = [(1, 2), (1, 3), (2, 3)];

/// A's lease expires, B leases the job and sends heartbeats, and both commit. Returns both replies.
async fn commit_from_both(
    lab: &LabEngine,
    from: i64,
    (lease, work): (i64, i64),
) -> (onceward_core::value::RecordId, [String; 2]) {
    lab.set_clock(from);
    let id = lab.create_charge().await;
    let first = lab.lease("A", "lab.charge", lease).await.expect("job is ready");
    lab.set_clock(from + lease);
    assert_eq!(lab.state(id).await, "waiting");
    let second = lab.lease("B", "lab.charge", 30).await.expect("expired job is ready again");
    assert_eq!((second.record.id, second.token.0), (id, 2));
    assert_eq!(lab.heartbeat("B", &second).await, "ok");
    lab.set_clock(from + work);
    let reply_a = lab.commit("A", &first, "A").await;
    lab.set_clock(from + lease + work);
    let reply_b = lab.commit("B", &second, "B").await;
    // A repeated commit of the loser returns that the job is committed.
    assert_eq!(lab.commit("B", &second, "B").await, "ok");
    if reply_a != "ok" {
        assert_eq!(lab.commit("A", &first, "A").await, "already_committed");
    }
    (id, [reply_a, reply_b])
}

/// Without the fence, the boundary and the store's unique row, both effects are stored, and the customer pays twice.
#[test]
#[ignore = "shows the damage without a safeguard; `cargo xtask lab` runs it"]
fn damage_expired_and_current_lease_both_commit() {
    on_each_store(async |lab| {
        let mut coins = 0;
        for (number, pair) in (0..).zip(LEASE_AND_WORK_SECS) {
            lab.set_clock(number * 100);
            let id = lab.create_charge().await;
            let first = lab.lease("A", "lab.charge", pair.0).await.expect("job is ready");
            lab.set_clock(number * 100 + pair.0);
            assert_eq!(lab.state(id).await, "waiting");
            let second = lab.lease("B", "lab.charge", 30).await.expect("expired job is ready again");
            lab.set_clock(number * 100 + pair.1);
            assert_eq!(lab.commit("A", &first, "A").await, "ok");
            lab.set_clock(number * 100 + pair.0 + pair.1);
            assert_eq!(lab.commit("B", &second, "B").await, "ok");
            coins += 2;
            assert_eq!(count_effects(lab.store(), id).await, 2, "{pair:?}");
            assert_eq!(shop_balance(lab.store()).await, coins, "{pair:?}");
        }
        let torn = verify_against_log(lab.store()).await.expect_err("verification finds the damage");
        assert!(torn.contains("adds a second effect to a job"), "{torn}");
    });
    println!("lab: 2 effects, 2 coins for (1,2) (1,3) (2,3) s");
}

/// Removing only the checks in code does no damage: the store has a single row for a job's effect.
#[test]
#[ignore = "shows the damage without a safeguard; `cargo xtask lab` runs it"]
fn damage_store_rejects_second_effect() {
    on_each_store(async |lab| {
        let id = lab.create_charge().await;
        let first = lab.lease("A", "lab.charge", 1).await.expect("job is ready");
        lab.set_clock(1);
        assert_eq!(lab.state(id).await, "waiting");
        let second = lab.lease("B", "lab.charge", 30).await.expect("expired job is ready again");
        lab.set_clock(2);
        assert_eq!(lab.commit("A", &first, "A").await, "ok", "the fence is removed");
        let reply = lab.commit("B", &second, "B").await;
        assert!(reply != "ok" && reply != "already_committed", "the store's refusal: {reply}");
        assert_eq!((count_effects(lab.store(), id).await, shop_balance(lab.store()).await), (1, 1));
    });
    println!("lab: without the other safeguards the store rejects the second effect");
}

/// FM-1, INV-1: the loser is refused whether it commits first or last.
#[test]
fn prevented_expired_lease_commit_is_refused() {
    on_each_store(async |lab| {
        for (number, pair) in (0..).zip(LEASE_AND_WORK_SECS) {
            let (id, told) = commit_from_both(lab, number * 100, pair).await;
            assert_eq!(told, ["lease_lost", "ok"], "{pair:?}");
            assert_eq!(count_effects(lab.store(), id).await, 1, "{pair:?}");
            assert_eq!(shop_balance(lab.store()).await, number + 1, "{pair:?}");
        }
        verify_against_log(lab.store()).await.expect("store matches its log");
    });
    println!("lab: 1 effect, 1 coin; the losing worker gets lease_lost, then already_committed");
}

/// FM-1, INV-4: the job is not leased again.
#[test]
fn recovered_committed_job_is_finished_at_lease_end() {
    on_each_store(async |lab| {
        let id = lab.create_charge().await;
        let held = lab.lease("A", "lab.charge", 1).await.expect("job is ready");
        assert_eq!(lab.commit("A", &held, "A").await, "ok");
        assert_eq!(lab.state(id).await, "running", "committed, not finished");
        lab.set_clock(1);
        assert_eq!(lab.state(id).await, "charged");
        let executions = lab.store().executions(id).await.expect("reading");
        assert_eq!(executions.iter().map(|one| one.status).collect::<Vec<_>>(), [ExecutionStatus::Done]);
        assert!(lab.lease("B", "lab.charge", 30).await.is_none());
        assert_eq!((count_effects(lab.store(), id).await, shop_balance(lab.store()).await), (1, 1));
        verify_against_log(lab.store()).await.expect("store matches its log");
    });
    println!("lab: the committed job is finished, 1 effect");
}

/// Without the safeguard, the engine treats a lease that expired after the commit as lost, and the job never finishes.
#[test]
#[ignore = "shows the damage without a safeguard; `cargo xtask lab` runs it"]
fn damage_committed_job_stays_unfinished() {
    on_each_store(async |lab| {
        let id = lab.create_charge().await;
        let held = lab.lease("A", "lab.charge", 1).await.expect("job is ready");
        assert_eq!(lab.commit("A", &held, "A").await, "ok");
        lab.set_clock(1);
        assert_eq!(lab.state(id).await, "running");
        let record = lab.store().record(id).await.expect("reading").expect("record exists");
        assert!(record.stuck_reason.is_some() && record.committed_token.is_some(), "stuck after its commit");
    });
    println!("lab: without reconcile, a job stays unfinished after a crash behind its commit");
}
