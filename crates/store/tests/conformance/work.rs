//! What waits for workers, and what is due.

use onceward_core::decide::Call;
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_store::{AnyStore, Glance, LeaseQuery, Store};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::stage::driver::{Driver, create, fire};
use crate::stage::{on_each, start, suite};

fn at(seconds: i64) -> Time {
    start().checked_add(Duration::from_secs(seconds)).expect("a time that can be written")
}

async fn leasable(store: &AnyStore, lifecycles: &[&str], now: Time, limit: usize) -> Vec<RecordId> {
    let lifecycles = lifecycles.iter().map(|name| (*name).into()).collect();
    let found = store.leasable(&LeaseQuery { lifecycles, now, limit }).await.unwrap();
    found.into_iter().map(|candidate| candidate.record).collect()
}

/// Priority, then age; a minute of waiting makes up for one of priority.
#[test]
fn in_order_of_priority_and_age() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let mut made = Vec::new();
        for (weight, second) in [(0, 0), (1, 50), (1, 70), (0, 5), (0, 5)] {
            made.push(driver.create(&ann, "suite.task", json!({ "weight": weight }), at(second)).await);
        }
        let expected = [made[1], made[0], made[3], made[4], made[2]];
        assert_eq!(leasable(store, &["suite.task"], at(100), 10).await, expected);
        assert_eq!(leasable(store, &["suite.task"], at(100), 2).await, expected[..2]);
        assert_eq!(leasable(store, &["suite.step"], at(100), 10).await, []);
        // A change of its priority moves it.
        driver.ok(&ann, fire(made[2], "move", json!({ "weight": 9 })), at(100)).await;
        assert_eq!(leasable(store, &["suite.task", "suite.step"], at(100), 10).await[0], made[2]);
    });
}

/// Not before its time, not while it is leased, again when it is given back, never when it is done.
#[test]
fn only_what_waits_now() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let fields = json!({ "readyAt": at(10).to_string(), "weight": 5 });
        let task = driver.create(&ann, "suite.task", fields, start()).await;
        assert_eq!(leasable(store, &["suite.task"], at(9), 10).await, []);
        assert_eq!(leasable(store, &["suite.task"], at(10), 10).await, [task]);
        let token = driver.lease(&bob, task, at(10)).await;
        assert_eq!(leasable(store, &["suite.task"], at(10), 10).await, []);
        driver.ok(&bob, Call::Yield { record: task, token }, at(11)).await;
        assert_eq!(leasable(store, &["suite.task"], at(11), 10).await, [task]);
        let token = driver.lease(&bob, task, at(12)).await;
        driver.ok(&bob, Call::Commit { record: task, token, result: json!(1), finish: true }, at(12)).await;
        assert_eq!(leasable(store, &["suite.task"], at(500), 10).await, []);
    });
}

/// Of a full key nobody, of the others as many as may run; a finished one makes room.
#[test]
fn at_most_so_many_of_a_key() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let mut lane = Vec::new();
        for _ in 0..5 {
            lane.push(driver.create(&ann, "suite.task", json!({ "lane": "a" }), start()).await);
        }
        let other = driver.create(&ann, "suite.task", json!({ "lane": "b" }), at(1)).await;
        let free = driver.create(&ann, "suite.task", json!({}), at(2)).await;
        let all = |of_lane: &[RecordId]| [of_lane, &[other, free]].concat();
        assert_eq!(leasable(store, &["suite.task"], at(5), 10).await, all(&lane[..2]));
        let token = driver.lease(&bob, lane[0], at(5)).await;
        assert_eq!(leasable(store, &["suite.task"], at(5), 10).await, all(&lane[1..2]));
        driver.lease(&bob, lane[1], at(5)).await;
        assert_eq!(leasable(store, &["suite.task"], at(5), 10).await, all(&[]));
        driver.ok(&bob, Call::Commit { record: lane[0], token, result: json!(1), finish: true }, at(6)).await;
        assert_eq!(leasable(store, &["suite.task"], at(6), 10).await, all(&lane[2..3]));
    });
}

