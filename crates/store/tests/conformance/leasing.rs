//! Lease candidates and due records.

use onceward_core::decide::Call;
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_store::{AnyStore, LeaseQuery, Store, StoreStats};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::support::driver::{StoreDriver, create_call, fire_call};
use crate::support::{on_each_store, start_time, suite_files};

fn after_seconds(seconds: i64) -> Time {
    start_time().checked_add(Duration::from_secs(seconds)).expect("the time is in range")
}

async fn lease_candidate_ids(store: &AnyStore, lifecycles: &[&str], now: Time, limit: usize) -> Vec<RecordId> {
    let lifecycles = lifecycles.iter().map(|name| (*name).into()).collect();
    let found = store.lease_candidates(&LeaseQuery { lifecycles, now, limit }).await.unwrap();
    found.into_iter().map(|candidate| candidate.record).collect()
}

/// One minute of waiting outweighs one unit of priority.
#[test]
fn candidates_are_ordered_by_priority_and_age() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let mut made = Vec::new();
        for (weight, second) in [(0, 0), (1, 50), (1, 70), (0, 5), (0, 5)] {
            made.push(
                driver.create_record(&ann, "suite.task", json!({ "weight": weight }), after_seconds(second)).await,
            );
        }
        let expected = [made[1], made[0], made[3], made[4], made[2]];
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(100), 10).await, expected);
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(100), 2).await, expected[..2]);
        assert_eq!(lease_candidate_ids(store, &["suite.step"], after_seconds(100), 10).await, []);
        // A change of its priority changes its rank.
        driver.expect_taken(&ann, fire_call(made[2], "move", json!({ "weight": 9 })), after_seconds(100)).await;
        assert_eq!(lease_candidate_ids(store, &["suite.task", "suite.step"], after_seconds(100), 10).await[0], made[2]);
    });
}

/// A job is a candidate again after a yield, and never after it finished.
#[test]
fn candidates_include_only_ready_unleased_jobs() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let fields = json!({ "readyAt": after_seconds(10).to_string(), "weight": 5 });
        let task = driver.create_record(&ann, "suite.task", fields, start_time()).await;
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(9), 10).await, []);
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(10), 10).await, [task]);
        let token = driver.lease_job(&bob, task, after_seconds(10)).await;
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(10), 10).await, []);
        driver.expect_taken(&bob, Call::Yield { record: task, token }, after_seconds(11)).await;
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(11), 10).await, [task]);
        let token = driver.lease_job(&bob, task, after_seconds(12)).await;
        driver
            .expect_taken(&bob, Call::Commit { record: task, token, result: json!(1), finish: true }, after_seconds(12))
            .await;
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(500), 10).await, []);
    });
}

/// A finished job frees a slot.
#[test]
fn candidates_respect_concurrency_limit_per_key() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let mut lane = Vec::new();
        for _ in 0..5 {
            lane.push(driver.create_record(&ann, "suite.task", json!({ "lane": "a" }), start_time()).await);
        }
        let other = driver.create_record(&ann, "suite.task", json!({ "lane": "b" }), after_seconds(1)).await;
        let free = driver.create_record(&ann, "suite.task", json!({}), after_seconds(2)).await;
        let all = |of_lane: &[RecordId]| [of_lane, &[other, free]].concat();
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(5), 10).await, all(&lane[..2]));
        let token = driver.lease_job(&bob, lane[0], after_seconds(5)).await;
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(5), 10).await, all(&lane[1..2]));
        driver.lease_job(&bob, lane[1], after_seconds(5)).await;
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(5), 10).await, all(&[]));
        driver
            .expect_taken(
                &bob,
                Call::Commit { record: lane[0], token, result: json!(1), finish: true },
                after_seconds(6),
            )
            .await;
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(6), 10).await, all(&lane[2..3]));
    });
}

#[test]
fn delayed_job_does_not_block_ready_job_of_same_key() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let mut delayed = Vec::new();
        for number in 0..3 {
            let fields = json!({ "lane": "a", "weight": 9, "readyAt": after_seconds(100 + number).to_string() });
            delayed.push(driver.create_record(&ann, "suite.task", fields, start_time()).await);
        }
        let ready = driver.create_record(&ann, "suite.task", json!({ "lane": "a" }), after_seconds(1)).await;
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(5), 10).await, [ready]);
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(200), 10).await, delayed[..2]);
        // The same holds after the clock is set back.
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(5), 10).await, [ready]);
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(100), 10).await, [delayed[0], ready]);
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(200), 10).await, delayed[..2]);
    });
}

