//! Later operations of a batch see the earlier ones, also in what is loaded only afterwards.

use onceward_core::decide::{Call, Decision};
use onceward_core::record::{Actor, Token};
use onceward_core::value::RecordId;
use onceward_store::{AnyStore, Save, Store};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::stage::driver::{Driver, Open, create, fire};
use crate::stage::{on_each, start, suite};

async fn add(driver: &mut Driver<'_, AnyStore>, open: &mut Open, actor: &Actor, call: Call) -> Decision {
    let operation = driver.operation(actor, call);
    driver.decide(open, operation, start()).await
}

fn subject(decision: &Decision) -> RecordId {
    match decision {
        Decision::Changes(changes) => changes.subject,
        other => panic!("not taken: {other:?}"),
    }
}

fn code(decision: &Decision) -> &str {
    match decision {
        Decision::Refusal(refusal) => &refusal.code,
        other => panic!("not refused: {other:?}"),
    }
}

fn lease(record: RecordId) -> Call {
    Call::Lease { record, worker: "w".into(), lease: None, start: true }
}

/// A whole life in one batch: made, leased, committed, finished.
#[test]
fn a_whole_life() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let mut open = driver.open(start());
        let task = subject(&add(&mut driver, &mut open, &ann, create("suite.task", json!({ "lane": "a" }))).await);
        subject(&add(&mut driver, &mut open, &bob, lease(task)).await);
        let beat = Call::Heartbeat { record: task, token: Token(1), lease: None };
        subject(&add(&mut driver, &mut open, &bob, beat).await);
        let commit = Call::Commit { record: task, token: Token(1), result: json!(1), finish: true };
        subject(&add(&mut driver, &mut open, &bob, commit).await);
        assert_eq!(driver.save(&open).await, Save::Saved { first: 1, last: 3 });
        let kept = store.record(task).await.unwrap().unwrap();
        assert_eq!((&**kept.state_name(), kept.version), ("done", 3));
        assert_eq!(store.history(task, 0, 10).await.unwrap().len(), 3);
        assert!(store.effect(task).await.unwrap().is_some());
        assert_eq!(store.due(onceward_core::time::Time::MAX, 10).await.unwrap(), []);
    });
}

/// A report on an attempt that began and ended in the same batch: the store has never heard of it.
#[test]
fn an_older_attempt() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let task = driver.create(&ann, "suite.task", json!({}), start()).await;
        let mut open = driver.open(start());
        subject(&add(&mut driver, &mut open, &bob, lease(task)).await);
        let give_back = Call::Yield { record: task, token: Token(1) };
        subject(&add(&mut driver, &mut open, &bob, give_back.clone()).await);
        subject(&add(&mut driver, &mut open, &bob, lease(task)).await);
        let again = add(&mut driver, &mut open, &bob, give_back).await;
        assert!(matches!(again, Decision::NoOp(_)), "{again:?}");
        assert_eq!(driver.save(&open).await, Save::Saved { first: 2, last: 4 });
        assert_eq!(store.executions(task).await.unwrap().len(), 2);
    });
}

/// Money that came in the same batch can be spent, and no more than that, though its account was not loaded when it came.
#[test]
fn an_account() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let id = driver.create(&ann, "suite.box", json!({}), start()).await;
        let pay = |event: &str, amount: i64| fire(id, event, json!({ "amount": amount }));
        let mut open = driver.open(start());
        subject(&add(&mut driver, &mut open, &ann, pay("earn", 5)).await);
        assert_eq!(code(&add(&mut driver, &mut open, &ann, pay("spend", 6)).await), "insufficient_funds");
        subject(&add(&mut driver, &mut open, &ann, pay("spend", 5)).await);
        assert_eq!(code(&add(&mut driver, &mut open, &ann, pay("spend", 1)).await), "insufficient_funds");
        assert!(matches!(driver.save(&open).await, Save::Saved { .. }));
    });
}

/// A place that became free in the same batch can be taken, and only that one.
#[test]
fn a_count() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let mut boxes = Vec::new();
        for _ in 0..10 {
            boxes.push(driver.create(&ann, "suite.box", json!({}), start()).await);
        }
        let mut open = driver.open(start());
        subject(&add(&mut driver, &mut open, &ann, fire(boxes[0], "empty", json!({}))).await);
        subject(&add(&mut driver, &mut open, &ann, create("suite.box", json!({}))).await);
        assert_eq!(code(&add(&mut driver, &mut open, &ann, create("suite.box", json!({}))).await), "too_many");
        assert!(matches!(driver.save(&open).await, Save::Saved { .. }));
    });
}

