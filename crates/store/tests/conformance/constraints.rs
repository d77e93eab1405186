//! Constraints that a store enforces even if the engine is wrong.

use std::sync::Arc;

use onceward_core::decide::{Account, Call, Changes, CounterKey, Transfer};
use onceward_core::record::Record;
use onceward_core::value::RecordId;
use onceward_store::{AnyStore, Batch, OperationOutcome, SaveResult, Store, StoreError};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::support::driver::{DriverBatch, StoreDriver, create_call, fire_call};
use crate::support::{on_each_store, start_time, suite_files};

/// Corrupts the last decision of a batch and asserts that the store rejects it.
async fn assert_rejected(store: &AnyStore, pending: &mut DriverBatch, corrupt: impl FnOnce(&mut Changes)) {
    let Some(OperationOutcome::Changes(changes)) = pending.batch.operations.last_mut().map(|write| &mut write.outcome)
    else {
        panic!("the batch has no change to corrupt")
    };
    corrupt(changes);
    let before = (store.log(0, 100).await.unwrap(), store.counts_by_state(None).await.unwrap());
    let saved = StoreDriver::new(store).await.try_save(pending).await;
    assert!(matches!(saved, Err(StoreError::Rejected(_))), "{saved:?}");
    let after = (store.log(0, 100).await.unwrap(), store.counts_by_state(None).await.unwrap());
    assert_eq!(before, after, "a rejected batch writes nothing");
}

fn edit_first_record(changes: &mut Changes, change: impl FnOnce(&mut Record)) {
    change(Arc::make_mut(&mut changes.records[0].after));
}

#[test]
fn second_effect_of_job_is_rejected() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let task = driver.create_record(&ann, "suite.task", json!({}), start_time()).await;
        let token = driver.lease_job(&bob, task, start_time()).await;
        let mut open = driver.new_batch(start_time());
        let commit = Call::Commit { record: task, token, result: json!(1), finish: false };
        let operation = driver.operation(&bob, commit);
        driver.decide(&mut open, operation, start_time()).await;
        let effect = match &open.batch.operations[0].outcome {
            OperationOutcome::Changes(changes) => changes.effects[0].clone(),
            other => panic!("{other:?}"),
        };
        // Twice in one batch.
        let again = effect.clone();
        let mut twice = open.clone();
        assert_rejected(store, &mut twice, |changes| changes.effects.push(again)).await;
        assert!(matches!(driver.save(&open).await, SaveResult::Saved { .. }));
        // Again in a later batch.
        let mut open = driver.new_batch(start_time());
        let operation = driver.operation(&bob, Call::Finish { record: task, token });
        driver.decide(&mut open, operation, start_time()).await;
        assert_rejected(store, &mut open, |changes| changes.effects.push(effect)).await;
    });
}

#[test]
fn negative_balance_of_inside_account_is_rejected() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let id = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
        driver.expect_taken(&ann, fire_call(id, "earn", json!({ "amount": 5 })), start_time()).await;
        let named = |name: &str| Account::Named { asset: "coin".into(), name: name.into() };
        let mut open = driver.new_batch(start_time());
        let operation = driver.operation(&ann, fire_call(id, "spend", json!({ "amount": 5 })));
        driver.decide(&mut open, operation, start_time()).await;
        assert_rejected(store, &mut open.clone(), |changes| {
            changes.transfers.push(Transfer { from: named("purse:ann"), to: named("mint"), amount: 1, caused_by: id });
        })
        .await;
        assert_rejected(store, &mut open.clone(), |changes| {
            for _ in 0..3 {
                changes.transfers.push(Transfer {
                    from: named("mint"),
                    to: named("shop"),
                    amount: i64::MAX / 2,
                    caused_by: id,
                });
            }
        })
        .await;
        assert_rejected(store, &mut open.clone(), |changes| edit_first_record(changes, |record| record.hold = -1))
            .await;
        assert!(matches!(driver.save(&open).await, SaveResult::Saved { .. }));
    });
}

#[test]
fn duplicate_record_id_is_rejected() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let id = driver.create_record(&ann, "suite.step", json!({}), start_time()).await;
        let mut open = driver.new_batch(start_time());
        let operation = driver.operation(&ann, create_call("suite.step", json!({})));
        driver.decide(&mut open, operation, start_time()).await;
        assert_rejected(store, &mut open, |changes| edit_first_record(changes, |record| record.id = id)).await;
    });
}

#[test]
fn negative_counter_is_rejected() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let mut open = driver.new_batch(start_time());
        let operation = driver.operation(&user("ann"), create_call("suite.step", json!({})));
        driver.decide(&mut open, operation, start_time()).await;
        let key = CounterKey { lifecycle: "suite.box".into(), limit: "open".into(), parts: vec![], window_start: None };
        assert_rejected(store, &mut open, |changes| changes.counter_deltas.push((key, -1))).await;
    });
}

/// Such a record could not be read again.
#[test]
fn record_of_unknown_lifecycle_version_is_rejected() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let mut open = driver.new_batch(start_time());
        let operation = driver.operation(&user("ann"), create_call("suite.step", json!({})));
        driver.decide(&mut open, operation, start_time()).await;
        let OperationOutcome::Changes(changes) = &mut open.batch.operations[0].outcome else { panic!("made") };
        edit_first_record(changes, |record| Arc::make_mut(&mut record.lifecycle).hash = "0".repeat(64).into());
        let saved = driver.try_save(&open).await;
        assert!(matches!(saved, Err(StoreError::UnknownVersion { .. })), "{saved:?}");
    });
}

#[test]
fn empty_batch_saves_nothing() {
    on_each_store(async |store, _| {
        let batch = Batch { operations: Vec::new(), decided_at: start_time(), catalog_revision: 0 };
        let saved = store.save(&Arc::default(), &Arc::new(batch)).await.unwrap();
        assert_eq!(saved, SaveResult::Saved { first_seq: 1, last_seq: 0 });
        assert!(store.record(RecordId(uuid::Uuid::nil())).await.unwrap().is_none());
    });
}