/// Also covers jobs that were changed, yielded or ended before they became due.
#[test]
fn delayed_jobs_become_candidates_in_order_when_due() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let fields = |lane: Option<&str>, weight: i64, second: i64| json!({ "lane": lane, "weight": weight, "readyAt": after_seconds(second).to_string() });
        // More jobs, with and without a key, than one transaction promotes.
        for second in 0..2 {
            let mut open = driver.new_batch(after_seconds(second));
            for number in 0..650 {
                let lane = (number % 2 == 0).then_some("full");
                let operation = driver.operation(&ann, create_call("suite.task", fields(lane, 0, 100)));
                driver.decide(&mut open, operation, after_seconds(second)).await;
            }
            driver.save(&open).await;
        }
        let last = driver.create_record(&ann, "suite.task", fields(Some("b"), -9, 100), after_seconds(2)).await;
        let reweighted = driver.create_record(&ann, "suite.task", fields(None, 0, 100), after_seconds(2)).await;
        driver.expect_taken(&ann, fire_call(reweighted, "move", json!({ "weight": -20 })), after_seconds(3)).await;
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(99), 2_000).await, []);
        let found = lease_candidate_ids(store, &["suite.task"], after_seconds(100), 2_000).await;
        assert_eq!(found.len(), 650 + 2 + 2, "all without a key, two of each lane");
        assert_eq!(found[652..], [last, reweighted]);
        for candidate in &found[..2] {
            driver.lease_job(&bob, *candidate, after_seconds(100)).await;
        }
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(100), 2_000).await.len(), 650 + 2 + 2 - 2);
        let alone = driver.create_record(&ann, "suite.task", fields(None, 99, 200), after_seconds(100)).await;
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(200), 1).await, [alone]);
        let token = driver.lease_job(&bob, alone, after_seconds(200)).await;
        driver.expect_taken(&bob, Call::Yield { record: alone, token }, after_seconds(201)).await;
        assert_eq!(lease_candidate_ids(store, &["suite.task"], after_seconds(201), 1).await, [alone]);
    });
}

#[test]
fn delayed_first_job_of_ordered_key_blocks_later_ones() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let fields = |second: i64| json!({ "line": "a", "readyAt": after_seconds(second).to_string() });
        let first = driver.create_record(&ann, "suite.step", fields(100), start_time()).await;
        let second = driver.create_record(&ann, "suite.step", json!({ "line": "a" }), after_seconds(1)).await;
        let third = driver.create_record(&ann, "suite.step", fields(300), after_seconds(2)).await;
        for (second, expected) in [(5, None), (100, Some(first)), (5, None), (100, Some(first))] {
            let found = lease_candidate_ids(store, &["suite.step"], after_seconds(second), 10).await;
            assert_eq!(found, Vec::from_iter(expected), "at {second}");
        }
        driver.expect_taken(&ann, fire_call(first, "skip", json!({})), after_seconds(101)).await;
        assert_eq!(lease_candidate_ids(store, &["suite.step"], after_seconds(101), 10).await, [second]);
        driver.expect_taken(&ann, fire_call(second, "skip", json!({})), after_seconds(102)).await;
        assert_eq!(lease_candidate_ids(store, &["suite.step"], after_seconds(102), 10).await, []);
        assert_eq!(lease_candidate_ids(store, &["suite.step"], after_seconds(300), 10).await, [third]);
        driver.expect_taken(&ann, fire_call(third, "skip", json!({})), after_seconds(301)).await;
        assert_eq!(lease_candidate_ids(store, &["suite.step"], after_seconds(500), 10).await, []);
    });
}

/// The next job becomes a candidate when the first is done.
#[test]
fn only_first_job_of_ordered_key_is_candidate() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let mut steps = Vec::new();
        for _ in 0..3 {
            steps.push(driver.create_record(&ann, "suite.step", json!({ "line": "a" }), start_time()).await);
        }
        let alone = driver.create_record(&ann, "suite.step", json!({}), after_seconds(1)).await;
        assert_eq!(lease_candidate_ids(store, &["suite.step"], after_seconds(2), 10).await, [steps[0], alone]);
        let token = driver.lease_job(&bob, steps[0], after_seconds(2)).await;
        assert_eq!(lease_candidate_ids(store, &["suite.step"], after_seconds(2), 10).await, [alone]);
        driver
            .expect_taken(
                &bob,
                Call::Commit { record: steps[0], token, result: json!(1), finish: true },
                after_seconds(3),
            )
            .await;
        assert_eq!(lease_candidate_ids(store, &["suite.step"], after_seconds(3), 10).await, [steps[1], alone]);
        driver.expect_taken(&ann, fire_call(steps[1], "skip", json!({})), after_seconds(3)).await;
        assert_eq!(lease_candidate_ids(store, &["suite.step"], after_seconds(3), 10).await, [steps[2], alone]);
    });
}

