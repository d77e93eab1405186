//! Replies, order, overload, conflicts, checks and closing.

use std::time::Duration;

use onceward_core::decide::{Call, CreateRecord};
use onceward_core::record::FencingToken;
use onceward_engine::{CheckError, CheckRegistry, CheckRequest, Engine, EngineConfig, EngineError, Submission};
use onceward_store::{AnyStore, Clock, MemoryStore, Store};
use onceward_testkit::{user, worker};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::held_checks::HeldChecks;
use crate::support::{
    JOB_LIFECYCLE, TEST_TIMEOUT, TempDir, block_on, config_without_polling, create_job, decency_checks, json_object,
    lease_one, lifecycle_files, new_job_submission, on_each_store, open_engine, open_sqlite, operator_actor,
    reply_code, spawn_submit, start_time, state_of,
};

#[test]
fn completed_job_is_recorded_in_its_history() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let id = create_job(engine).await;
        let held = lease_one(engine).await.expect("the job");
        assert_eq!(held.record.id, id);
        let bob = worker("bob");
        assert!(!engine.heartbeat(&bob, id, held.token).await.unwrap().stop_requested);
        engine.commit(&bob, id, held.token, json!({ "n": 1 }), true).await.unwrap();
        let again = engine.commit(&bob, id, held.token, json!({ "n": 1 }), true).await.unwrap();
        assert!(again.no_op.is_some(), "a repeated commit is answered and not executed");
        assert_eq!(state_of(engine, id).await, "SUCCEEDED");
        assert_eq!(engine.history(&operator_actor(), id, 0, 10).await.unwrap().unwrap().entries.len(), 3);
        assert_eq!(engine.store().effect(id).await.unwrap().unwrap().token, FencingToken(1));
    });
}

#[test]
fn acknowledged_state_survives_reopening() {
    let (folder, clock) = (TempDir::new(), Clock::manual(start_time()));
    let (id, token) = block_on(async {
        let engine = open_engine(open_sqlite(&folder, &clock), EngineConfig::default()).await;
        let id = create_job(&engine).await;
        let held = lease_one(&engine).await.expect("the job");
        engine.close().await;
        (id, held.token)
    });
    block_on(async {
        let engine = Engine::open(open_sqlite(&folder, &clock), EngineConfig::default());
        assert_eq!(state_of(&engine, id).await, "RUNNING");
        engine.commit(&worker("bob"), id, token, json!(null), true).await.unwrap();
        engine.close().await;
    });
    block_on(async {
        let engine = Engine::open(open_sqlite(&folder, &clock), EngineConfig::default());
        assert_eq!(state_of(&engine, id).await, "SUCCEEDED");
        engine.close().await;
    });
}

#[test]
fn batch_is_decided_in_order_and_each_call_alone() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let prize = engine.create(&user("ann"), "race.prize", json_object(json!({}))).await.unwrap().subject;
        let cancel = || {
            let call = Call::Fire {
                record: prize,
                event: "cancel".into(),
                input: json_object(json!({})),
                token: None,
                if_version: None,
            };
            Submission::new(&user("ann"), call)
        };
        let replies =
            engine.submit_all(vec![new_job_submission(), cancel(), cancel(), new_job_submission()]).await.unwrap();
        let codes: Vec<String> = replies.iter().map(reply_code).collect();
        assert_eq!(codes, ["ok", "ok", "wrong_state", "ok"]);
        assert!(engine.submit_all(Vec::new()).await.unwrap().is_empty());
        let many = (0..1_001).map(|_| new_job_submission()).collect();
        assert!(matches!(engine.submit_all(many).await, Err(EngineError::BatchTooLarge { max_operations: 1_000 })));
    });
}

