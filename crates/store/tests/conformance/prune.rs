//! Pruning deletes whole records and carries forward what the remaining log needs.

use std::sync::Arc;

use onceward_core::decide::{Account, Call, CounterKey, CreateRecord, Decision, ReadKey, UniqueKey};
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::record::PayloadRef;
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_store::log::{Checkpoint, ZERO_HASH};
use onceward_store::{
    AccountName, AnyStore, ExpiredCountersQuery, ExpiredKeysPage, ExpiredKeysQuery, IdempotencyId, IdempotencyRecord,
    LeaseQuery, PayloadBytes, PrunableQuery, PruneBlocked, PrunePlan, PruneRequest, PruneResult, PruneState,
    PrunedRecord, ReadSet, SaveResult, StateCount, StatementQuery, Store, StoreError,
};
use onceward_testkit::{user, worker};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::support::driver::{StoreDriver, create_call, fire_call};
use crate::support::{on_each_store, start_time, suite_files};

fn after_seconds(seconds: i64) -> Time {
    start_time().checked_add(Duration::from_secs(seconds)).unwrap()
}

/// Loads records with their entries, as the pruner does.
async fn load_for_prune(store: &AnyStore, ids: &[RecordId]) -> Vec<PrunedRecord> {
    let mut records = Vec::new();
    for kin in store.with_referrers(ids).await.unwrap() {
        let entries = store.history(kin.record.id, 0, 1_000).await.unwrap();
        let (stored, record, links, sources) = (kin.meta, kin.record, kin.link_version, kin.referrers);
        records.push(PrunedRecord { meta: stored, record, link_version: links, referrers: sources, entries });
    }
    records
}

async fn prune_records(store: &AnyStore, records: Vec<PrunedRecord>) -> PruneResult {
    let catalog = store.catalog().await.unwrap();
    let plan = PrunePlan::build(records, start_time(), &catalog).expect("the records can be pruned");
    store.request(&Arc::new(PruneRequest { plan, now: after_seconds(1) })).await.expect("pruning")
}

async fn load_checkpoint(store: &AnyStore, seq: u64) -> Checkpoint {
    let entries = store.log(seq - 1, 1).await.unwrap();
    entries[0].body().unwrap().checkpoint.expect("a checkpoint").into_owned()
}

/// State counts change accordingly, and the log continues.
#[test]
fn prune_removes_record_with_all_its_data() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let done = driver.create_record(&ann, "suite.task", json!({}), start_time()).await;
        let token = driver.lease_job(&bob, done, start_time()).await;
        let kept_record = driver.create_record(&ann, "suite.task", json!({}), start_time()).await;
        let commit = Call::Commit { record: done, token, result: json!("made"), finish: true };
        driver.expect_taken(&bob, commit, start_time()).await;
        let kept_history = store.history(kept_record, 0, 10).await.unwrap();
        assert_eq!(prune_records(store, load_for_prune(store, &[done]).await).await, PruneResult::Saved(5));
        assert!(store.record(done).await.unwrap().is_none() && store.effect(done).await.unwrap().is_none());
        assert!(
            store.executions(done).await.unwrap().is_empty() && store.history(done, 0, 9).await.unwrap().is_empty()
        );
        assert_eq!(store.history(kept_record, 0, 10).await.unwrap(), kept_history);
        let waiting = StateCount { lifecycle: "suite.task".into(), state: "waiting".into(), count: 1 };
        assert_eq!(store.counts_by_state(None).await.unwrap(), [waiting]);
        let first_checkpoint = load_checkpoint(store, 5).await;
        assert_eq!(
            (first_checkpoint.pruned_records(), first_checkpoint.seqs.ranges(), first_checkpoint.previous_seq),
            (1, &[(1, 2), (4, 4)][..], None)
        );
        assert_eq!(&*first_checkpoint.pruned[0].state, "done");
        // The remaining log is readable; reads of the pruned part fail.
        for after in 0..4 {
            let error = store.log(after, 10).await.unwrap_err();
            assert!(matches!(error, StoreError::LogPruned { oldest: 4 }), "{error}");
        }
        let first = store.log(4, 10).await.unwrap();
        assert_eq!(first.iter().map(|entry| (entry.seq, entry.record)).collect::<Vec<_>>(), [(5, None)]);
        assert_eq!(first[0].hash, first[0].expected_hash(&ZERO_HASH));
        let again = driver.create_record(&ann, "suite.task", json!({}), after_seconds(2)).await;
        assert_eq!(store.history(again, 0, 10).await.unwrap()[0].seq, 6);
        driver.lease_job(&bob, kept_record, after_seconds(2)).await;
        // The next checkpoint is chained to this one.
        driver.expect_refused(&user("eve"), fire_call(done, "move", json!({})), after_seconds(2)).await;
        let stub = driver.create_record(&ann, "suite.stub", json!({}), after_seconds(2)).await;
        driver.expect_taken(&ann, fire_call(stub, "tear", json!({})), after_seconds(2)).await;
        let PruneResult::Saved(second) = prune_records(store, load_for_prune(store, &[stub]).await).await else {
            panic!("the prune conflicts without another writer")
        };
        let log = store.log(second - 1, 1).await.unwrap();
        assert_eq!(log[0].hash, log[0].expected_hash(&first[0].hash));
        assert_eq!(load_checkpoint(store, second).await.previous_seq, Some(5));
        let prune_state = store.prune_state().await.unwrap();
        assert_eq!(
            prune_state,
            PruneState { checkpoint_seq: second, checkpoint_hash: log[0].hash, last_pruned_seq: second - 1 }
        );
    });
}

