//! Keys: the same call again is answered as the first time, in every form, also later and also meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onceward_core::decide::{Call, Create};
use onceward_core::record::{Actor, Token};
use onceward_core::value::RecordId;
use onceward_engine::{Answer, Asked, Checks, Config, Engine, EngineError, Once, Submission, Wanted};
use onceward_store::{AnyStore, Clock, MemoryStore, Store};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::stage::troubled::Troubled;
use crate::stage::{
    Folder, JOB, LONG, code, job, leased, new_job, object, on_each, open, ops, sqlite, start, state, submitting,
    unpolled, until_waiting, wait,
};

fn fire(record: RecordId, event: &str) -> Submission {
    let call = Call::Fire { record, event: event.into(), input: object(json!({})), token: None, if_version: None };
    Submission::new(&user("ann"), call)
}

fn lane(name: &str) -> Submission {
    let fields = object(json!({ "lane": name }));
    let create = Create { lifecycle: "race.lane".into(), id: None, owner: None, fields, payload: None };
    Submission::new(&user("ann"), Call::Create(create))
}

async fn log_length<S: Store + 'static>(engine: &Engine<S>) -> usize {
    engine.store().log(0, 1_000).await.unwrap().len()
}

fn is_replay(answer: &Answer, first: &Answer) {
    assert!(answer.replayed && !first.replayed);
    assert_eq!((answer.subject, answer.version), (first.subject, first.version));
    assert_eq!(answer.already, first.already);
}

/// A creation sent twice makes one record. Under the same key something else is a mistake; another owner's key is another key.
#[test]
fn a_creation_sent_twice() {
    on_each(Config::default(), async |engine, _| {
        let first = engine.submit(lane("a").once("k")).await.unwrap();
        let again = engine.submit(lane("a").once("k")).await.unwrap();
        is_replay(&again, &first);
        assert_eq!(again.record.expect("its owner may see it").id, first.subject);
        let other = engine.submit(lane("b").once("k")).await;
        assert_eq!((code(&other), other.unwrap_err().status()), ("key_reused".to_owned(), 422));
        let mut bobs = lane("a").once("k");
        bobs.actor = user("bob");
        assert_ne!(engine.submit(bobs).await.unwrap().subject, first.subject);
        assert_eq!(log_length(engine).await, 2);
    });
}

/// In a batch each has a key of its own, and one that stands in it twice is carried out once.
#[test]
fn keys_in_a_batch() {
    on_each(Config::default(), async |engine, _| {
        let calls =
            || vec![lane("a").once("1"), lane("b").once("2"), lane("a").once("1"), lane("c").once("2"), lane("d")];
        let first = engine.submit_all(calls()).await.unwrap();
        let codes: Vec<String> = first.iter().map(code).collect();
        assert_eq!(codes, ["ok", "ok", "ok", "key_reused", "ok"]);
        let subject = |reply: &Result<Answer, EngineError>| reply.as_ref().ok().map(|answer| answer.subject);
        assert_eq!(subject(&first[0]), subject(&first[2]));
        let again = engine.submit_all(calls()).await.unwrap();
        assert_eq!(
            (0..4).map(|at| subject(&again[at])).collect::<Vec<_>>(),
            (0..4).map(|at| subject(&first[at])).collect::<Vec<_>>(),
        );
        assert_ne!(subject(&again[4]), subject(&first[4]), "without a key it is another call");
        assert_eq!(log_length(engine).await, 4);
    });
}

/// An event that has moved its record is not taken a second time, but its key still answers as the first time did.
#[test]
fn an_event_sent_twice() {
    on_each(Config::default(), async |engine, _| {
        let prize = engine.create(&user("ann"), "race.prize", object(json!({}))).await.unwrap().subject;
        let first = engine.submit(fire(prize, "cancel").once("stop")).await.unwrap();
        let again = engine.submit(fire(prize, "cancel").once("stop")).await.unwrap();
        is_replay(&again, &first);
        assert_eq!(code(&engine.submit(fire(prize, "cancel")).await), "wrong_state");
        assert_eq!(log_length(engine).await, 2);
    });
}

/// A refusal is not remembered: what was refused yesterday may be right today.
#[test]
fn a_refusal_is_judged_anew() {
    on_each(Config::default(), async |engine, _| {
        let (id, bob) = (job(engine).await, worker("bob"));
        let held = leased(engine).await.expect("the job");
        let finish = || Submission::new(&bob, Call::Finish { record: id, token: held.token }).once("f");
        assert_eq!(code(&engine.submit(finish()).await), "not_committed");
        engine.commit(&bob, id, held.token, json!(1), false).await.unwrap();
        let first = engine.submit(finish()).await.unwrap();
        is_replay(&engine.submit(finish()).await.unwrap(), &first);
        assert_eq!(state(engine, id).await, "SUCCEEDED");
    });
}