#[test]
fn a_unique_key() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let named = || create("suite.box", json!({ "name": "n" }));
        let old = driver.ok(&ann, named(), start()).await.subject;
        let mut open = driver.open(start());
        assert_eq!(code(&add(&mut driver, &mut open, &ann, named()).await), "taken");
        subject(&add(&mut driver, &mut open, &ann, fire(old, "empty", json!({}))).await);
        subject(&add(&mut driver, &mut open, &ann, named()).await);
        assert_eq!(code(&add(&mut driver, &mut open, &ann, named()).await), "taken");
        assert!(matches!(driver.save(&open).await, Save::Saved { .. }));
    });
}

/// A key that was let go of in the batch, without anybody having asked who held it, can be claimed.
#[test]
fn a_unique_key_that_was_not_loaded() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let named = || create("suite.box", json!({ "name": "n" }));
        let old = driver.ok(&ann, named(), start()).await.subject;
        let mut open = driver.open(start());
        subject(&add(&mut driver, &mut open, &ann, fire(old, "empty", json!({}))).await);
        let new = subject(&add(&mut driver, &mut open, &ann, named()).await);
        // Something else is saved in between, so that all that was read is compared.
        driver.create(&user("bob"), "suite.step", json!({}), start()).await;
        assert!(matches!(driver.save(&open).await, Save::Saved { .. }));
        assert_eq!(driver.refused(&ann, named(), start()).await.code.as_ref(), "taken");
        assert_eq!(&**store.record(new).await.unwrap().unwrap().state_name(), "open");
    });
}

#[test]
fn links() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let id = driver.create(&ann, "suite.box", json!({}), start()).await;
        let old = driver.create(&ann, "suite.task", json!({ "box": id.to_string() }), start()).await;
        let mut open = driver.open(start());
        subject(&add(&mut driver, &mut open, &ann, fire(old, "move", json!({ "box": null }))).await);
        let new = create("suite.task", json!({ "box": id.to_string() }));
        let new = subject(&add(&mut driver, &mut open, &ann, new).await);
        assert_eq!(code(&add(&mut driver, &mut open, &ann, fire(id, "empty", json!({}))).await), "not_empty");
        subject(&add(&mut driver, &mut open, &ann, fire(new, "move", json!({ "box": null }))).await);
        subject(&add(&mut driver, &mut open, &ann, fire(id, "empty", json!({}))).await);
        assert!(matches!(driver.save(&open).await, Save::Saved { .. }));
    });
}

/// Who is first in an ordered line, with some that the store knows and some that it does not yet.
#[test]
fn a_queue() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let step = || create("suite.step", json!({ "line": "a" }));
        let mut old = Vec::new();
        for _ in 0..2 {
            old.push(driver.ok(&ann, step(), start()).await.subject);
        }
        let mut open = driver.open(start());
        let new = subject(&add(&mut driver, &mut open, &ann, step()).await);
        assert_eq!(code(&add(&mut driver, &mut open, &bob, lease(new)).await), "not_first");
        assert_eq!(code(&add(&mut driver, &mut open, &bob, lease(old[1])).await), "not_first");
        subject(&add(&mut driver, &mut open, &ann, fire(old[0], "skip", json!({}))).await);
        assert_eq!(code(&add(&mut driver, &mut open, &bob, lease(new)).await), "not_first");
        subject(&add(&mut driver, &mut open, &bob, lease(old[1])).await);
        let commit = Call::Commit { record: old[1], token: Token(1), result: json!(1), finish: true };
        subject(&add(&mut driver, &mut open, &bob, commit).await);
        let last = subject(&add(&mut driver, &mut open, &ann, step()).await);
        assert_eq!(code(&add(&mut driver, &mut open, &bob, lease(last)).await), "not_first");
        subject(&add(&mut driver, &mut open, &bob, lease(new)).await);
        assert!(matches!(driver.save(&open).await, Save::Saved { .. }));
        assert_eq!(driver.refused(&bob, lease(last), start()).await.code.as_ref(), "not_first");
    });
}
