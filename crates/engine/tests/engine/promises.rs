//! Answers, order, overload, conflicts, checks and closing.

use std::time::Duration;

use onceward_core::decide::{Call, Create};
use onceward_core::record::Token;
use onceward_engine::{Asked, Checks, Config, Engine, EngineError, Submission, Unanswered};
use onceward_store::{AnyStore, Clock, MemoryStore, Store};
use onceward_testkit::{user, worker};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::stage::held::Held;
use crate::stage::{
    Folder, JOB, LONG, code, decency, files, job, leased, new_job, object, on_each, open, ops, sqlite, start, state,
    submitting, unpolled, wait,
};

/// A whole life, each step of it answered, and all of it in the record's history.
#[test]
fn a_whole_life() {
    on_each(Config::default(), async |engine, _| {
        let id = job(engine).await;
        let held = leased(engine).await.expect("the job");
        assert_eq!(held.record.id, id);
        let bob = worker("bob");
        assert!(!engine.heartbeat(&bob, id, held.token).await.unwrap().stop);
        engine.commit(&bob, id, held.token, json!({ "n": 1 }), true).await.unwrap();
        let again = engine.commit(&bob, id, held.token, json!({ "n": 1 }), true).await.unwrap();
        assert!(again.already.is_some(), "the same commit again is answered, not carried out");
        assert_eq!(state(engine, id).await, "SUCCEEDED");
        assert_eq!(engine.history(&ops(), id, 0, 10).await.unwrap().unwrap().entries.len(), 3);
        assert_eq!(engine.store().effect(id).await.unwrap().unwrap().token, Token(1));
    });
}

/// All that was answered is there when the file is opened again.
#[test]
fn what_was_answered_is_there_after_reopening() {
    let (folder, clock) = (Folder::new(), Clock::manual(start()));
    let (id, token) = wait(async {
        let engine = open(sqlite(&folder, &clock), Config::default()).await;
        let id = job(&engine).await;
        let held = leased(&engine).await.expect("the job");
        engine.close().await;
        (id, held.token)
    });
    wait(async {
        let engine = Engine::open(sqlite(&folder, &clock), Config::default());
        assert_eq!(state(&engine, id).await, "RUNNING");
        engine.commit(&worker("bob"), id, token, json!(null), true).await.unwrap();
        engine.close().await;
    });
    wait(async {
        let engine = Engine::open(sqlite(&folder, &clock), Config::default());
        assert_eq!(state(&engine, id).await, "SUCCEEDED");
        engine.close().await;
    });
}

/// Calls that were handed in together are decided in their order, and each is taken or refused on its own.
#[test]
fn a_batch_keeps_its_order() {
    on_each(Config::default(), async |engine, _| {
        let prize = engine.create(&user("ann"), "race.prize", object(json!({}))).await.unwrap().subject;
        let cancel = || {
            let call = Call::Fire {
                record: prize,
                event: "cancel".into(),
                input: object(json!({})),
                token: None,
                if_version: None,
            };
            Submission::new(&user("ann"), call)
        };
        let replies = engine.submit_all(vec![new_job(), cancel(), cancel(), new_job()]).await.unwrap();
        let codes: Vec<String> = replies.iter().map(code).collect();
        assert_eq!(codes, ["ok", "ok", "wrong_state", "ok"]);
        assert!(engine.submit_all(Vec::new()).await.unwrap().is_empty());
        let many = (0..1_001).map(|_| new_job()).collect();
        assert!(matches!(engine.submit_all(many).await, Err(EngineError::BatchTooLarge { most: 1_000 })));
    });
}

/// A full queue says so at once, and has room again when it is answered.
#[test]
fn a_full_queue_is_overloaded() {
    let (checks, held) = Held::checks();
    wait(async {
        let config = Config { queue: 2, checks, check_time: LONG, ..Config::default() };
        let engine = open(MemoryStore::new(Clock::manual(start())), config).await;
        let note = || {
            let engine = engine.clone();
            tokio::spawn(
                async move { engine.create(&user("ann"), "race.note", object(json!({ "text": "hello" }))).await },
            )
        };
        let notes = [note(), note()];
        // Both have a place and wait for the outside.
        held.have_asked(2).await;
        let reply = engine.submit(new_job()).await;
        assert!(matches!(reply, Err(EngineError::Overloaded { retry_after }) if retry_after > Duration::ZERO));
        held.go();
        for note in notes {
            note.await.unwrap().unwrap();
        }
        engine.submit(new_job()).await.unwrap();
        engine.close().await;
    });
}