/// Capacity is free again after the replies.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn full_queue_returns_overloaded() {
    let (checks, held) = HeldChecks::create();
    let config =
        EngineConfig { max_queued_operations: 2, checks, check_timeout: TEST_TIMEOUT, ..EngineConfig::default() };
    let engine = open_engine(MemoryStore::new(Clock::manual(start_time())), config).await;
    let note = || {
        let engine = engine.clone();
        tokio::spawn(
            async move { engine.create(&user("ann"), "race.note", json_object(json!({ "text": "hello" }))).await },
        )
    };
    let notes = [note(), note()];
    // Both hold a permit and wait for their checks.
    held.wait_until_asked(2).await;
    let reply = engine.submit(new_job_submission()).await;
    assert!(matches!(reply, Err(EngineError::Overloaded { retry_after }) if retry_after > Duration::ZERO));
    held.release();
    for note in notes {
        note.await.unwrap().unwrap();
    }
    engine.submit(new_job_submission()).await.unwrap();
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conflicting_engines_give_each_job_one_holder() {
    let store = AnyStore::Memory(MemoryStore::new(Clock::manual(start_time())));
    let (one, other) = (
        open_engine(store.clone(), EngineConfig::default()).await,
        open_engine(store.clone(), EngineConfig::default()).await,
    );
    let ids: Vec<_> = {
        let replies = one.submit_all((0..200).map(|_| new_job_submission()).collect()).await.unwrap();
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
                        Err(_) => assert_ne!(reply_code(&reply), "closed"),
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
    let conflicts = one.counters().conflicts + other.counters().conflicts;
    println!("{conflicts} conflicts");
    one.close().await;
    other.close().await;
}

/// The answer is logged.
#[test]
fn check_answer_decides_and_missing_answer_refuses() {
    on_each_store(EngineConfig { checks: decency_checks(), ..EngineConfig::default() }, async |engine, _| {
        let ann = user("ann");
        let note = |text| engine.create(&ann, "race.note", json_object(json!({ "text": text })));
        let note_id = note("hello").await.unwrap().subject;
        assert_eq!(reply_code(&note("rude").await), "not_decent");
        let history = engine.history(&operator_actor(), note_id, 0, 10).await.unwrap().unwrap().entries;
        let operation = history[0].body().unwrap().operation.unwrap();
        assert_eq!(operation.check_answers[0].answer, json_object(json!({ "fine": true })));
    });
    let silent = [
        CheckRegistry::default(),
        CheckRegistry::default().register("race.note", "decent", |_| async { Err(CheckError("down".to_owned())) }),
        CheckRegistry::default()
            .register("race.note", "decent", |_| async { panic!("the check handler panics in its future") }),
        CheckRegistry::default().register("race.note", "decent", |request: CheckRequest| {
            assert!(request.payload.is_some(), "the check handler panics before its future");
            async { Ok(json_object(json!({ "fine": true }))) }
        }),
        CheckRegistry::default().register("race.note", "decent", |_| std::future::pending()),
    ];
    for checks in silent {
        let check_time = Duration::from_millis(20);
        on_each_store(
            EngineConfig { checks, check_timeout: check_time, ..EngineConfig::default() },
            async |engine, _| {
                let reply = engine.create(&user("ann"), "race.note", json_object(json!({ "text": "hello" }))).await;
                assert_eq!(reply_code(&reply), "check_unavailable");
                assert_eq!(engine.store().log(0, 10).await.unwrap(), []);
            },
        );
    }
}

/// An answer is bound to its arguments. Both answers are logged.
#[test]
fn check_is_asked_again_when_its_arguments_change() {
    static CHECKS_ASKED: Semaphore = Semaphore::const_new(0);
    static CHECK_GATE: Semaphore = Semaphore::const_new(0);
    let slow = CheckRegistry::default().register("race.note", "decent", |request: CheckRequest| async move {
        let text = request.query.arguments["text"].as_str().unwrap_or_default().to_owned();
        if text == "slow" {
            CHECKS_ASKED.add_permits(1);
            CHECK_GATE.acquire().await.expect("open").forget();
        }
        Ok(json_object(json!({ "fine": text != "rude" })))
    });
    on_each_store(
        EngineConfig { checks: slow, check_timeout: TEST_TIMEOUT, ..EngineConfig::default() },
        async |engine, _| {
            let ann = user("ann");
            for (text, expected) in [("rude", "not_decent"), ("kind", "ok")] {
                CHECK_GATE.add_permits(1);
                let note =
                    engine.create(&ann, "race.note", json_object(json!({ "text": "slow" }))).await.unwrap().subject;
                let _ = CHECKS_ASKED.acquire().await.map(tokio::sync::SemaphorePermit::forget);
                let showing = tokio::spawn({
                    let (engine, ann) = (engine.clone(), ann.clone());
                    async move { engine.fire(&ann, note, "show", json_object(json!({}))).await }
                });
                let _ = tokio::time::timeout(TEST_TIMEOUT, CHECKS_ASKED.acquire())
                    .await
                    .expect("no timeout")
                    .map(tokio::sync::SemaphorePermit::forget);
                engine.fire(&ann, note, "edit", json_object(json!({ "text": text }))).await.unwrap();
                CHECK_GATE.add_permits(1);
                let shown = showing.await.unwrap();
                assert_eq!(reply_code(&shown), expected);
                if shown.is_ok() {
                    let last = engine
                        .history(&operator_actor(), note, 2, 10)
                        .await
                        .unwrap()
                        .unwrap()
                        .entries
                        .pop()
                        .expect("an entry");
                    let answers = last.body().unwrap().operation.unwrap().into_owned().check_answers;
                    let texts: Vec<_> = answers.iter().map(|answer| answer.arguments["text"].clone()).collect();
                    assert_eq!(texts, ["slow", "kind"]);
                }
            }
        },
    );
}

#[test]
fn close_answers_accepted_calls_and_rejects_new_ones() {
    on_each_store(config_without_polling(), async |engine, _| {
        let tasks: Vec<_> = (0..50).map(|_| spawn_submit(engine, new_job_submission())).collect();
        let follower = tokio::spawn({
            let mut stream = engine.stream(&operator_actor(), 0);
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
        let seen = tokio::time::timeout(TEST_TIMEOUT, follower).await.expect("the stream ends").unwrap();
        assert_eq!(seen, made, "the stream returned all entries before it ended");
        assert!(matches!(engine.submit(new_job_submission()).await, Err(EngineError::Closed)));
        assert!(lease_returns_closed(engine).await);
    });
}

async fn lease_returns_closed(engine: &Engine<AnyStore>) -> bool {
    let wanted = onceward_engine::LeaseRequest::single_job(JOB_LIFECYCLE, "w");
    matches!(engine.lease(&worker("bob"), &wanted).await, Err(EngineError::Closed))
}

#[test]
fn payload_is_stored_under_its_hash() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let mut files = lifecycle_files();
        files.files.retain(|file| !file.name.ends_with("job.toml"));
        files.files.extend(onceward_testkit::systems::source_files("document"));
        engine.put_lifecycles(&files).await.unwrap();
        let create = CreateRecord {
            lifecycle: "document.job".into(),
            id: None,
            owner: None,
            fields: json_object(json!({})),
            payload: None,
        };
        match engine.create_with_payload(&user("ann"), create, *b"%PDF-1.4 hello").await {
            Ok(answer) => {
                let payload = answer.record.unwrap().payload.expect("a payload");
                let bytes = engine.store().payload(&payload.sha256).await.unwrap().expect("kept");
                assert_eq!(&*bytes, b"%PDF-1.4 hello");
            }
            Err(error) => panic!("{error}"),
        }
    });
}