/// A job whose time has not come keeps no room from one whose time has.
#[test]
fn a_later_job_of_a_key_does_not_stand_in_the_way() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let mut later = Vec::new();
        for number in 0..3 {
            let fields = json!({ "lane": "a", "weight": 9, "readyAt": at(100 + number).to_string() });
            later.push(driver.create(&ann, "suite.task", fields, start()).await);
        }
        let now = driver.create(&ann, "suite.task", json!({ "lane": "a" }), at(1)).await;
        assert_eq!(leasable(store, &["suite.task"], at(5), 10).await, [now]);
        assert_eq!(leasable(store, &["suite.task"], at(200), 10).await, later[..2]);
        // Nor where the clock was set back, to and fro.
        assert_eq!(leasable(store, &["suite.task"], at(5), 10).await, [now]);
        assert_eq!(leasable(store, &["suite.task"], at(100), 10).await, [later[0], now]);
        assert_eq!(leasable(store, &["suite.task"], at(200), 10).await, later[..2]);
    });
}

/// Jobs for a later time come when it has, in their order, as many as there are; one that was moved, given back or ended before it
/// came, comes as it should.
#[test]
fn many_reach_their_time_together() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let fields = |lane: Option<&str>, weight: i64, second: i64| json!({ "lane": lane, "weight": weight, "readyAt": at(second).to_string() });
        // More of a key, and of none, than are moved at once.
        for second in 0..2 {
            let mut open = driver.open(at(second));
            for number in 0..650 {
                let lane = (number % 2 == 0).then_some("full");
                let operation = driver.operation(&ann, create("suite.task", fields(lane, 0, 100)));
                driver.decide(&mut open, operation, at(second)).await;
            }
            driver.save(&open).await;
        }
        let last = driver.create(&ann, "suite.task", fields(Some("b"), -9, 100), at(2)).await;
        let moved = driver.create(&ann, "suite.task", fields(None, 0, 100), at(2)).await;
        driver.ok(&ann, fire(moved, "move", json!({ "weight": -20 })), at(3)).await;
        assert_eq!(leasable(store, &["suite.task"], at(99), 2_000).await, []);
        let found = leasable(store, &["suite.task"], at(100), 2_000).await;
        assert_eq!(found.len(), 650 + 2 + 2, "all without a key, two of each lane");
        assert_eq!(found[652..], [last, moved]);
        for first in &found[..2] {
            driver.lease(&bob, *first, at(100)).await;
        }
        assert_eq!(leasable(store, &["suite.task"], at(100), 2_000).await.len(), 650 + 2 + 2 - 2);
        let alone = driver.create(&ann, "suite.task", fields(None, 99, 200), at(100)).await;
        assert_eq!(leasable(store, &["suite.task"], at(200), 1).await, [alone]);
        let token = driver.lease(&bob, alone, at(200)).await;
        driver.ok(&bob, Call::Yield { record: alone, token }, at(201)).await;
        assert_eq!(leasable(store, &["suite.task"], at(201), 1).await, [alone]);
    });
}

/// The first of an ordered key keeps those behind it waiting, also when it waits for its time itself.
#[test]
fn the_first_of_an_ordered_key_waits_for_its_time() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let fields = |second: i64| json!({ "line": "a", "readyAt": at(second).to_string() });
        let first = driver.create(&ann, "suite.step", fields(100), start()).await;
        let second = driver.create(&ann, "suite.step", json!({ "line": "a" }), at(1)).await;
        let third = driver.create(&ann, "suite.step", fields(300), at(2)).await;
        for (second, expected) in [(5, None), (100, Some(first)), (5, None), (100, Some(first))] {
            let found = leasable(store, &["suite.step"], at(second), 10).await;
            assert_eq!(found, Vec::from_iter(expected), "at {second}");
        }
        driver.ok(&ann, fire(first, "skip", json!({})), at(101)).await;
        assert_eq!(leasable(store, &["suite.step"], at(101), 10).await, [second]);
        driver.ok(&ann, fire(second, "skip", json!({})), at(102)).await;
        assert_eq!(leasable(store, &["suite.step"], at(102), 10).await, []);
        assert_eq!(leasable(store, &["suite.step"], at(300), 10).await, [third]);
        driver.ok(&ann, fire(third, "skip", json!({})), at(301)).await;
        assert_eq!(leasable(store, &["suite.step"], at(500), 10).await, []);
    });
}