/// Two engines on one store: what one of them saved meanwhile, the other decides again. Nothing is lost and nothing is done
/// twice, though neither knows of the other.
#[test]
fn conflicts_are_decided_again() {
    wait(async {
        let store = AnyStore::Memory(MemoryStore::new(Clock::manual(start())));
        let (one, other) = (open(store.clone(), Config::default()).await, open(store.clone(), Config::default()).await);
        let ids: Vec<_> = {
            let replies = one.submit_all((0..200).map(|_| new_job()).collect()).await.unwrap();
            replies.into_iter().map(|reply| reply.unwrap().subject).collect()
        };
        let mut tasks = Vec::new();
        for engine in [&one, &other] {
            for number in 0..4 {
                let (engine, ids) = (engine.clone(), ids.clone());
                tasks.push(tokio::spawn(async move {
                    let mut won = Vec::new();
                    for id in ids {
                        let call = Call::Lease { record: id, worker: "w".into(), lease: None, start: true };
                        let reply = engine.submit(Submission::new(&worker(&format!("w{number}")), call)).await;
                        match &reply {
                            Ok(_) => won.push(id),
                            Err(_) => assert_ne!(code(&reply), "closed"),
                        }
                    }
                    won
                }));
            }
        }
        let mut won = Vec::new();
        for task in tasks {
            won.extend(task.await.unwrap());
        }
        won.sort_unstable();
        let mut ids = ids;
        ids.sort_unstable();
        assert_eq!(won, ids, "each job has one holder");
        let attempts = store.executions(ids[0]).await.unwrap();
        assert_eq!(attempts.len(), 1);
        let conflicts = one.tally().conflicts + other.tally().conflicts;
        println!("{conflicts} conflicts");
        one.close().await;
        other.close().await;
    });
}

/// A check is asked before the operation, its answer decides and is logged; where nobody answers, the operation is refused.
#[test]
fn checks_are_asked() {
    on_each(Config { checks: decency(), ..Config::default() }, async |engine, _| {
        let ann = user("ann");
        let note = |text| engine.create(&ann, "race.note", object(json!({ "text": text })));
        let kept = note("hello").await.unwrap().subject;
        assert_eq!(code(&note("rude").await), "not_decent");
        let history = engine.history(&ops(), kept, 0, 10).await.unwrap().unwrap().entries;
        let operation = history[0].body().unwrap().operation.unwrap();
        assert_eq!(operation.answers[0].answer, object(json!({ "fine": true })));
    });
    let silent = [
        Checks::default(),
        Checks::default().on("race.note", "decent", |_| async { Err(Unanswered("down".to_owned())) }),
        Checks::default().on("race.note", "decent", |_| async { panic!("a check of the user's that is broken") }),
        Checks::default().on("race.note", "decent", |asked: Asked| {
            assert!(asked.content.is_some(), "one that is broken before it comes to its future");
            async { Ok(object(json!({ "fine": true }))) }
        }),
        Checks::default().on("race.note", "decent", |_| std::future::pending()),
    ];
    for checks in silent {
        let check_time = Duration::from_millis(20);
        on_each(Config { checks, check_time, ..Config::default() }, async |engine, _| {
            let reply = engine.create(&user("ann"), "race.note", object(json!({ "text": "hello" }))).await;
            assert_eq!(code(&reply), "check_unavailable");
            assert_eq!(engine.store().log(0, 10).await.unwrap(), []);
        });
    }
}