/// The same key leases the same jobs and no others, whatever else waits; and a report's key answers alike.
#[test]
fn leases_and_reports() {
    on_each(Config::default(), async |engine, _| {
        for _ in 0..5 {
            job(engine).await;
        }
        let bob = worker("bob");
        let wanted = Wanted { most: 3, key: Some("take".into()), ..Wanted::one(JOB, "w") };
        let first = engine.lease(&bob, &wanted).await.unwrap();
        let again = engine.lease(&bob, &wanted).await.unwrap();
        let known = Wanted { again: true, ..wanted.clone() };
        let held = |jobs: &[onceward_engine::Leased]| -> Vec<(RecordId, Token)> {
            jobs.iter().map(|job| (job.record.id, job.token)).collect()
        };
        assert_eq!((first.len(), held(&first)), (3, held(&again)));
        assert_eq!(held(&engine.lease(&bob, &known).await.unwrap()), held(&first));
        let unknown = Wanted { key: Some("other".into()), ..known.clone() };
        assert!(engine.lease(&bob, &unknown).await.unwrap().is_empty(), "there are two more, and they stay");
        let more = Wanted { most: 4, ..wanted.clone() };
        assert!(matches!(engine.lease(&bob, &more).await, Err(EngineError::KeyReused)));
        let others = engine.lease(&worker("eve"), &wanted).await.unwrap();
        assert_eq!(others.len(), 2, "another worker's key is another key");

        let (id, token) = held(&first)[0];
        let commit = || {
            let call = Call::Commit { record: id, token, result: json!({ "n": 1 }), finish: true };
            Submission::new(&bob, call).once("done")
        };
        let done = engine.submit(commit()).await.unwrap();
        let again = engine.submit(commit()).await.unwrap();
        is_replay(&again, &done);
        assert_eq!(again.already, None, "as the first time, when there was something to do");
    });
}

/// What a key was given and is over is not given once more: neither the lease that ran out, nor another job in its place.
#[test]
fn a_lease_that_is_over_is_not_given_again() {
    on_each(unpolled(), async |engine, clock| {
        for _ in 0..3 {
            job(engine).await;
        }
        let bob = worker("bob");
        // Waits, should it look for others: then this test would not end.
        let wanted = Wanted { most: 2, wait: LONG, key: Some("take".into()), ..Wanted::one(JOB, "w") };
        let first = engine.lease(&bob, &wanted).await.unwrap();
        assert_eq!(first.len(), 2);
        engine.commit(&bob, first[0].record.id, first[0].token, json!(1), true).await.unwrap();
        let again = engine.lease(&bob, &wanted).await.unwrap();
        assert_eq!(again.iter().map(|job| job.record.id).collect::<Vec<_>>(), [first[1].record.id]);
        clock.set(first[1].expires_at);
        assert!(engine.lease(&bob, &wanted).await.unwrap().is_empty());
    });
}

/// A worker that asks again while its first call still waits for a job is told so.
#[test]
fn a_lease_that_still_waits() {
    on_each(unpolled(), async |engine, _| {
        let bob = worker("bob");
        let wanted = Wanted { wait: LONG, key: Some("take".into()), ..Wanted::one(JOB, "w") };
        let first = tokio::spawn({
            let (engine, bob, wanted) = (engine.clone(), bob.clone(), wanted.clone());
            async move {
                loop {
                    match engine.lease(&bob, &wanted).await {
                        // The other call came first, and is soon over.
                        Err(EngineError::KeyRunning) => tokio::task::yield_now().await,
                        answer => break answer,
                    }
                }
            }
        });
        let now = Wanted { wait: std::time::Duration::ZERO, ..wanted };
        let told = loop {
            match engine.lease(&bob, &now).await {
                // It came before the other.
                Ok(none) => assert!(none.is_empty()),
                Err(error) => break error,
            }
            tokio::task::yield_now().await;
        };
        assert_eq!((told.status(), told.code()), (409, "still_running"));
        let id = job(engine).await;
        let leased = first.await.unwrap().unwrap();
        assert_eq!(leased[0].record.id, id);
    });
}

/// What was answered before a restart is answered after it.
#[test]
fn keys_outlive_a_restart() {
    let (folder, clock) = (Folder::new(), Clock::manual(start()));
    let once = || async {
        let engine = open(sqlite(&folder, &clock), Config::default()).await;
        let made = engine.submit(lane("a").once("k")).await.unwrap();
        let wanted = Wanted { key: Some("take".into()), ..Wanted::one("race.lane", "w") };
        let leased = engine.lease(&worker("bob"), &wanted).await.unwrap();
        engine.close().await;
        (made, leased[0].token)
    };
    let (first, second) = (wait(once()), wait(once()));
    is_replay(&second.0, &first.0);
    assert_eq!((first.1, second.1), (Token(1), Token(1)));
}