/// All records of the prune remain.
#[test]
fn prune_conflicts_when_record_or_referrers_changed() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let mut stubs = Vec::new();
        for _ in 0..3 {
            stubs.push(driver.create_record(&ann, "suite.stub", json!({}), start_time()).await);
        }
        driver.expect_taken(&ann, fire_call(stubs[0], "tear", json!({})), start_time()).await;
        let before = load_for_prune(store, &stubs[..2]).await;
        driver.expect_taken(&ann, fire_call(stubs[1], "tear", json!({})), start_time()).await;
        assert_eq!(prune_records(store, before).await, PruneResult::Conflict);
        let before = load_for_prune(store, &stubs[..2]).await;
        driver
            .expect_taken(&ann, fire_call(stubs[2], "renumber", json!({ "twin": stubs[0].to_string() })), start_time())
            .await;
        assert_eq!(prune_records(store, before).await, PruneResult::Conflict);
        assert_eq!(store.prune_state().await.unwrap(), PruneState::default());
        for stub in &stubs[..2] {
            assert_eq!(store.history(*stub, 0, 10).await.unwrap().len(), 2);
        }
        // With the new link loaded, the plan itself fails.
        let why =
            PrunePlan::build(load_for_prune(store, &stubs[..2]).await, start_time(), &driver.catalog).unwrap_err();
        assert_eq!(why, PruneBlocked { record: stubs[0], why: format!("{} refers to it and is not pruned", stubs[2]) });
        // Pruned together with its referrer, it goes.
        driver.expect_taken(&ann, fire_call(stubs[2], "tear", json!({})), start_time()).await;
        assert!(matches!(prune_records(store, load_for_prune(store, &stubs).await).await, PruneResult::Saved(_)));
        assert!(store.with_referrers(&stubs).await.unwrap().is_empty());
        assert_eq!(store.counts_by_state(None).await.unwrap(), []);
    });
}

#[test]
fn save_on_pruned_record_conflicts() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let stub = driver.create_record(&ann, "suite.stub", json!({}), start_time()).await;
        driver.expect_taken(&ann, fire_call(stub, "tear", json!({})), start_time()).await;
        let mut open = driver.new_batch(start_time());
        let pointing = create_call("suite.stub", json!({ "twin": stub.to_string() }));
        let operation = driver.operation(&ann, pointing.clone());
        driver.decide(&mut open, operation, start_time()).await;
        assert!(matches!(prune_records(store, load_for_prune(store, &[stub]).await).await, PruneResult::Saved(_)));
        let save = driver.save(&open).await;
        let gone = ReadKey::Record(stub);
        assert!(matches!(&save, SaveResult::Conflict(conflict) if conflict.changed_keys.contains(&gone)), "{save:?}");
        driver.expect_refused(&ann, pointing, start_time()).await;
    });
}

