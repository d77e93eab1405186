//! A save detects changed values and then writes nothing.

use onceward_core::decide::{Account, Call, ReadKey};
use onceward_core::record::Actor;
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_store::{AnyStore, IdempotencyId, IdempotencyRecord, ReadSet, SaveResult, Store};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::support::driver::{StoreDriver, create_call, fire_call};
use crate::support::{on_each_store, start_time, suite_files};

/// Decides one call, saves a concurrent one, then saves the first and returns the conflicting keys.
async fn save_after_concurrent_call(
    store: &AnyStore,
    actor: &Actor,
    call: Call,
    concurrent: (&Actor, Call),
    now: Time,
) -> Vec<ReadKey> {
    let mut driver = StoreDriver::new(store).await;
    // Ids of new records derive from seeds, so skip the seeds of an earlier driver.
    let log_len = store.log(0, 1_000).await.unwrap().len();
    for _ in 0..=3 * log_len {
        let _ = driver.operation(actor, call.clone());
    }
    let mut pending = driver.new_batch(now);
    let operation = driver.operation(actor, call.clone());
    let decision = driver.decide(&mut pending, operation, now).await;
    assert_eq!(pending.batch.operations.len(), 1, "{decision:?}");
    driver.expect_taken(concurrent.0, concurrent.1, now).await;
    let before = (store.log(0, 1_000).await.unwrap(), store.counts_by_state(None).await.unwrap());
    let save = driver.save(&pending).await;
    let SaveResult::Conflict(conflict) = save else { panic!("{call:?} was saved over a change: {save:?}") };
    let after = (store.log(0, 1_000).await.unwrap(), store.counts_by_state(None).await.unwrap());
    assert_eq!(before, after, "a conflict writes nothing");
    // Loaded and decided again, it succeeds.
    let mut retry = driver.new_batch(now);
    let mut read_set = ReadSet::default();
    store.load(&mut read_set, &pending.read_set.loaded_keys()).await.unwrap();
    retry.read_set = read_set;
    driver.decide(&mut retry, pending.batch.operations[0].operation.clone(), now).await;
    assert!(matches!(driver.save(&retry).await, SaveResult::Saved { .. }));
    conflict.changed_keys
}

async fn create_record(store: &AnyStore, lifecycle: &str, fields: serde_json::Value) -> RecordId {
    let mut driver = StoreDriver::new(store).await;
    for _ in 0..100 * (1 + store.log(0, 1_000).await.unwrap().len()) {
        let _ = driver.operation(&user("ann"), create_call(lifecycle, json!({})));
    }
    driver.create_record(&user("ann"), lifecycle, fields, start_time()).await
}

#[test]
fn save_conflicts_when_record_changed() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let (ann, id) = (user("ann"), create_record(store, "suite.box", json!({})).await);
        let write = |number: i64| fire_call(id, "write", json!({ "number": number }));
        assert_eq!(
            save_after_concurrent_call(store, &ann, write(1), (&ann, write(2)), start_time()).await,
            [ReadKey::Record(id)]
        );
        assert_eq!(store.record(id).await.unwrap().unwrap().version, 3);
    });
}

/// A heartbeat does not raise the version, so `save` must compare the expiry.
#[test]
fn save_conflicts_when_lease_was_extended() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let (bob, id) = (worker("bob"), create_record(store, "suite.task", json!({})).await);
        let token = StoreDriver::new(store).await.lease_job(&bob, id, start_time()).await;
        let expires_at = start_time().checked_add(Duration::from_secs(30)).unwrap();
        let driver = StoreDriver::new(store).await;
        let mut open = driver.new_batch(expires_at);
        let operation = onceward_core::decide::Operation {
            seed: 1,
            actor: Actor::engine(),
            call: Call::FireDue { record: id },
            check_answers: Vec::new(),
            trace: None,
        };
        driver.decide(&mut open, operation, expires_at).await;
        let heartbeat = Call::Heartbeat { record: id, token, lease: None };
        let just_before = expires_at.checked_sub(Duration::from_micros(1)).unwrap();
        StoreDriver::new(store).await.expect_taken(&bob, heartbeat, just_before).await;
        let SaveResult::Conflict(conflict) = driver.save(&open).await else { panic!("the extended lease was lost") };
        assert_eq!(conflict.changed_keys, [ReadKey::Record(id)]);
    });
}

#[test]
fn save_conflicts_when_unique_key_was_taken() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let ann = user("ann");
        let (one, two) =
            (create_record(store, "suite.box", json!({})).await, create_record(store, "suite.box", json!({})).await);
        let call = |id| fire_call(id, "write", json!({ "name": "mine" }));
        let keys = save_after_concurrent_call(store, &ann, call(one), (&ann, call(two)), start_time()).await;
        assert!(matches!(&keys[..], [ReadKey::Unique(key)] if &*key.parts[0] == "smine"), "{keys:?}");
        assert_eq!(store.record(one).await.unwrap().unwrap().version, 1, "the second decision refuses");
    });
}

#[test]
fn save_conflicts_when_counter_changed() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let ann = user("ann");
        let call = || create_call("suite.box", json!({}));
        let keys = save_after_concurrent_call(store, &ann, call(), (&ann, call()), start_time()).await;
        assert!(matches!(&keys[..], [ReadKey::Counter(key)] if &*key.limit == "open"), "{keys:?}");
    });
}