/// Sent again while the first is still being saved: both get the same answer, and it is done once.
#[test]
fn a_key_that_is_on_its_way() {
    wait(async {
        let store = Troubled::gated(MemoryStore::new(Clock::manual(start())));
        let engine = open(store.clone(), Config::default()).await;
        let first = submitting(&engine, lane("a").once("k"));
        store.have_come(1).await;
        let followers: Vec<_> = (0..10).map(|_| submitting(&engine, lane("a").once("k"))).collect();
        assert_eq!(code(&engine.submit(lane("b").once("k")).await), "key_reused", "told at once");
        // The same owner with other roles may be told otherwise: it comes again.
        let mut other = lane("a").once("k");
        other.actor = Actor::new("ann", &["moderator"]);
        assert_eq!(code(&engine.submit(other).await), "still_running");
        until_waiting(&engine, 11).await;
        store.gate.add_permits(10);
        let first = first.await.unwrap().unwrap();
        for follower in followers {
            is_replay(&follower.await.unwrap().unwrap(), &first);
        }
        assert_eq!(log_length(&engine).await, 1);
        engine.close().await;
    });
}

/// Two engines on one store are sent the same: the one that comes late finds the other's answer when it saves.
#[test]
fn two_engines_one_key() {
    wait(async {
        let store = Troubled::gated(MemoryStore::new(Clock::manual(start())));
        let quick = open(store.inner.clone(), Config::default()).await;
        let late = open(store.clone(), Config::default()).await;
        let losing = tokio::spawn({
            let late = late.clone();
            // With others in its batch, which are none the worse for it.
            async move { late.submit_all(vec![new_job(), lane("a").once("k"), lane("b").once("l")]).await }
        });
        store.have_come(1).await;
        let first = quick.submit(lane("a").once("k")).await.unwrap();
        quick.submit(lane("c").once("l")).await.unwrap();
        store.gate.add_permits(10);
        let replies = losing.await.unwrap().unwrap();
        assert_eq!(replies.iter().map(code).collect::<Vec<_>>(), ["ok", "ok", "key_reused"]);
        is_replay(replies[1].as_ref().unwrap(), &first);
        assert_eq!((late.tally().conflicts, log_length(&quick).await), (1, 3));
        quick.close().await;
        late.close().await;
    });
}

/// The outside is not asked again for what it has answered for.
#[test]
fn a_key_asks_once() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let checks = Checks::default().on("race.note", "decent", move |_: Asked| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok(object(json!({ "fine": true }))) }
    });
    on_each(Config { checks, ..Config::default() }, async |engine, _| {
        asked.store(0, Ordering::SeqCst);
        let note = || {
            let fields = object(json!({ "text": "hello" }));
            let create = Create { lifecycle: "race.note".into(), id: None, owner: None, fields, payload: None };
            Submission::new(&user("ann"), Call::Create(create)).once("n")
        };
        let first = engine.submit(note()).await.unwrap();
        is_replay(&engine.submit(note()).await.unwrap(), &first);
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    });
}

/// The answer to a key shows a record only to who may see it now; that it was done is told in any case.
#[test]
fn an_old_answer_shows_no_more_than_a_look() {
    on_each(Config::default(), async |engine, _| {
        let create = Create {
            lifecycle: JOB.into(),
            id: None,
            owner: Some("bob".into()),
            fields: object(json!({})),
            payload: None,
        };
        let made = |actor| Submission::new(&actor, Call::Create(create.clone())).once("for bob");
        let first = engine.submit(made(ops())).await.unwrap();
        // The same key owner, no longer an operator.
        let again = engine.submit(made(user("ops"))).await.unwrap();
        is_replay(&again, &first);
        assert!(again.record.is_none());
    });
}

/// What is no key is refused, alone.
#[test]
fn bad_keys() {
    on_each(Config::default(), async |engine, _| {
        let long = "x".repeat(256);
        let calls = ["", "a\u{1f}0", "a\0", &long, &long[1..]].map(|key| new_job().once(key));
        let codes: Vec<String> = engine.submit_all(calls.into()).await.unwrap().iter().map(code).collect();
        assert_eq!(codes, ["bad_key", "bad_key", "bad_key", "bad_key", "ok"]);
        let told = Submission { once: Some(Once::new("own digest", [7; 32])), ..new_job() };
        assert!(!engine.submit(told.clone()).await.unwrap().replayed);
        assert!(engine.submit(told).await.unwrap().replayed);
        let _: AnyStore = engine.store().clone();
    });
}
