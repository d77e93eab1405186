//! Later operations of a batch see the earlier ones, even in values that are loaded later.

use onceward_core::decide::{Call, Decision};
use onceward_core::record::{Actor, FencingToken};
use onceward_core::value::RecordId;
use onceward_store::{AnyStore, SaveResult, Store};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::support::driver::{DriverBatch, StoreDriver, create_call, fire_call};
use crate::support::{on_each_store, start_time, suite_files};

async fn decide_in_batch(
    driver: &mut StoreDriver<'_, AnyStore>,
    pending: &mut DriverBatch,
    actor: &Actor,
    call: Call,
) -> Decision {
    let operation = driver.operation(actor, call);
    driver.decide(pending, operation, start_time()).await
}

fn taken_subject(decision: &Decision) -> RecordId {
    match decision {
        Decision::Changes(changes) => changes.subject,
        other => panic!("not taken: {other:?}"),
    }
}

fn refusal_code(decision: &Decision) -> &str {
    match decision {
        Decision::Refusal(refusal) => &refusal.code,
        other => panic!("not refused: {other:?}"),
    }
}

fn lease_call(record: RecordId) -> Call {
    Call::Lease { record, worker: "w".into(), lease: None, start: true }
}

#[test]
fn job_is_created_leased_and_committed_in_one_batch() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let mut open = driver.new_batch(start_time());
        let task = taken_subject(
            &decide_in_batch(&mut driver, &mut open, &ann, create_call("suite.task", json!({ "lane": "a" }))).await,
        );
        taken_subject(&decide_in_batch(&mut driver, &mut open, &bob, lease_call(task)).await);
        let heartbeat = Call::Heartbeat { record: task, token: FencingToken(1), lease: None };
        taken_subject(&decide_in_batch(&mut driver, &mut open, &bob, heartbeat).await);
        let commit = Call::Commit { record: task, token: FencingToken(1), result: json!(1), finish: true };
        taken_subject(&decide_in_batch(&mut driver, &mut open, &bob, commit).await);
        assert_eq!(driver.save(&open).await, SaveResult::Saved { first_seq: 1, last_seq: 3 });
        let record = store.record(task).await.unwrap().unwrap();
        assert_eq!((&**record.state_name(), record.version), ("done", 3));
        assert_eq!(store.history(task, 0, 10).await.unwrap().len(), 3);
        assert!(store.effect(task).await.unwrap().is_some());
        assert_eq!(store.due_records(onceward_core::time::Time::MAX, 10).await.unwrap(), []);
    });
}

/// The execution began and ended in the batch, so it was never stored.
#[test]
fn repeated_yield_of_execution_ended_in_batch_is_no_op() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let task = driver.create_record(&ann, "suite.task", json!({}), start_time()).await;
        let mut open = driver.new_batch(start_time());
        taken_subject(&decide_in_batch(&mut driver, &mut open, &bob, lease_call(task)).await);
        let yield_job = Call::Yield { record: task, token: FencingToken(1) };
        taken_subject(&decide_in_batch(&mut driver, &mut open, &bob, yield_job.clone()).await);
        taken_subject(&decide_in_batch(&mut driver, &mut open, &bob, lease_call(task)).await);
        let again = decide_in_batch(&mut driver, &mut open, &bob, yield_job).await;
        assert!(matches!(again, Decision::NoOp(_)), "{again:?}");
        assert_eq!(driver.save(&open).await, SaveResult::Saved { first_seq: 2, last_seq: 4 });
        assert_eq!(store.executions(task).await.unwrap().len(), 2);
    });
}

/// The account is loaded only after the first transfer.
#[test]
fn batch_sees_account_balance_of_earlier_operations() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let id = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
        let pay = |event: &str, amount: i64| fire_call(id, event, json!({ "amount": amount }));
        let mut open = driver.new_batch(start_time());
        taken_subject(&decide_in_batch(&mut driver, &mut open, &ann, pay("earn", 5)).await);
        assert_eq!(
            refusal_code(&decide_in_batch(&mut driver, &mut open, &ann, pay("spend", 6)).await),
            "insufficient_funds"
        );
        taken_subject(&decide_in_batch(&mut driver, &mut open, &ann, pay("spend", 5)).await);
        assert_eq!(
            refusal_code(&decide_in_batch(&mut driver, &mut open, &ann, pay("spend", 1)).await),
            "insufficient_funds"
        );
        assert!(matches!(driver.save(&open).await, SaveResult::Saved { .. }));
    });
}

#[test]
fn batch_sees_limit_freed_by_earlier_operation() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let mut boxes = Vec::new();
        for _ in 0..10 {
            boxes.push(driver.create_record(&ann, "suite.box", json!({}), start_time()).await);
        }
        let mut open = driver.new_batch(start_time());
        taken_subject(&decide_in_batch(&mut driver, &mut open, &ann, fire_call(boxes[0], "empty", json!({}))).await);
        taken_subject(&decide_in_batch(&mut driver, &mut open, &ann, create_call("suite.box", json!({}))).await);
        assert_eq!(
            refusal_code(&decide_in_batch(&mut driver, &mut open, &ann, create_call("suite.box", json!({}))).await),
            "too_many"
        );
        assert!(matches!(driver.save(&open).await, SaveResult::Saved { .. }));
    });
}