/// An answer is bound to what was asked: where the record has changed meanwhile, the question is put anew. Both stand in the
/// log.
#[test]
fn an_answer_is_bound_to_its_question() {
    static ASKED: Semaphore = Semaphore::const_new(0);
    static GATE: Semaphore = Semaphore::const_new(0);
    let slow = Checks::default().on("race.note", "decent", |asked: Asked| async move {
        let text = asked.question.arguments["text"].as_str().unwrap_or_default().to_owned();
        if text == "slow" {
            ASKED.add_permits(1);
            GATE.acquire().await.expect("open").forget();
        }
        Ok(object(json!({ "fine": text != "rude" })))
    });
    on_each(Config { checks: slow, check_time: LONG, ..Config::default() }, async |engine, _| {
        let ann = user("ann");
        for (text, expected) in [("rude", "not_decent"), ("kind", "ok")] {
            GATE.add_permits(1);
            let note = engine.create(&ann, "race.note", object(json!({ "text": "slow" }))).await.unwrap().subject;
            let _ = ASKED.acquire().await.map(tokio::sync::SemaphorePermit::forget);
            let showing = tokio::spawn({
                let (engine, ann) = (engine.clone(), ann.clone());
                async move { engine.fire(&ann, note, "show", object(json!({}))).await }
            });
            let _ = tokio::time::timeout(LONG, ASKED.acquire())
                .await
                .expect("in time")
                .map(tokio::sync::SemaphorePermit::forget);
            engine.fire(&ann, note, "edit", object(json!({ "text": text }))).await.unwrap();
            GATE.add_permits(1);
            let shown = showing.await.unwrap();
            assert_eq!(code(&shown), expected);
            if shown.is_ok() {
                let last = engine.history(&ops(), note, 2, 10).await.unwrap().unwrap().entries.pop().expect("an entry");
                let answers = last.body().unwrap().operation.unwrap().into_owned().answers;
                let asked: Vec<_> = answers.iter().map(|answer| answer.arguments["text"].clone()).collect();
                assert_eq!(asked, ["slow", "kind"]);
            }
        }
    });
}

/// What was taken on is answered, what comes later is turned away.
#[test]
fn closing_drains() {
    on_each(unpolled(), async |engine, _| {
        let tasks: Vec<_> = (0..50).map(|_| submitting(engine, new_job())).collect();
        let follower = tokio::spawn({
            let mut stream = engine.stream(&ops(), 0);
            async move {
                let mut seen = 0;
                while stream.next().await.expect("reading").is_some() {
                    seen += 1;
                }
                seen
            }
        });
        engine.close().await;
        let mut made = 0;
        for task in tasks {
            match task.await.unwrap() {
                Ok(_) => made += 1,
                Err(error) => assert!(matches!(error, EngineError::Closed), "{error}"),
            }
        }
        assert_eq!(engine.store().log(0, 100).await.unwrap().len(), made);
        let seen = tokio::time::timeout(LONG, follower).await.expect("the stream ends").unwrap();
        assert_eq!(seen, made, "a follower has seen all before the end");
        assert!(matches!(engine.submit(new_job()).await, Err(EngineError::Closed)));
        assert!(leased_when_closed(engine).await);
    });
}

async fn leased_when_closed(engine: &Engine<AnyStore>) -> bool {
    let wanted = onceward_engine::Wanted::one(JOB, "w");
    matches!(engine.lease(&worker("bob"), &wanted).await, Err(EngineError::Closed))
}

/// A payload's bytes are kept under their hash.
#[test]
fn contents_are_kept() {
    on_each(Config::default(), async |engine, _| {
        let mut files = files();
        files.files.retain(|file| !file.name.ends_with("job.toml"));
        files.files.extend(onceward_testkit::systems::sources("document"));
        engine.define(&files).await.unwrap();
        let create = Create {
            lifecycle: "document.job".into(),
            id: None,
            owner: None,
            fields: object(json!({})),
            payload: None,
        };
        match engine.create_with(&user("ann"), create, *b"%PDF-1.4 hello").await {
            Ok(answer) => {
                let payload = answer.record.unwrap().payload.expect("a payload");
                let bytes = engine.store().content(&payload.sha256).await.unwrap().expect("kept");
                assert_eq!(&*bytes, b"%PDF-1.4 hello");
            }
            Err(error) => panic!("{error}"),
        }
    });
}