#[test]
fn save_conflicts_when_account_changed() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let ann = user("ann");
        let (one, two) =
            (create_record(store, "suite.box", json!({})).await, create_record(store, "suite.box", json!({})).await);
        let pay = |id, event: &str, amount: i64| fire_call(id, event, json!({ "amount": amount }));
        StoreDriver::new(store).await.expect_taken(&ann, pay(one, "earn", 10), start_time()).await;
        let keys =
            save_after_concurrent_call(store, &ann, pay(one, "spend", 6), (&ann, pay(two, "spend", 6)), start_time())
                .await;
        let purse = Account::Named { asset: "coin".into(), name: "purse:ann".into() };
        assert_eq!(keys, [ReadKey::Account(purse)]);
        assert_eq!(
            store.record(one).await.unwrap().unwrap().version,
            2,
            "the second decision refuses for insufficient funds"
        );
    });
}

#[test]
fn save_conflicts_when_links_changed() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let (ann, id) = (user("ann"), create_record(store, "suite.box", json!({})).await);
        let join = create_call("suite.task", json!({ "box": id.to_string() }));
        let keys =
            save_after_concurrent_call(store, &ann, fire_call(id, "empty", json!({})), (&ann, join), start_time())
                .await;
        assert!(matches!(&keys[..], [ReadKey::Links(key)] if key.target == id), "{keys:?}");
        assert_eq!(
            &**store.record(id).await.unwrap().unwrap().state_name(),
            "open",
            "a task joined between load and save"
        );
    });
}

#[test]
fn save_conflicts_when_ordered_queue_changed() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let (ann, bob) = (user("ann"), worker("bob"));
        let first = create_record(store, "suite.step", json!({ "line": "a" })).await;
        let second = create_record(store, "suite.step", json!({ "line": "a" })).await;
        StoreDriver::new(store).await.expect_taken(&ann, fire_call(first, "skip", json!({})), start_time()).await;
        // An older job enters the queue, because the clock was behind when it was created.
        let earlier = start_time().checked_sub(Duration::from_secs(60)).unwrap();
        let mut driver = StoreDriver::new(store).await;
        let mut open = driver.new_batch(start_time());
        let lease = Call::Lease { record: second, worker: "w".into(), lease: None, start: true };
        let operation = driver.operation(&bob, lease);
        driver.decide(&mut open, operation, start_time()).await;
        for _ in 0..10_000 {
            let _ = driver.operation(&ann, create_call("suite.step", json!({})));
        }
        driver.create_record(&ann, "suite.step", json!({ "line": "a" }), earlier).await;
        let SaveResult::Conflict(conflict) = driver.save(&open).await else { panic!("leased out of turn") };
        assert!(
            matches!(&conflict.changed_keys[..], [ReadKey::ConcurrencyQueue(key)] if &*key.parts[0] == "sa"),
            "{conflict:?}"
        );
    });
}

/// Covers duplicates in one batch and in two batches.
#[test]
fn duplicate_idempotency_key_conflicts_on_save() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let request = IdempotencyRecord {
            id: IdempotencyId { owner: "ann".into(), idempotency_key: "k".into() },
            request_digest: [3; 32],
            reply: "{\"id\": 1}".into(),
        };
        let mut pending_batches = Vec::new();
        for _ in 0..3 {
            let mut open = driver.new_batch(start_time());
            let operation = driver.operation(&user("ann"), create_call("suite.step", json!({})));
            driver.decide(&mut open, operation, start_time()).await;
            open.batch.operations[0].idempotency = Some(request.clone());
            pending_batches.push(open);
        }
        let mut twice = pending_batches[0].clone();
        let again = pending_batches[1].batch.operations[0].clone();
        twice.batch.operations.push(again);
        assert!(
            matches!(driver.save(&twice).await, SaveResult::Conflict(found) if found.answered_ids == [request.id.clone()])
        );
        assert_eq!(store.idempotency_record(&request.id).await.unwrap(), None);
        assert!(matches!(driver.save(&pending_batches[0]).await, SaveResult::Saved { .. }));
        assert_eq!(store.idempotency_record(&request.id).await.unwrap(), Some(request.clone()));
        // Results have the order of the ids, including duplicates.
        let other = IdempotencyId { idempotency_key: "another".into(), ..request.id.clone() };
        let queried = [other.clone(), request.id.clone(), other, request.id.clone()];
        let found = [None, Some(request.clone()), None, Some(request.clone())];
        assert_eq!(store.idempotency_records(&queried).await.unwrap(), found);
        assert_eq!(store.idempotency_records(&[]).await.unwrap(), []);
        let second = driver.save(&pending_batches[2]).await;
        assert!(
            matches!(second, SaveResult::Conflict(found) if found.changed_keys.is_empty() && found.answered_ids == [request.id])
        );
        assert_eq!(store.log(0, 10).await.unwrap().len(), 1);
    });
}

/// Values that were not loaded cannot be compared.
#[test]
fn save_conflicts_when_read_set_lacks_read_keys() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let id = create_record(store, "suite.box", json!({})).await;
        let mut driver = StoreDriver::new(store).await;
        let mut open = driver.new_batch(start_time());
        let operation = driver.operation(&user("ann"), fire_call(id, "write", json!({ "number": 1 })));
        driver.decide(&mut open, operation, start_time()).await;
        open.read_set = ReadSet::default();
        assert!(matches!(driver.save(&open).await, SaveResult::Conflict(_)));
    });
}