#[test]
fn batch_sees_unique_key_freed_by_earlier_operation() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let named = || create_call("suite.box", json!({ "name": "n" }));
        let old = driver.expect_taken(&ann, named(), start_time()).await.subject;
        let mut open = driver.new_batch(start_time());
        assert_eq!(refusal_code(&decide_in_batch(&mut driver, &mut open, &ann, named()).await), "taken");
        taken_subject(&decide_in_batch(&mut driver, &mut open, &ann, fire_call(old, "empty", json!({}))).await);
        taken_subject(&decide_in_batch(&mut driver, &mut open, &ann, named()).await);
        assert_eq!(refusal_code(&decide_in_batch(&mut driver, &mut open, &ann, named()).await), "taken");
        assert!(matches!(driver.save(&open).await, SaveResult::Saved { .. }));
    });
}

/// The batch releases the key without loading its holder.
#[test]
fn unloaded_unique_key_freed_in_batch_can_be_claimed() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let named = || create_call("suite.box", json!({ "name": "n" }));
        let old = driver.expect_taken(&ann, named(), start_time()).await.subject;
        let mut open = driver.new_batch(start_time());
        taken_subject(&decide_in_batch(&mut driver, &mut open, &ann, fire_call(old, "empty", json!({}))).await);
        let new = taken_subject(&decide_in_batch(&mut driver, &mut open, &ann, named()).await);
        // Save something else in between, so that all values read are compared.
        driver.create_record(&user("bob"), "suite.step", json!({}), start_time()).await;
        assert!(matches!(driver.save(&open).await, SaveResult::Saved { .. }));
        assert_eq!(driver.expect_refused(&ann, named(), start_time()).await.code.as_ref(), "taken");
        assert_eq!(&**store.record(new).await.unwrap().unwrap().state_name(), "open");
    });
}

#[test]
fn batch_sees_links_changed_by_earlier_operations() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let id = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
        let old = driver.create_record(&ann, "suite.task", json!({ "box": id.to_string() }), start_time()).await;
        let mut open = driver.new_batch(start_time());
        taken_subject(
            &decide_in_batch(&mut driver, &mut open, &ann, fire_call(old, "move", json!({ "box": null }))).await,
        );
        let new = create_call("suite.task", json!({ "box": id.to_string() }));
        let new = taken_subject(&decide_in_batch(&mut driver, &mut open, &ann, new).await);
        assert_eq!(
            refusal_code(&decide_in_batch(&mut driver, &mut open, &ann, fire_call(id, "empty", json!({}))).await),
            "not_empty"
        );
        taken_subject(
            &decide_in_batch(&mut driver, &mut open, &ann, fire_call(new, "move", json!({ "box": null }))).await,
        );
        taken_subject(&decide_in_batch(&mut driver, &mut open, &ann, fire_call(id, "empty", json!({}))).await);
        assert!(matches!(driver.save(&open).await, SaveResult::Saved { .. }));
    });
}

/// The queue contains stored jobs and jobs of the same batch.
#[test]
fn batch_sees_ordered_queue_changed_by_earlier_operations() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let step = || create_call("suite.step", json!({ "line": "a" }));
        let mut old = Vec::new();
        for _ in 0..2 {
            old.push(driver.expect_taken(&ann, step(), start_time()).await.subject);
        }
        let mut open = driver.new_batch(start_time());
        let new = taken_subject(&decide_in_batch(&mut driver, &mut open, &ann, step()).await);
        assert_eq!(
            refusal_code(&decide_in_batch(&mut driver, &mut open, &bob, lease_call(new)).await),
            "older_job_unfinished"
        );
        assert_eq!(
            refusal_code(&decide_in_batch(&mut driver, &mut open, &bob, lease_call(old[1])).await),
            "older_job_unfinished"
        );
        taken_subject(&decide_in_batch(&mut driver, &mut open, &ann, fire_call(old[0], "skip", json!({}))).await);
        assert_eq!(
            refusal_code(&decide_in_batch(&mut driver, &mut open, &bob, lease_call(new)).await),
            "older_job_unfinished"
        );
        taken_subject(&decide_in_batch(&mut driver, &mut open, &bob, lease_call(old[1])).await);
        let commit = Call::Commit { record: old[1], token: FencingToken(1), result: json!(1), finish: true };
        taken_subject(&decide_in_batch(&mut driver, &mut open, &bob, commit).await);
        let last = taken_subject(&decide_in_batch(&mut driver, &mut open, &ann, step()).await);
        assert_eq!(
            refusal_code(&decide_in_batch(&mut driver, &mut open, &bob, lease_call(last)).await),
            "older_job_unfinished"
        );
        taken_subject(&decide_in_batch(&mut driver, &mut open, &bob, lease_call(new)).await);
        assert!(matches!(driver.save(&open).await, SaveResult::Saved { .. }));
        assert_eq!(
            driver.expect_refused(&bob, lease_call(last), start_time()).await.code.as_ref(),
            "older_job_unfinished"
        );
    });
}