/// Permanent keys, permanent counters and balances remain. Keys and counters by state are released.
#[test]
fn checkpoint_keeps_permanent_keys_counters_and_balances() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let target = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
        let fields = json!({ "serial": "one", "seat": "1a", "price": 5, "box": target.to_string() });
        let stub = driver.create_record(&ann, "suite.stub", fields, start_time()).await;
        driver.expect_taken(&ann, fire_call(stub, "renumber", json!({ "serial": "two" })), start_time()).await;
        driver.expect_taken(&ann, fire_call(stub, "tear", json!({})), start_time()).await;
        let PruneResult::Saved(checkpoint_seq) = prune_records(store, load_for_prune(store, &[stub]).await).await
        else {
            panic!("the prune conflicts without another writer")
        };
        let unique = |name: &str, value: &str| UniqueKey {
            lifecycle: "suite.stub".into(),
            unique: name.into(),
            parts: vec![format!("s{value}").into()],
        };
        let count = |name: &str| CounterKey {
            lifecycle: "suite.stub".into(),
            limit: name.into(),
            parts: vec!["sann".into()],
            window_start: None,
        };
        let account = |name: &str| Account::Named { asset: "coin".into(), name: name.into() };
        let mut base = ReadSet::default();
        let keys = [
            ReadKey::Unique(unique("serial", "one")),
            ReadKey::Unique(unique("serial", "two")),
            ReadKey::Unique(unique("seat", "1a")),
            ReadKey::Counter(count("kept")),
            ReadKey::Counter(count("ever")),
            ReadKey::Account(account("mint")),
            ReadKey::Account(account("till:ann")),
        ];
        store.load(&mut base, &keys).await.unwrap();
        let snapshot = base.snapshot();
        assert_eq!(snapshot.unique_holders[&unique("serial", "one")], Some(stub));
        assert_eq!(snapshot.unique_holders[&unique("serial", "two")], Some(stub));
        assert_eq!(snapshot.unique_holders[&unique("seat", "1a")], None);
        assert_eq!((snapshot.counters[&count("kept")], snapshot.counters[&count("ever")]), (0, 1));
        assert_eq!((snapshot.accounts[&account("mint")], snapshot.accounts[&account("till:ann")]), (-5, 5));
        for serial in ["one", "two"] {
            let refusal = driver
                .expect_refused(&ann, create_call("suite.stub", json!({ "serial": serial })), after_seconds(2))
                .await;
            assert_eq!(&*refusal.code, "used");
        }
        driver.create_record(&ann, "suite.stub", json!({ "seat": "1a" }), after_seconds(2)).await;
        let loaded_checkpoint = load_checkpoint(store, checkpoint_seq).await;
        assert_eq!(
            loaded_checkpoint.accounts,
            [("coin".into(), "mint".into(), -5), ("coin".into(), "till:ann".into(), 5)]
        );
        // Balances include the pruned transfers; statements do not.
        for (name, balance) in [("mint", -5), ("till:ann", 5)] {
            let account = AccountName::new("coin", name);
            let statement =
                store.statement(&StatementQuery { account, before_seq: None, limit: 9 }).await.unwrap().unwrap();
            assert_eq!((statement.balance.balance, statement.entries), (balance, Vec::new()));
        }
        assert_eq!(loaded_checkpoint.counts, [(count("ever"), 1), (count("kept"), 1)]);
        let expected_keys = [(2, unique("serial", "one"), Some(stub)), (3, unique("serial", "two"), Some(stub))];
        assert_eq!(loaded_checkpoint.uniques, expected_keys, "the record claimed and released its seat");
        assert_eq!(loaded_checkpoint.released.uniques, [unique("seat", "1a")]);
        assert_eq!(loaded_checkpoint.released.counts, [(count("kept"), -1)]);
        assert_eq!(loaded_checkpoint.links, [(target, 2)], "the link was added and is now removed");
        // No record links to the box any more, and its link version has changed.
        assert_eq!(store.with_referrers(&[target]).await.unwrap()[0].referrers, []);
        assert_eq!(store.with_referrers(&[target]).await.unwrap()[0].link_version, 2);
    });
}

/// Each page scans a bounded number of records.
#[test]
fn prunable_pages_stop_at_cutoff() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let mut stubs = Vec::new();
        for number in 0..10 {
            let stub = driver.create_record(&ann, "suite.stub", json!({}), after_seconds(number)).await;
            if number % 3 != 0 {
                driver.expect_taken(&ann, fire_call(stub, "tear", json!({})), after_seconds(number)).await;
                stubs.push(stub);
            }
        }
        let (mut after, mut found, mut steps) = (0, Vec::new(), 0);
        loop {
            let page =
                store.prunable(&PrunableQuery { after_row: after, cutoff: after_seconds(5), limit: 2 }).await.unwrap();
            found.extend(page.records);
            steps += 1;
            let Some(next) = page.next else { break };
            after = next;
        }
        // The records of seconds 1, 2, 4 and 5. The page with 6 and 7 finds no prunable record.
        assert_eq!((found, steps), (stubs[..4].to_vec(), 4));
    });
}

