//! The log: in order, without a gap, chained, and enough to build everything again.

use onceward_core::decide::Call;
use onceward_core::time::Duration;
use onceward_store::log::NO_HASH;
use onceward_store::{Replay, Save, Store};
use onceward_testkit::{random, user, worker};
use serde_json::json;

use crate::stage::driver::{Driver, create, fire};
use crate::stage::{on_each, start, suite};

#[test]
fn places_follow_one_another_over_batches() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let mut expected = 1;
        for size in [1, 3, 2] {
            let mut open = driver.open(start());
            for _ in 0..size {
                let operation = driver.operation(&ann, create("suite.step", json!({})));
                driver.decide(&mut open, operation, start()).await;
            }
            assert_eq!(driver.save(&open).await, Save::Saved { first: expected, last: expected + size - 1 });
            expected += size;
        }
        let all = store.log(0, 100).await.unwrap();
        assert_eq!(all.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(store.log(2, 3).await.unwrap(), all[2..5]);
        assert_eq!(store.log(6, 3).await.unwrap(), []);
    });
}

/// Each entry carries the hash of the record's entry before.
#[test]
fn entries_of_a_record_are_chained() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let id = driver.create(&ann, "suite.box", json!({}), start()).await;
        // Twice in one batch, then once more: the chain goes through both.
        let mut open = driver.open(start());
        for number in 0..2 {
            let operation = driver.operation(&ann, fire(id, "write", json!({ "number": number })));
            driver.decide(&mut open, operation, start()).await;
        }
        driver.save(&open).await;
        driver.ok(&ann, fire(id, "write", json!({ "number": 7 })), start()).await;
        let own = store.history(id, 0, 100).await.unwrap();
        assert_eq!(own.iter().map(|entry| entry.version).collect::<Vec<_>>(), [1, 2, 3, 4]);
        let mut previous = NO_HASH;
        for entry in &own {
            assert_eq!(entry.hash, entry.expected_hash(&previous));
            previous = entry.hash;
        }
        assert_eq!(store.history(id, 2, 1).await.unwrap(), own[2..3]);
        let body = own[3].body().unwrap();
        let fields: Vec<_> = body.change.as_ref().unwrap().fields().map(|(name, _)| &**name).collect();
        assert_eq!(fields, ["number"], "only what has changed");
        assert_eq!(&*body.rows[0].0, "write");
    });
}

/// A long history is the same in pages of any size, read again, and as it grows.
#[test]
fn a_long_history_in_pages() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let id = driver.create(&ann, "suite.box", json!({}), start()).await;
        for round in 1..=2 {
            let mut open = driver.open(start());
            for number in 0..600 {
                let operation = driver.operation(&ann, fire(id, "write", json!({ "number": number })));
                driver.decide(&mut open, operation, start()).await;
            }
            driver.save(&open).await;
            let whole = store.history(id, 0, 10_000).await.unwrap();
            assert_eq!(whole.len(), 1 + 600 * round);
            for size in [100, 256, 37] {
                let mut pages = Vec::new();
                loop {
                    let page = store.history(id, u64::try_from(pages.len()).unwrap(), size).await.unwrap();
                    if page.is_empty() {
                        break;
                    }
                    pages.extend(page);
                }
                assert!(pages == whole, "in pages of {size}");
            }
        }
    });
}

/// A worker's result stands in the log by its hash only.
#[test]
fn results_are_not_in_the_log() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let task = driver.create(&ann, "suite.task", json!({}), start()).await;
        let token = driver.lease(&bob, task, start()).await;
        let result = json!("a secret");
        driver.ok(&bob, Call::Commit { record: task, token, result, finish: true }, start()).await;
        let entries = store.log(0, 10).await.unwrap();
        assert!(entries.iter().all(|entry| !entry.text.contains("secret")), "{entries:?}");
        assert!(entries[2].body().unwrap().effect.is_some());
    });
}

/// Denials and audited refusals leave an entry that belongs to no record; other refusals leave nothing.
#[test]
fn some_refusals_leave_a_trace() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let id = driver.create(&ann, "suite.box", json!({}), start()).await;
        driver.create(&ann, "suite.task", json!({ "box": id.to_string() }), start()).await;
        driver.refused(&ann, fire(id, "unheard_of", json!({})), start()).await;
        assert_eq!(store.log(2, 10).await.unwrap(), []);
        let later = start().checked_add(Duration::from_secs(1)).unwrap();
        driver.refused(&ann, fire(id, "empty", json!({})), later).await;
        driver.refused(&user("eve"), fire(id, "empty", json!({})), later).await;
        let traces = store.log(2, 10).await.unwrap();
        assert_eq!(traces.iter().map(|entry| (entry.record, entry.at)).collect::<Vec<_>>(), [(None, later); 2]);
        let audited = traces[0].body().unwrap();
        assert_eq!(audited.audit.iter().map(|tag| &**tag).collect::<Vec<_>>(), ["kept_open"]);
        assert_eq!(audited.refusal.as_ref().map(|refusal| &*refusal.code), Some("not_empty"));
        assert!(traces[1].body().unwrap().refusal.is_some_and(|refusal| refusal.denial));
        assert_eq!(store.record(id).await.unwrap().unwrap().version, 1);
    });
}

/// A changed letter anywhere in an entry breaks its hash.
#[test]
fn a_changed_entry_is_found() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let id = driver.create(&ann, "suite.box", json!({ "number": 1 }), start()).await;
        driver.ok(&ann, fire(id, "write", json!({ "number": 2 })), start()).await;
        let entries = store.log(0, 10).await.unwrap();
        let lifecycles = store.definitions().await.unwrap().lifecycles();
        let replayed = |entries: &[onceward_store::Entry]| {
            let mut replay = Replay::new(lifecycles.clone());
            entries.iter().try_for_each(|entry| replay.apply(entry)).map(|()| replay)
        };
        let whole = replayed(&entries).unwrap();
        let kept = store.record(id).await.unwrap().unwrap();
        assert_eq!(random::record(whole.world.record(id).unwrap()), random::record(&kept));
        let mut wrong = entries.clone();
        wrong[0].text = wrong[0].text.replace("\"number\":1", "\"number\":3").into();
        assert!(replayed(&wrong).is_err());
        assert!(replayed(&entries[1..]).is_err(), "the first is missing");
    });
}