/// Where jobs go one after another, the first only, and the next when it is done.
#[test]
fn the_first_of_an_ordered_key() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let mut steps = Vec::new();
        for _ in 0..3 {
            steps.push(driver.create(&ann, "suite.step", json!({ "line": "a" }), start()).await);
        }
        let alone = driver.create(&ann, "suite.step", json!({}), at(1)).await;
        assert_eq!(leasable(store, &["suite.step"], at(2), 10).await, [steps[0], alone]);
        let token = driver.lease(&bob, steps[0], at(2)).await;
        assert_eq!(leasable(store, &["suite.step"], at(2), 10).await, [alone]);
        driver.ok(&bob, Call::Commit { record: steps[0], token, result: json!(1), finish: true }, at(3)).await;
        assert_eq!(leasable(store, &["suite.step"], at(3), 10).await, [steps[1], alone]);
        driver.ok(&ann, fire(steps[1], "skip", json!({})), at(3)).await;
        assert_eq!(leasable(store, &["suite.step"], at(3), 10).await, [steps[2], alone]);
    });
}

/// Timers and ends of leases, the earliest first, those at the same time in order of creation.
#[test]
fn what_is_due_comes_in_order() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let closing = |second: i64| json!({ "closing": at(second).to_string() });
        let late = driver.create(&ann, "suite.box", closing(50), start()).await;
        let soon = driver.create(&ann, "suite.box", closing(20), start()).await;
        let same = driver.create(&ann, "suite.box", closing(20), start()).await;
        let task = driver.create(&ann, "suite.task", json!({}), start()).await;
        driver.lease(&bob, task, start()).await;
        let all = [(at(20), soon), (at(20), same), (at(30), task), (at(50), late)];
        assert_eq!(store.due(at(100), 10).await.unwrap(), all);
        assert_eq!(store.due(at(20), 10).await.unwrap(), all[..2]);
        assert_eq!(store.due(at(100), 1).await.unwrap(), all[..1]);
        // A timer that follows its field, and one that has fired.
        driver.ok(&ann, fire(late, "write", closing(10)), at(1)).await;
        let fired = driver.operation(&onceward_core::record::Actor::engine(), Call::Due { record: soon });
        driver.play(fired, at(20)).await;
        assert_eq!(store.due(at(100), 10).await.unwrap(), [(at(10), late), (at(20), same), (at(30), task)]);
    });
}

/// What a store tells at a glance: records by state, since when the first of those that wait has waited, leases that count and
/// what is overdue.
#[test]
fn a_glance_tells_what_waits() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        assert_eq!(store.glance(at(0)).await.unwrap(), Glance::default());
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let later = json!({ "readyAt": at(1_000).to_string() });
        driver.create(&ann, "suite.task", later, at(0)).await;
        assert!(store.glance(at(999)).await.unwrap().oldest.is_empty());
        assert_eq!(
            store.glance(at(1_010)).await.unwrap().oldest[0].since,
            at(1_000),
            "also where nobody looks for work"
        );
        let mut tasks = Vec::new();
        for (weight, second) in [(0, 20), (9, 30), (0, 10)] {
            tasks.push(driver.create(&ann, "suite.task", json!({ "weight": weight }), at(second)).await);
        }
        let glance = store.glance(at(40)).await.unwrap();
        assert_eq!(glance.counts, store.counts_by_state(None).await.unwrap());
        let waits: Vec<_> = glance.oldest.iter().map(|oldest| (&*oldest.lifecycle, oldest.since)).collect();
        assert_eq!(waits, [("suite.task", at(10))], "the longest, though another is first in line");
        assert_eq!((glance.leases, glance.overdue), (0, 0));
        let ready: Vec<_> = glance.ready.iter().map(|ready| (&*ready.lifecycle, ready.jobs)).collect();
        assert_eq!(ready, [("suite.task", 3)], "one waits for its time");
        driver.lease(&bob, tasks[2], at(40)).await;
        let glance = store.glance(at(41)).await.unwrap();
        assert_eq!((glance.oldest[0].since, glance.leases, glance.overdue), (at(20), 1, 0));
        let glance = store.glance(at(999)).await.unwrap();
        assert_eq!((glance.leases, glance.overdue), (1, 1));
        assert!(glance.overdue_since.is_some_and(|since| since > at(40) && since < at(999)));
    });
}
