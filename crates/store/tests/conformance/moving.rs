//! Records that are moved to another version of their lifecycle stand in every table by that one.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward_core::decide::{Call, Move};
use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_store::{AnyStore, LeaseQuery, Replay, Store};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::stage::driver::{Driver, fire};
use crate::stage::{later_suite, on_each, start, suite};

fn moved(record: RecordId, to: &Arc<str>, states: &[(&str, &str)]) -> Call {
    let states: BTreeMap<Arc<str>, Arc<str>> = states.iter().map(|(from, to)| ((*from).into(), (*to).into())).collect();
    Call::Move(Move { record, to: Arc::clone(to), states, ended: true })
}

fn ops() -> Actor {
    Actor::new("ops", &["operator"])
}

async fn leasable(store: &AnyStore) -> Vec<RecordId> {
    let query = LeaseQuery { lifecycles: vec!["suite.task".into()], now: start(), limit: 10 };
    store.leasable(&query).await.unwrap().into_iter().map(|found| found.record).collect()
}

#[test]
fn a_moved_record_stands_where_its_version_puts_it() {
    on_each(async |store, _| {
        let old = store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let target = driver.create(&ann, "suite.box", json!({ "name": "a" }), start()).await;
        let beside = json!({ "name": "b", "beside": target.to_string(), "others": [target.to_string()] });
        let other = driver.create(&ann, "suite.box", beside, start()).await;
        let mut tasks = Vec::new();
        for weight in 1..=4 {
            let fields = json!({ "lane": "x", "weight": weight, "box": target.to_string() });
            tasks.push(driver.create(&ann, "suite.task", fields, start()).await);
        }
        let alone = driver.create(&ann, "suite.task", json!({ "weight": 2 }), start()).await;
        assert_eq!(leasable(store).await, [tasks[3], tasks[2], alone], "two of the lane, the heaviest first");
        let new = store.put_definitions(&later_suite()).await.unwrap();
        let (task, box_) =
            (&new.definitions.get("suite.task").unwrap().hash, &new.definitions.get("suite.box").unwrap().hash);
        driver.catalog = new.clone();
        assert_eq!(leasable(store).await.len(), 3, "a new version alone changes nobody");
        for id in tasks.iter().chain([&alone]) {
            driver.ok(&ops(), moved(*id, task, &[("waiting", "queued")]), start()).await;
        }
        // One of the lane now, and the lightest first.
        assert_eq!(leasable(store).await, [tasks[0], alone]);
        let record = store.record(tasks[1]).await.unwrap().unwrap();
        assert_eq!((&record.lifecycle.hash, &**record.state_name(), record.version), (task, "queued", 2));
        assert_eq!(record.field("more"), Some(&onceward_core::value::Value::text("yes")));
        // A field that is gone takes its links with it; the others stay.
        driver.ok(&ops(), moved(other, box_, &[]), start()).await;
        driver.ok(&ops(), moved(target, box_, &[]), start()).await;
        let kin = store.kin(&[target]).await.unwrap();
        assert_eq!(kin[0].sources.len(), 5, "four tasks and the other box, by `others`");
        let mut counts = store.counts_by_version().await.unwrap();
        counts.retain(|count| count.count > 0);
        let said: Vec<_> = counts.iter().map(|count| (&*count.lifecycle, &*count.state, count.count)).collect();
        assert_eq!(said, [("suite.box", "open", 2), ("suite.task", "queued", 5)]);
        assert!(counts.iter().all(|count| old.by_hash(&count.definition).is_none()), "all live by the new ones");
        // It is worked on by its new version, and known by it after a look at the log alone.
        let bob = worker("bob");
        let token = driver.lease(&bob, tasks[0], start()).await;
        driver.ok(&bob, Call::Commit { record: tasks[0], token, result: json!(1), finish: true }, start()).await;
        assert_eq!(leasable(store).await, [tasks[1], alone], "the next of the lane");
        driver.ok(&ann, fire(other, "write", json!({ "number": 3 })), start()).await;
        let mut replay = Replay::new(new.lifecycles());
        for entry in store.log(0, 1_000).await.unwrap() {
            replay.apply(&entry).unwrap();
        }
        let built = replay.world.record(other).unwrap();
        let kept = store.record(other).await.unwrap().unwrap();
        assert_eq!((built.fields.clone(), &built.lifecycle.hash), (kept.fields.clone(), &kept.lifecycle.hash));
    });
}

/// Moved, changed and leased in one transaction, and moved back again.
#[test]
fn within_a_batch() {
    on_each(async |store, _| {
        let old = store.put_definitions(&suite()).await.unwrap();
        let first = Arc::clone(&old.definitions.get("suite.task").unwrap().hash);
        let new = store.put_definitions(&later_suite()).await.unwrap();
        let second = Arc::clone(&new.definitions.get("suite.task").unwrap().hash);
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let id = driver.create(&ann, "suite.task", json!({ "lane": "x", "weight": 3 }), start()).await;
        assert_eq!(store.record(id).await.unwrap().unwrap().lifecycle.hash, second);
        let mut open = driver.open(start());
        for call in [
            moved(id, &first, &[("queued", "waiting")]),
            moved(id, &second, &[("waiting", "queued")]),
            moved(id, &first, &[("queued", "waiting")]),
            Call::Lease { record: id, worker: "w".into(), lease: None, start: true },
        ] {
            let actor = if matches!(call, Call::Lease { .. }) { &bob } else { &ops() };
            let operation = driver.operation(actor, call);
            driver.decide(&mut open, operation, start()).await;
        }
        driver.save(&open).await;
        let record = store.record(id).await.unwrap().unwrap();
        assert_eq!((&record.lifecycle.hash, &**record.state_name(), record.version), (&first, "running", 5));
        assert!(leasable(store).await.is_empty());
        assert_eq!(store.history(id, 0, 10).await.unwrap().len(), 5);
    });
}
