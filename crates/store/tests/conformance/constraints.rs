//! What a store holds by itself, however wrong the code is that writes.

use std::sync::Arc;

use onceward_core::decide::{Account, Call, Changes, CountKey, LedgerMove};
use onceward_core::record::Record;
use onceward_core::value::RecordId;
use onceward_store::{AnyStore, Batch, Outcome, Save, Store, StoreError};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::stage::driver::{Driver, Open, create, fire};
use crate::stage::{on_each, start, suite};

/// Decide a call, spoil what was decided, and see that the store will not have it.
async fn spoiled(store: &AnyStore, open: &mut Open, spoil: impl FnOnce(&mut Changes)) {
    let Some(Outcome::Changes(changes)) = open.batch.writes.last_mut().map(|write| &mut write.outcome) else {
        panic!("nothing to spoil")
    };
    spoil(changes);
    let before = (store.log(0, 100).await.unwrap(), store.counts_by_state(None).await.unwrap());
    let saved = Driver::new(store).await.try_save(open).await;
    assert!(matches!(saved, Err(StoreError::Rejected(_))), "{saved:?}");
    let after = (store.log(0, 100).await.unwrap(), store.counts_by_state(None).await.unwrap());
    assert_eq!(before, after, "what is refused writes nothing");
}

fn change(changes: &mut Changes, change: impl FnOnce(&mut Record)) {
    change(Arc::make_mut(&mut changes.records[0].after));
}

/// At most one effect for a job, for ever.
#[test]
fn a_second_effect_is_refused() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let task = driver.create(&ann, "suite.task", json!({}), start()).await;
        let token = driver.lease(&bob, task, start()).await;
        let mut open = driver.open(start());
        let commit = Call::Commit { record: task, token, result: json!(1), finish: false };
        let operation = driver.operation(&bob, commit);
        driver.decide(&mut open, operation, start()).await;
        let effect = match &open.batch.writes[0].outcome {
            Outcome::Changes(changes) => changes.effects[0].clone(),
            other => panic!("{other:?}"),
        };
        // Twice in one batch.
        let again = effect.clone();
        let mut twice = open.clone();
        spoiled(store, &mut twice, |changes| changes.effects.push(again)).await;
        assert!(matches!(driver.save(&open).await, Save::Saved { .. }));
        // Once more later.
        let mut open = driver.open(start());
        let operation = driver.operation(&bob, Call::Finish { record: task, token });
        driver.decide(&mut open, operation, start()).await;
        spoiled(store, &mut open, |changes| changes.effects.push(effect)).await;
    });
}

#[test]
fn no_account_goes_below_nothing_but_those_outside() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let id = driver.create(&ann, "suite.box", json!({}), start()).await;
        driver.ok(&ann, fire(id, "earn", json!({ "amount": 5 })), start()).await;
        let named = |name: &str| Account::Named { asset: "coin".into(), name: name.into() };
        let mut open = driver.open(start());
        let operation = driver.operation(&ann, fire(id, "spend", json!({ "amount": 5 })));
        driver.decide(&mut open, operation, start()).await;
        spoiled(store, &mut open.clone(), |changes| {
            changes.moves.push(LedgerMove { from: named("purse:ann"), to: named("mint"), amount: 1, cause: id });
        })
        .await;
        spoiled(store, &mut open.clone(), |changes| {
            for _ in 0..3 {
                changes.moves.push(LedgerMove {
                    from: named("mint"),
                    to: named("shop"),
                    amount: i64::MAX / 2,
                    cause: id,
                });
            }
        })
        .await;
        spoiled(store, &mut open.clone(), |changes| change(changes, |record| record.hold = -1)).await;
        assert!(matches!(driver.save(&open).await, Save::Saved { .. }));
    });
}

#[test]
fn a_record_is_not_made_over_another() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let id = driver.create(&ann, "suite.step", json!({}), start()).await;
        let mut open = driver.open(start());
        let operation = driver.operation(&ann, create("suite.step", json!({})));
        driver.decide(&mut open, operation, start()).await;
        spoiled(store, &mut open, |changes| change(changes, |record| record.id = id)).await;
    });
}

#[test]
fn a_count_does_not_go_below_none() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let mut open = driver.open(start());
        let operation = driver.operation(&user("ann"), create("suite.step", json!({})));
        driver.decide(&mut open, operation, start()).await;
        let key = CountKey { lifecycle: "suite.box".into(), limit: "open".into(), parts: vec![], window: None };
        spoiled(store, &mut open, |changes| changes.counts.push((key, -1))).await;
    });
}

/// A record of a version that the store was never given could not be read again.
#[test]
fn a_lifecycle_that_was_never_given_is_refused() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let mut open = driver.open(start());
        let operation = driver.operation(&user("ann"), create("suite.step", json!({})));
        driver.decide(&mut open, operation, start()).await;
        let Outcome::Changes(changes) = &mut open.batch.writes[0].outcome else { panic!("made") };
        change(changes, |record| Arc::make_mut(&mut record.lifecycle).hash = "0".repeat(64).into());
        let saved = driver.try_save(&open).await;
        assert!(matches!(saved, Err(StoreError::UnknownDefinition { .. })), "{saved:?}");
    });
}

/// A batch of nothing is saved as nothing.
#[test]
fn an_empty_batch_is_no_matter() {
    on_each(async |store, _| {
        let batch = Batch { writes: Vec::new(), now: start(), catalog: 0 };
        let saved = store.save(&Arc::default(), &Arc::new(batch)).await.unwrap();
        assert_eq!(saved, Save::Saved { first: 1, last: 0 });
        assert!(store.record(RecordId(uuid::Uuid::nil())).await.unwrap().is_none());
    });
}