#[test]
fn expired_idempotency_keys_are_deleted_in_pages() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let name = |number: i64| IdempotencyId { owner: "ann".into(), idempotency_key: format!("key {number}").into() };
        for number in 0..5 {
            let mut open = driver.new_batch(after_seconds(number));
            let operation = driver.operation(&user("ann"), create_call("suite.step", json!({})));
            driver.decide(&mut open, operation, after_seconds(number)).await;
            let request = IdempotencyRecord { id: name(number), request_digest: [1; 32], reply: "{}".into() };
            open.batch.operations[0].idempotency = Some(request);
            driver.save(&open).await;
        }
        let mut query = ExpiredKeysQuery { after: None, cutoff: after_seconds(2), limit: 2 };
        assert_eq!(
            store.delete_expired_keys(&query).await.unwrap(),
            ExpiredKeysPage { deleted: 2, next: Some(name(1)) }
        );
        query.after = Some(name(1));
        assert_eq!(
            store.delete_expired_keys(&query).await.unwrap(),
            ExpiredKeysPage { deleted: 1, next: Some(name(3)) }
        );
        query.after = Some(name(3));
        assert_eq!(store.delete_expired_keys(&query).await.unwrap(), ExpiredKeysPage { deleted: 0, next: None });
        for number in 0..5 {
            assert_eq!(store.idempotency_record(&name(number)).await.unwrap().is_some(), number > 2);
        }
    });
}

/// Pruning would delete the evidence of the damage.
#[test]
fn record_differing_from_its_log_is_not_prunable() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let stub = driver.create_record(&ann, "suite.stub", json!({ "price": 1 }), start_time()).await;
        driver.expect_taken(&ann, fire_call(stub, "tear", json!({})), start_time()).await;
        let intact = load_for_prune(store, &[stub]).await;
        let mut missing = intact.clone();
        missing[0].entries.remove(0);
        let mut other = intact.clone();
        other[0].entries[0].text = other[0].entries[0].text.replace("\"price\":1", "\"price\":2").into();
        let mut record = intact.clone();
        Arc::make_mut(&mut record[0].record).hold = 7;
        for damaged in [missing, other, record] {
            assert_eq!(PrunePlan::build(damaged, start_time(), &driver.catalog).unwrap_err().record, stub);
        }
        assert!(PrunePlan::build(intact, start_time(), &driver.catalog).is_ok());
    });
}

#[test]
fn payload_is_deleted_with_last_referencing_record() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let bytes: &[u8] = b"the same";
        let payload = PayloadRef { sha256: Sha256::digest(bytes).into(), bytes: 8 };
        let mut steps = Vec::new();
        // Referenced before it is saved, saved twice in one batch, and referenced again.
        for batch_payloads in [&[false][..], &[true, true], &[false]] {
            let mut open = driver.new_batch(start_time());
            for has_payload in batch_payloads {
                let Call::Create(create) = create_call("suite.step", json!({})) else {
                    panic!("the call is not a create")
                };
                let operation = driver.operation(&ann, Call::Create(CreateRecord { payload: Some(payload), ..create }));
                let Decision::Changes(changes) = driver.decide(&mut open, operation, start_time()).await else {
                    panic!("made")
                };
                steps.push(changes.subject);
                if *has_payload {
                    let write = open.batch.operations.last_mut().expect("the batch has an operation");
                    write.payloads.push(PayloadBytes { payload, bytes: bytes.into() });
                }
            }
            driver.save(&open).await;
            assert_eq!(store.payload(&payload.sha256).await.unwrap().is_some(), steps.len() > 1);
        }
        for step in &steps {
            driver.expect_taken(&ann, fire_call(*step, "skip", json!({})), start_time()).await;
        }
        for pruned in [&steps[1..3], &steps[..1]] {
            assert!(matches!(prune_records(store, load_for_prune(store, pruned).await).await, PruneResult::Saved(_)));
            assert_eq!(store.payload(&payload.sha256).await.unwrap().as_deref(), Some(bytes));
        }
        assert!(matches!(prune_records(store, load_for_prune(store, &steps[3..]).await).await, PruneResult::Saved(_)));
        assert_eq!(store.payload(&payload.sha256).await.unwrap(), None);
    });
}

