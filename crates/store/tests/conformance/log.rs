//! The log: ordered, without gaps, hash-chained, and sufficient to rebuild the state.

use onceward_core::decide::Call;
use onceward_core::time::Duration;
use onceward_store::log::ZERO_HASH;
use onceward_store::{LogReplay, SaveResult, Store};
use onceward_testkit::{random, user, worker};
use serde_json::json;

use crate::support::driver::{StoreDriver, create_call, fire_call};
use crate::support::{on_each_store, start_time, suite_files};

#[test]
fn seqs_are_contiguous_across_batches() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let mut expected = 1;
        for size in [1, 3, 2] {
            let mut open = driver.new_batch(start_time());
            for _ in 0..size {
                let operation = driver.operation(&ann, create_call("suite.step", json!({})));
                driver.decide(&mut open, operation, start_time()).await;
            }
            assert_eq!(
                driver.save(&open).await,
                SaveResult::Saved { first_seq: expected, last_seq: expected + size - 1 }
            );
            expected += size;
        }
        let all = store.log(0, 100).await.unwrap();
        assert_eq!(all.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(store.log(2, 3).await.unwrap(), all[2..5]);
        assert_eq!(store.log(6, 3).await.unwrap(), []);
    });
}

#[test]
fn record_entries_are_hash_chained() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let id = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
        // Two changes in one batch and one in another.
        let mut open = driver.new_batch(start_time());
        for number in 0..2 {
            let operation = driver.operation(&ann, fire_call(id, "write", json!({ "number": number })));
            driver.decide(&mut open, operation, start_time()).await;
        }
        driver.save(&open).await;
        driver.expect_taken(&ann, fire_call(id, "write", json!({ "number": 7 })), start_time()).await;
        let own = store.history(id, 0, 100).await.unwrap();
        assert_eq!(own.iter().map(|entry| entry.version).collect::<Vec<_>>(), [1, 2, 3, 4]);
        let mut previous = ZERO_HASH;
        for entry in &own {
            assert_eq!(entry.hash, entry.expected_hash(&previous));
            previous = entry.hash;
        }
        assert_eq!(store.history(id, 2, 1).await.unwrap(), own[2..3]);
        let body = own[3].body().unwrap();
        let fields: Vec<_> = body.change.as_ref().unwrap().fields().map(|(name, _)| &**name).collect();
        assert_eq!(fields, ["number"], "only the changed fields");
        assert_eq!(&*body.transitions[0].0, "write");
    });
}

/// Also covers repeated reads and growth between them.
#[test]
fn long_history_is_same_in_pages_of_any_size() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let id = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
        for round in 1..=2 {
            let mut open = driver.new_batch(start_time());
            for number in 0..600 {
                let operation = driver.operation(&ann, fire_call(id, "write", json!({ "number": number })));
                driver.decide(&mut open, operation, start_time()).await;
            }
            driver.save(&open).await;
            let full_history = store.history(id, 0, 10_000).await.unwrap();
            assert_eq!(full_history.len(), 1 + 600 * round);
            for size in [100, 256, 37] {
                let mut pages = Vec::new();
                loop {
                    let page = store.history(id, u64::try_from(pages.len()).unwrap(), size).await.unwrap();
                    if page.is_empty() {
                        break;
                    }
                    pages.extend(page);
                }
                assert!(pages == full_history, "in pages of {size}");
            }
        }
    });
}

#[test]
fn commit_result_is_logged_by_hash_only() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let task = driver.create_record(&ann, "suite.task", json!({}), start_time()).await;
        let token = driver.lease_job(&bob, task, start_time()).await;
        let result = json!("a secret");
        driver.expect_taken(&bob, Call::Commit { record: task, token, result, finish: true }, start_time()).await;
        let entries = store.log(0, 10).await.unwrap();
        assert!(entries.iter().all(|entry| !entry.text.contains("secret")), "{entries:?}");
        assert!(entries[2].body().unwrap().effect.is_some());
    });
}

/// Such an entry belongs to no record. Other refusals write nothing.
#[test]
fn denials_and_audited_refusals_are_logged() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let id = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
        driver.create_record(&ann, "suite.task", json!({ "box": id.to_string() }), start_time()).await;
        driver.expect_refused(&ann, fire_call(id, "unheard_of", json!({})), start_time()).await;
        assert_eq!(store.log(2, 10).await.unwrap(), []);
        let later = start_time().checked_add(Duration::from_secs(1)).unwrap();
        driver.expect_refused(&ann, fire_call(id, "empty", json!({})), later).await;
        driver.expect_refused(&user("eve"), fire_call(id, "empty", json!({})), later).await;
        let refusal_entries = store.log(2, 10).await.unwrap();
        assert_eq!(
            refusal_entries.iter().map(|entry| (entry.record, entry.at)).collect::<Vec<_>>(),
            [(None, later); 2]
        );
        let audited = refusal_entries[0].body().unwrap();
        assert_eq!(audited.audit.iter().map(|tag| &**tag).collect::<Vec<_>>(), ["kept_open"]);
        assert_eq!(audited.refusal.as_ref().map(|refusal| &*refusal.code), Some("not_empty"));
        assert!(refusal_entries[1].body().unwrap().refusal.is_some_and(|refusal| refusal.denial));
        assert_eq!(store.record(id).await.unwrap().unwrap().version, 1);
    });
}

#[test]
fn changed_or_missing_entry_fails_replay() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let id = driver.create_record(&ann, "suite.box", json!({ "number": 1 }), start_time()).await;
        driver.expect_taken(&ann, fire_call(id, "write", json!({ "number": 2 })), start_time()).await;
        let entries = store.log(0, 10).await.unwrap();
        let lifecycles = store.catalog().await.unwrap().lifecycles();
        let replay_entries = |entries: &[onceward_store::LogEntry]| {
            let mut replay = LogReplay::new(lifecycles.clone());
            entries.iter().try_for_each(|entry| replay.apply(entry)).map(|()| replay)
        };
        let replay_of_all = replay_entries(&entries).unwrap();
        let stored = store.record(id).await.unwrap().unwrap();
        assert_eq!(random::record_text(replay_of_all.snapshot.record(id).unwrap()), random::record_text(&stored));
        let mut tampered = entries.clone();
        tampered[0].text = tampered[0].text.replace("\"number\":1", "\"number\":3").into();
        assert!(replay_entries(&tampered).is_err());
        assert!(replay_entries(&entries[1..]).is_err(), "replay without the first entry fails");
    });
}