/// Covers timers and lease expiries.
#[test]
fn due_records_are_ordered_by_time_then_creation() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let closing = |second: i64| json!({ "closing": after_seconds(second).to_string() });
        let late = driver.create_record(&ann, "suite.box", closing(50), start_time()).await;
        let soon = driver.create_record(&ann, "suite.box", closing(20), start_time()).await;
        let same = driver.create_record(&ann, "suite.box", closing(20), start_time()).await;
        let task = driver.create_record(&ann, "suite.task", json!({}), start_time()).await;
        driver.lease_job(&bob, task, start_time()).await;
        let all = [
            (after_seconds(20), soon),
            (after_seconds(20), same),
            (after_seconds(30), task),
            (after_seconds(50), late),
        ];
        assert_eq!(store.due_records(after_seconds(100), 10).await.unwrap(), all);
        assert_eq!(store.due_records(after_seconds(20), 10).await.unwrap(), all[..2]);
        assert_eq!(store.due_records(after_seconds(100), 1).await.unwrap(), all[..1]);
        // A timer that follows its field, and one that has fired.
        driver.expect_taken(&ann, fire_call(late, "write", closing(10)), after_seconds(1)).await;
        let fire_due = driver.operation(&onceward_core::record::Actor::engine(), Call::FireDue { record: soon });
        driver.run_operation(fire_due, after_seconds(20)).await;
        assert_eq!(
            store.due_records(after_seconds(100), 10).await.unwrap(),
            [(after_seconds(10), late), (after_seconds(20), same), (after_seconds(30), task)]
        );
    });
}

#[test]
fn stats_report_oldest_ready_leases_and_overdue() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        assert_eq!(store.stats(after_seconds(0)).await.unwrap(), StoreStats::default());
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let later = json!({ "readyAt": after_seconds(1_000).to_string() });
        driver.create_record(&ann, "suite.task", later, after_seconds(0)).await;
        assert!(store.stats(after_seconds(999)).await.unwrap().oldest_ready.is_empty());
        assert_eq!(
            store.stats(after_seconds(1_010)).await.unwrap().oldest_ready[0].ready_since,
            after_seconds(1_000),
            "the age does not depend on a lease query"
        );
        let mut tasks = Vec::new();
        for (weight, second) in [(0, 20), (9, 30), (0, 10)] {
            tasks.push(
                driver.create_record(&ann, "suite.task", json!({ "weight": weight }), after_seconds(second)).await,
            );
        }
        let glance = store.stats(after_seconds(40)).await.unwrap();
        assert_eq!(glance.state_counts, store.counts_by_state(None).await.unwrap());
        let waits: Vec<_> = glance.oldest_ready.iter().map(|oldest| (&*oldest.lifecycle, oldest.ready_since)).collect();
        assert_eq!(
            waits,
            [("suite.task", after_seconds(10))],
            "the oldest job counts, even if another one has priority"
        );
        assert_eq!((glance.live_leases, glance.overdue_records), (0, 0));
        let ready: Vec<_> = glance.ready_counts.iter().map(|ready| (&*ready.lifecycle, ready.jobs)).collect();
        assert_eq!(ready, [("suite.task", 3)], "the delayed job is not counted");
        driver.lease_job(&bob, tasks[2], after_seconds(40)).await;
        let glance = store.stats(after_seconds(41)).await.unwrap();
        assert_eq!(
            (glance.oldest_ready[0].ready_since, glance.live_leases, glance.overdue_records),
            (after_seconds(20), 1, 0)
        );
        let glance = store.stats(after_seconds(999)).await.unwrap();
        assert_eq!((glance.live_leases, glance.overdue_records), (1, 1));
        assert!(glance.overdue_since.is_some_and(|since| since > after_seconds(40) && since < after_seconds(999)));
    });
}
