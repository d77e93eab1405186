//! After a version migration, all tables reflect the new version.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward_core::decide::{Call, RecordMigration};
use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_store::{AnyStore, LeaseQuery, LogReplay, Store};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::support::driver::{StoreDriver, fire_call};
use crate::support::{migrated_suite_files, on_each_store, start_time, suite_files};

fn migrate_call(record: RecordId, to: &Arc<str>, states: &[(&str, &str)]) -> Call {
    let states: BTreeMap<Arc<str>, Arc<str>> = states.iter().map(|(from, to)| ((*from).into(), (*to).into())).collect();
    Call::MigrateVersion(RecordMigration {
        record,
        target_hash: Arc::clone(to),
        state_map: states,
        include_ended: true,
    })
}

fn operator_actor() -> Actor {
    Actor::new("ops", &["operator"])
}

async fn lease_candidate_ids(store: &AnyStore) -> Vec<RecordId> {
    let query = LeaseQuery { lifecycles: vec!["suite.task".into()], now: start_time(), limit: 10 };
    store.lease_candidates(&query).await.unwrap().into_iter().map(|found| found.record).collect()
}

#[test]
fn migrated_record_follows_queues_and_links_of_its_version() {
    on_each_store(async |store, _| {
        let old = store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let target = driver.create_record(&ann, "suite.box", json!({ "name": "a" }), start_time()).await;
        let beside = json!({ "name": "b", "beside": target.to_string(), "others": [target.to_string()] });
        let other = driver.create_record(&ann, "suite.box", beside, start_time()).await;
        let mut tasks = Vec::new();
        for weight in 1..=4 {
            let fields = json!({ "lane": "x", "weight": weight, "box": target.to_string() });
            tasks.push(driver.create_record(&ann, "suite.task", fields, start_time()).await);
        }
        let alone = driver.create_record(&ann, "suite.task", json!({ "weight": 2 }), start_time()).await;
        assert_eq!(
            lease_candidate_ids(store).await,
            [tasks[3], tasks[2], alone],
            "two jobs of the lane, the highest priority first"
        );
        let new = store.put_lifecycles(&migrated_suite_files()).await.unwrap();
        let (task, box_) =
            (&new.definitions.get("suite.task").unwrap().hash, &new.definitions.get("suite.box").unwrap().hash);
        driver.catalog = new.clone();
        assert_eq!(lease_candidate_ids(store).await.len(), 3, "a new version alone changes no record");
        for id in tasks.iter().chain([&alone]) {
            driver
                .expect_taken(&operator_actor(), migrate_call(*id, task, &[("waiting", "queued")]), start_time())
                .await;
        }
        // The lane now allows one job, and the lightest comes first.
        assert_eq!(lease_candidate_ids(store).await, [tasks[0], alone]);
        let record = store.record(tasks[1]).await.unwrap().unwrap();
        assert_eq!((&record.lifecycle.hash, &**record.state_name(), record.version), (task, "queued", 2));
        assert_eq!(record.field("more"), Some(&onceward_core::value::Value::text("yes")));
        // A removed field removes its links; other links remain.
        driver.expect_taken(&operator_actor(), migrate_call(other, box_, &[]), start_time()).await;
        driver.expect_taken(&operator_actor(), migrate_call(target, box_, &[]), start_time()).await;
        let with_referrers = store.with_referrers(&[target]).await.unwrap();
        assert_eq!(with_referrers[0].referrers.len(), 5, "four tasks and the other box, by `others`");
        let mut counts = store.counts_by_version().await.unwrap();
        counts.retain(|count| count.count > 0);
        let summary: Vec<_> = counts.iter().map(|count| (&*count.lifecycle, &*count.state, count.count)).collect();
        assert_eq!(summary, [("suite.box", "open", 2), ("suite.task", "queued", 5)]);
        assert!(
            counts.iter().all(|count| old.by_hash(&count.definition).is_none()),
            "all records use the new versions"
        );
        // The job runs under its new version, and a replay of the log gives the same.
        let bob = worker("bob");
        let token = driver.lease_job(&bob, tasks[0], start_time()).await;
        driver
            .expect_taken(&bob, Call::Commit { record: tasks[0], token, result: json!(1), finish: true }, start_time())
            .await;
        assert_eq!(lease_candidate_ids(store).await, [tasks[1], alone], "the next job of the lane is ready");
        driver.expect_taken(&ann, fire_call(other, "write", json!({ "number": 3 })), start_time()).await;
        let mut replay = LogReplay::new(new.lifecycles());
        for entry in store.log(0, 1_000).await.unwrap() {
            replay.apply(&entry).unwrap();
        }
        let replayed = replay.snapshot.record(other).unwrap();
        let stored = store.record(other).await.unwrap().unwrap();
        assert_eq!(
            (replayed.fields.clone(), &replayed.lifecycle.hash),
            (stored.fields.clone(), &stored.lifecycle.hash)
        );
    });
}

#[test]
fn migrations_and_lease_in_one_batch_apply_in_order() {
    on_each_store(async |store, _| {
        let old = store.put_lifecycles(&suite_files()).await.unwrap();
        let first = Arc::clone(&old.definitions.get("suite.task").unwrap().hash);
        let new = store.put_lifecycles(&migrated_suite_files()).await.unwrap();
        let second = Arc::clone(&new.definitions.get("suite.task").unwrap().hash);
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let id = driver.create_record(&ann, "suite.task", json!({ "lane": "x", "weight": 3 }), start_time()).await;
        assert_eq!(store.record(id).await.unwrap().unwrap().lifecycle.hash, second);
        let mut open = driver.new_batch(start_time());
        for call in [
            migrate_call(id, &first, &[("queued", "waiting")]),
            migrate_call(id, &second, &[("waiting", "queued")]),
            migrate_call(id, &first, &[("queued", "waiting")]),
            Call::Lease { record: id, worker: "w".into(), lease: None, start: true },
        ] {
            let actor = if matches!(call, Call::Lease { .. }) { &bob } else { &operator_actor() };
            let operation = driver.operation(actor, call);
            driver.decide(&mut open, operation, start_time()).await;
        }
        driver.save(&open).await;
        let record = store.record(id).await.unwrap().unwrap();
        assert_eq!((&record.lifecycle.hash, &**record.state_name(), record.version), (&first, "running", 5));
        assert!(lease_candidate_ids(store).await.is_empty());
        assert_eq!(store.history(id, 0, 10).await.unwrap().len(), 5);
    });
}