/// Deletes all expired counters in small pages and returns their number.
async fn delete_counters(store: &AnyStore, window_cutoff: Option<Time>) -> u64 {
    let (mut query, mut deleted) = (ExpiredCountersQuery { after: None, window_cutoff, limit: 2 }, 0);
    loop {
        let page = store.delete_expired_counters(&query).await.expect("forgetting");
        deleted += page.deleted;
        let Some(next) = page.next else { return deleted };
        query.after = Some(next);
    }
}

/// Running jobs remain counted. A delayed job is found when it is due, although its key's counter was deleted.
#[test]
fn unused_concurrency_counters_are_deleted_without_losing_jobs() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let in_lane = |lane: &str| json!({ "lane": lane });
        for lane in ["a", "b", "c", "d", "e"] {
            let done = driver.create_record(&ann, "suite.task", in_lane(lane), start_time()).await;
            let token = driver.lease_job(&bob, done, start_time()).await;
            driver
                .expect_taken(&bob, Call::Commit { record: done, token, result: json!(1), finish: true }, start_time())
                .await;
        }
        let running = driver.create_record(&ann, "suite.task", in_lane("e"), start_time()).await;
        let token = driver.lease_job(&bob, running, start_time()).await;
        let fields = json!({ "lane": "late", "readyAt": after_seconds(60).to_string() });
        let delayed = driver.create_record(&ann, "suite.task", fields, start_time()).await;
        let gone = delete_counters(store, None).await;
        // The memory store may never create these counters.
        assert!(gone >= 4 || matches!(store, AnyStore::Memory(_)), "{gone}");
        assert_eq!(delete_counters(store, None).await, 0, "no expired counters remain");
        let counter_key = |lane: &str| CounterKey {
            lifecycle: "suite.task".into(),
            limit: "work.key".into(),
            parts: vec![format!("s{lane}").into()],
            window_start: None,
        };
        let mut base = ReadSet::uncached();
        store.load(&mut base, &["a", "e"].map(|lane| ReadKey::Counter(counter_key(lane)))).await.unwrap();
        assert_eq!(["a", "e"].map(|lane| base.snapshot().counters[&counter_key(lane)]), [0, 1]);
        // The lane has as many free slots as before.
        for lane in ["a", "a", "a"] {
            driver.create_record(&ann, "suite.task", in_lane(lane), after_seconds(1)).await;
        }
        let query = |now| LeaseQuery { lifecycles: vec!["suite.task".into()], now, limit: 10 };
        let found = store.lease_candidates(&query(after_seconds(1))).await.unwrap();
        assert_eq!(found.len(), 2);
        for candidate in &found {
            driver.lease_job(&bob, candidate.record, after_seconds(1)).await;
        }
        driver
            .expect_taken(
                &bob,
                Call::Commit { record: running, token, result: json!(1), finish: true },
                after_seconds(1),
            )
            .await;
        let found = store.lease_candidates(&query(after_seconds(60))).await.unwrap();
        let found: Vec<RecordId> = found.into_iter().map(|candidate| candidate.record).collect();
        assert!(found.contains(&delayed), "{found:?}");
        driver.lease_job(&bob, delayed, after_seconds(60)).await;
    });
}

/// The current window remains.
#[test]
fn expired_limit_windows_are_deleted() {
    let text = r#"
language  = 1
lifecycle = "suite.visit"
about     = "So many a minute"
[states]
over = { about = "done", final = true }
[limit]
rate = { on = ["owner"], per = "1m", max = 2, clash = "429 slow_down" }
[[on.create]]
go = "-> over"
"#;
    on_each_store(async |store, _| {
        let file = InputFile { name: "visit.toml".to_owned(), text: text.into() };
        store.put_lifecycles(&InputFiles { files: vec![file] }).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        for now in [start_time(), start_time(), after_seconds(60), after_seconds(61)] {
            driver.create_record(&ann, "suite.visit", json!({}), now).await;
        }
        assert_eq!(delete_counters(store, None).await, 0, "without a cutoff no window expires");
        assert_eq!(delete_counters(store, Some(after_seconds(60))).await, 1);
        assert_eq!(delete_counters(store, Some(after_seconds(60))).await, 0);
        let refused = driver.expect_refused(&ann, create_call("suite.visit", json!({})), after_seconds(62)).await;
        assert_eq!(&*refused.code, "slow_down");
    });
}
