//! A lease that is shorter than the work: two workers finish the same job. On each store, by the hand of the clock.

use onceward_core::record::ExecutionStatus;
use onceward_store::Store as _;

use crate::stage::books::{charged, effects, whole};
use crate::stage::play::{Play, on_each};

/// Seconds of the lease and of the work.
const PAIRS: [(i64, i64); 3] = [(1, 2), (1, 3), (2, 3)];

/// A leases, its lease runs out, B leases and keeps its lease alive, both finish their work: what each is told.
async fn both_finish(
    play: &Play,
    from: i64,
    (lease, work): (i64, i64),
) -> (onceward_core::value::RecordId, [String; 2]) {
    play.at(from);
    let id = play.charge().await;
    let first = play.lease("A", "lab.charge", lease).await.expect("the job");
    play.at(from + lease);
    assert_eq!(play.state(id).await, "waiting");
    let second = play.lease("B", "lab.charge", lease).await.expect("the job again");
    assert_eq!((second.record.id, second.token.0), (id, 2));
    assert_eq!(play.heartbeat("B", &second).await, "ok");
    play.at(from + work);
    let told_a = play.commit("A", &first, "A").await;
    play.at(from + lease + work);
    let told_b = play.commit("B", &second, "B").await;
    // Asked again: the one that lost hears who won.
    assert_eq!(play.commit("B", &second, "B").await, "ok");
    if told_a != "ok" {
        assert_eq!(play.commit("A", &first, "A").await, "already_committed");
    }
    (id, [told_a, told_b])
}

/// Without the fence, the boundary and the store's own row: both effects land, and the customer pays twice.
#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_two_effects() {
    on_each(async |play| {
        let mut coins = 0;
        for (number, pair) in (0..).zip(PAIRS) {
            play.at(number * 100);
            let id = play.charge().await;
            let first = play.lease("A", "lab.charge", pair.0).await.expect("the job");
            play.at(number * 100 + pair.0);
            assert_eq!(play.state(id).await, "waiting");
            let second = play.lease("B", "lab.charge", 30).await.expect("the job again");
            play.at(number * 100 + pair.1);
            assert_eq!(play.commit("A", &first, "A").await, "ok");
            play.at(number * 100 + pair.0 + pair.1);
            assert_eq!(play.commit("B", &second, "B").await, "ok");
            coins += 2;
            assert_eq!(effects(play.store(), id).await, 2, "{pair:?}");
            assert_eq!(charged(play.store()).await, coins, "{pair:?}");
        }
        let torn = whole(play.store()).await.expect_err("this is found afterwards");
        assert!(torn.contains("a second effect of one job"), "{torn}");
    });
    println!("lab: 2 effects, 2 coins for (1,2) (1,3) (2,3) s");
}

/// Code that lets both through is not enough for damage: the store has one row for a job's effect.
#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_stops_at_the_store() {
    on_each(async |play| {
        let id = play.charge().await;
        let first = play.lease("A", "lab.charge", 1).await.expect("the job");
        play.at(1);
        assert_eq!(play.state(id).await, "waiting");
        let second = play.lease("B", "lab.charge", 30).await.expect("the job again");
        play.at(2);
        assert_eq!(play.commit("A", &first, "A").await, "ok", "the fence is out");
        let told = play.commit("B", &second, "B").await;
        assert!(told != "ok" && told != "already_committed", "the store's own word: {told}");
        assert_eq!((effects(play.store(), id).await, charged(play.store()).await), (1, 1));
    });
    println!("lab: without the code's guards the store's row refuses the second effect");
}

/// FM-1, INV-1: one effect, and the one that lost is told so, whenever it comes.
#[test]
fn prevented_one_effect() {
    on_each(async |play| {
        for (number, pair) in (0..).zip(PAIRS) {
            let (id, told) = both_finish(play, number * 100, pair).await;
            assert_eq!(told, ["lease_lost", "ok"], "{pair:?}");
            assert_eq!(effects(play.store(), id).await, 1, "{pair:?}");
            assert_eq!(charged(play.store()).await, number + 1, "{pair:?}");
        }
        whole(play.store()).await.expect("whole");
    });
    println!("lab: 1 effect, 1 coin; the loser: lease_lost, then already_committed");
}

/// FM-1, INV-4: nobody finishes after the commit. When the lease ends, the engine does, and nobody works on it again.
#[test]
fn recovered_to_done() {
    on_each(async |play| {
        let id = play.charge().await;
        let held = play.lease("A", "lab.charge", 1).await.expect("the job");
        assert_eq!(play.commit("A", &held, "A").await, "ok");
        assert_eq!(play.state(id).await, "running", "committed, not finished");
        play.at(1);
        assert_eq!(play.state(id).await, "charged");
        let executions = play.store().executions(id).await.expect("reading");
        assert_eq!(executions.iter().map(|one| one.status).collect::<Vec<_>>(), [ExecutionStatus::Done]);
        assert!(play.lease("B", "lab.charge", 30).await.is_none());
        assert_eq!((effects(play.store(), id).await, charged(play.store()).await), (1, 1));
        whole(play.store()).await.expect("whole");
    });
    println!("lab: COMMITTED is brought to DONE, 1 effect");
}

/// Where the engine takes a lease that ended after the commit for a lost one, the job is never done.
#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_never_done() {
    on_each(async |play| {
        let id = play.charge().await;
        let held = play.lease("A", "lab.charge", 1).await.expect("the job");
        assert_eq!(play.commit("A", &held, "A").await, "ok");
        play.at(1);
        assert_eq!(play.state(id).await, "running");
        let record = play.store().record(id).await.expect("reading").expect("it is there");
        assert!(record.stuck.is_some() && record.committed.is_some(), "set aside with its effect landed");
    });
    println!("lab: without reconciling a crash after COMMITTED leaves the job undone for ever");
}
