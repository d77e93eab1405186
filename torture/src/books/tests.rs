//! The books notice what is not as it was told: otherwise no kill would mean anything.

use onceward_core::decide::Call;
use onceward_core::record::Token;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_engine::{Config, Engine, Submission, Wanted};
use onceward_store::{AnyStore, Clock, MemoryStore};
use onceward_testkit::{user, worker};
use serde_json::{Map, json};

use super::Books;
use crate::questions::{OWNER, TASK};
use crate::sound;

/// A store with one task that `w` has committed and finished, and one that waits.
async fn played() -> (AnyStore, RecordId, Token, RecordId) {
    let store = AnyStore::Memory(MemoryStore::new(Clock::manual(Time::MIN)));
    sound::define(&store).await.expect("sound lifecycles");
    let engine = Engine::open(store.clone(), Config::default());
    let create = async |name: &str| {
        let fields: Map<_, _> = [("name".to_owned(), json!(name))].into_iter().collect();
        engine.create(&user(OWNER), TASK, fields).await.expect("a task").subject
    };
    let done = create("done").await;
    let held = engine.lease(&worker("w"), &Wanted::one(TASK, "w")).await.expect("a lease").pop().expect("the task");
    let call = Call::Commit { record: done, token: held.token, result: json!("w"), finish: true };
    engine.submit(Submission::new(&worker("w"), call)).await.expect("a commit");
    let waits = create("waits").await;
    engine.close().await;
    (store, done, held.token, waits)
}

fn nobody() -> RecordId {
    serde_json::from_value(json!("00000000-0000-0000-0000-000000000000")).expect("an id")
}

fn look(write: impl FnOnce(&mut Books, RecordId, Token, RecordId)) -> Result<u64, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let (store, done, token, waits) = played().await;
        let mut books = Books::default();
        write(&mut books, done, token, waits);
        books.look_at_all(&store).await.map_err(|error| error.to_string())
    })
}

#[test]
fn what_was_told_is_found() {
    let entries = look(|books, done, token, waits| {
        books.made("done", done).expect("new");
        books.leased(done, token, "w").expect("new");
        books.committed(done, "w", true).expect("new");
        books.made("waits", waits).expect("new");
        books.uncommitted(waits, "x");
        books.uncancelled(waits, "y");
        books.unmade("never");
    });
    // Two made, a lease, a commit and its note.
    assert_eq!(entries, Ok(5));
}

#[test]
fn what_was_told_and_is_not_there_is_missed() {
    let missed = |text: &str, write: fn(&mut Books, RecordId, Token, RecordId)| {
        let found = look(write).expect_err("it is not there");
        assert!(found.contains(text), "{found}");
    };
    missed("is lost", |books, _, _, _| books.made("gone", nobody()).expect("new"));
    missed("is lost", |books, _, token, waits| books.leased(waits, token, "w").expect("new"));
    missed("is w's", |books, done, token, _| books.leased(done, token, "other").expect("new"));
    missed("the commit of w is lost", |books, _, _, waits| books.committed(waits, "w", false).expect("new"));
    missed("is kept", |books, done, _, _| books.committed(done, "other", true).expect("new"));
    missed("was finished", |books, _, _, waits| books.finished(waits));
    missed("the failure", |books, done, token, _| books.failed(done, token));
    missed("was cancelled", |books, _, _, waits| books.cancelled(waits, "so").expect("new"));
}

#[test]
fn what_was_refused_and_is_there_is_noticed() {
    let noticed = |text: &str, write: fn(&mut Books, RecordId, Token, RecordId)| {
        let found = look(write).expect_err("it is there");
        assert!(found.contains(text), "{found}");
    };
    noticed("was refused, and is there", |books, _, _, _| books.unmade("waits"));
    noticed("was refused, and is there", |books, done, _, _| books.uncommitted(done, "w"));
    noticed("was told `no`", |books, done, _, _| {
        books.made("done", done).expect("new");
        books.unleased("w");
    });
}

#[test]
fn a_promise_given_twice_is_noticed_at_once() {
    let (id, token) = (nobody(), Token(1));
    let mut books = Books::default();
    books.leased(id, token, "a").expect("the first");
    assert!(books.leased(id, token, "b").is_err());
    books.committed(id, "a", true).expect("the first");
    books.committed(id, "a", true).expect("told again");
    assert!(books.committed(id, "b", true).is_err());
    assert!(books.cancelled(id, "so").is_err());
}
