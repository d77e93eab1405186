//! Tests that the ledger detects lost or invented operations. Without this, the kill tests would prove nothing.

use onceward_core::decide::Call;
use onceward_core::record::FencingToken;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_engine::{Engine, EngineConfig, LeaseRequest, Submission};
use onceward_store::{AnyStore, Clock, MemoryStore};
use onceward_testkit::{user, worker};
use serde_json::{Map, json};

use super::AckLedger;
use crate::requests::{TASK_LIFECYCLE, TASK_OWNER};
use crate::verify;

/// Returns a store with one task that `w` has committed and finished, and one ready task.
async fn store_with_tasks() -> (AnyStore, RecordId, FencingToken, RecordId) {
    let store = AnyStore::Memory(MemoryStore::new(Clock::manual(Time::MIN)));
    verify::put_lifecycles(&store).await.expect("valid lifecycles");
    let engine = Engine::open(store.clone(), EngineConfig::default());
    let create = async |name: &str| {
        let fields: Map<_, _> = [("name".to_owned(), json!(name))].into_iter().collect();
        engine.create(&user(TASK_OWNER), TASK_LIFECYCLE, fields).await.expect("a task").subject
    };
    let done = create("done").await;
    let held = engine
        .lease(&worker("w"), &LeaseRequest::single_job(TASK_LIFECYCLE, "w"))
        .await
        .expect("a lease")
        .pop()
        .expect("the task");
    let call = Call::Commit { record: done, token: held.token, result: json!("w"), finish: true };
    engine.submit(Submission::new(&worker("w"), call)).await.expect("a commit");
    let waits = create("waits").await;
    engine.close().await;
    (store, done, held.token, waits)
}

fn unknown_record() -> RecordId {
    serde_json::from_value(json!("00000000-0000-0000-0000-000000000000")).expect("a valid id")
}

fn verify_ledger(write: impl FnOnce(&mut AckLedger, RecordId, FencingToken, RecordId)) -> Result<u64, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let (store, done, token, waits) = store_with_tasks().await;
        let mut ledger = AckLedger::default();
        write(&mut ledger, done, token, waits);
        ledger.verify_all(&store).await.map_err(|error| error.to_string())
    })
}

#[test]
fn acknowledged_operations_pass_verification() {
    let entries = verify_ledger(|books, done, token, waits| {
        books.record_created("done", done).expect("new");
        books.record_lease(done, token, "w").expect("new");
        books.record_commit(done, "w", true).expect("new");
        books.record_created("waits", waits).expect("new");
        books.record_commit_refused(waits, "x");
        books.record_cancel_refused(waits, "y");
        books.record_create_refused("never");
    });
    // Two creates, a lease, a commit and its note.
    assert_eq!(entries, Ok(5));
}

#[test]
fn missing_acknowledged_operation_fails_verification() {
    let missed = |text: &str, write: fn(&mut AckLedger, RecordId, FencingToken, RecordId)| {
        let found = verify_ledger(write).expect_err("verification fails");
        assert!(found.contains(text), "{found}");
    };
    missed("is lost", |books, _, _, _| books.record_created("gone", unknown_record()).expect("new"));
    missed("is lost", |books, _, token, waits| books.record_lease(waits, token, "w").expect("new"));
    missed("is w's", |books, done, token, _| books.record_lease(done, token, "other").expect("new"));
    missed("the commit of w is lost", |books, _, _, waits| books.record_commit(waits, "w", false).expect("new"));
    missed("is stored", |books, done, _, _| books.record_commit(done, "other", true).expect("new"));
    missed("was finished", |books, _, _, waits| books.record_finish(waits));
    missed("the failure", |books, done, token, _| books.record_failure(done, token));
    missed("was cancelled", |books, _, _, waits| books.record_cancel(waits, "so").expect("new"));
}

#[test]
fn stored_refused_operation_fails_verification() {
    let noticed = |text: &str, write: fn(&mut AckLedger, RecordId, FencingToken, RecordId)| {
        let found = verify_ledger(write).expect_err("verification fails");
        assert!(found.contains(text), "{found}");
    };
    noticed("was refused, but is stored", |books, _, _, _| books.record_create_refused("waits"));
    noticed("was refused, but is stored", |books, done, _, _| books.record_commit_refused(done, "w"));
    noticed("was refused", |books, done, _, _| {
        books.record_created("done", done).expect("new");
        books.record_no_lease("w");
    });
}

#[test]
fn contradicting_acknowledgment_is_rejected() {
    let (id, token) = (unknown_record(), FencingToken(1));
    let mut books = AckLedger::default();
    books.record_lease(id, token, "a").expect("the first");
    assert!(books.record_lease(id, token, "b").is_err());
    books.record_commit(id, "a", true).expect("the first");
    books.record_commit(id, "a", true).expect("repeated");
    assert!(books.record_commit(id, "b", true).is_err());
    assert!(books.record_cancel(id, "so").is_err());
}
