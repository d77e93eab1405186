//! Idempotency keys: a repeated call gets the first reply, in every form, later and concurrently.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onceward_core::decide::{Call, CreateRecord};
use onceward_core::record::{Actor, FencingToken};
use onceward_core::value::RecordId;
use onceward_engine::{
    CheckRegistry, CheckRequest, Engine, EngineConfig, EngineError, IdempotencyKey, LeaseRequest, Receipt, Submission,
};
use onceward_store::{AnyStore, Clock, MemoryStore, Store};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::support::faulty_store::FaultyStore;
use crate::support::{
    JOB_LIFECYCLE, TEST_TIMEOUT, TempDir, block_on, config_without_polling, create_job, json_object, lease_one,
    new_job_submission, on_each_store, open_engine, open_sqlite, operator_actor, reply_code, spawn_submit, start_time,
    state_of, wait_until_queued,
};

fn fire_event(record: RecordId, event: &str) -> Submission {
    let call = Call::Fire { record, event: event.into(), input: json_object(json!({})), token: None, if_version: None };
    Submission::new(&user("ann"), call)
}

fn create_lane(name: &str) -> Submission {
    let fields = json_object(json!({ "lane": name }));
    let create = CreateRecord { lifecycle: "race.lane".into(), id: None, owner: None, fields, payload: None };
    Submission::new(&user("ann"), Call::Create(create))
}

async fn log_length<S: Store + 'static>(engine: &Engine<S>) -> usize {
    engine.store().log(0, 1_000).await.unwrap().len()
}

fn assert_replay(answer: &Receipt, first: &Receipt) {
    assert!(answer.replayed && !first.replayed);
    assert_eq!((answer.subject, answer.version), (first.subject, first.version));
    assert_eq!(answer.no_op, first.no_op);
}

/// The same key with another request is an error; keys of other owners are independent.
#[test]
fn repeated_create_with_key_returns_first_record() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let first = engine.submit(create_lane("a").with_idempotency_key("k")).await.unwrap();
        let again = engine.submit(create_lane("a").with_idempotency_key("k")).await.unwrap();
        assert_replay(&again, &first);
        assert_eq!(again.record.expect("the owner may read the record").id, first.subject);
        let other = engine.submit(create_lane("b").with_idempotency_key("k")).await;
        assert_eq!((reply_code(&other), other.unwrap_err().status()), ("idempotency_key_reused".to_owned(), 422));
        let mut bobs = create_lane("a").with_idempotency_key("k");
        bobs.actor = user("bob");
        assert_ne!(engine.submit(bobs).await.unwrap().subject, first.subject);
        assert_eq!(log_length(engine).await, 2);
    });
}

#[test]
fn duplicate_keys_in_batch_execute_once() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let calls = || {
            vec![
                create_lane("a").with_idempotency_key("1"),
                create_lane("b").with_idempotency_key("2"),
                create_lane("a").with_idempotency_key("1"),
                create_lane("c").with_idempotency_key("2"),
                create_lane("d"),
            ]
        };
        let first = engine.submit_all(calls()).await.unwrap();
        let codes: Vec<String> = first.iter().map(reply_code).collect();
        assert_eq!(codes, ["ok", "ok", "ok", "idempotency_key_reused", "ok"]);
        let subject = |reply: &Result<Receipt, EngineError>| reply.as_ref().ok().map(|answer| answer.subject);
        assert_eq!(subject(&first[0]), subject(&first[2]));
        let again = engine.submit_all(calls()).await.unwrap();
        assert_eq!(
            (0..4).map(|at| subject(&again[at])).collect::<Vec<_>>(),
            (0..4).map(|at| subject(&first[at])).collect::<Vec<_>>(),
        );
        assert_ne!(subject(&again[4]), subject(&first[4]), "a call without a key is executed again");
        assert_eq!(log_length(engine).await, 4);
    });
}

#[test]
fn repeated_event_with_key_replays_first_reply() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let prize = engine.create(&user("ann"), "race.prize", json_object(json!({}))).await.unwrap().subject;
        let first = engine.submit(fire_event(prize, "cancel").with_idempotency_key("stop")).await.unwrap();
        let again = engine.submit(fire_event(prize, "cancel").with_idempotency_key("stop")).await.unwrap();
        assert_replay(&again, &first);
        assert_eq!(reply_code(&engine.submit(fire_event(prize, "cancel")).await), "wrong_state");
        assert_eq!(log_length(engine).await, 2);
    });
}

#[test]
fn refused_call_does_not_consume_its_key() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let (id, bob) = (create_job(engine).await, worker("bob"));
        let held = lease_one(engine).await.expect("the job");
        let finish = || Submission::new(&bob, Call::Finish { record: id, token: held.token }).with_idempotency_key("f");
        assert_eq!(reply_code(&engine.submit(finish()).await), "not_committed");
        engine.commit(&bob, id, held.token, json!(1), false).await.unwrap();
        let first = engine.submit(finish()).await.unwrap();
        assert_replay(&engine.submit(finish()).await.unwrap(), &first);
        assert_eq!(state_of(engine, id).await, "SUCCEEDED");
    });
}

#[test]
fn key_replays_leases_and_reports() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        for _ in 0..5 {
            create_job(engine).await;
        }
        let bob = worker("bob");
        let wanted = LeaseRequest {
            max_jobs: 3,
            idempotency_key: Some("take".into()),
            ..LeaseRequest::single_job(JOB_LIFECYCLE, "w")
        };
        let first = engine.lease(&bob, &wanted).await.unwrap();
        let again = engine.lease(&bob, &wanted).await.unwrap();
        let known = LeaseRequest { replay_only: true, ..wanted.clone() };
        let held = |jobs: &[onceward_engine::LeasedJob]| -> Vec<(RecordId, FencingToken)> {
            jobs.iter().map(|job| (job.record.id, job.token)).collect()
        };
        assert_eq!((first.len(), held(&first)), (3, held(&again)));
        assert_eq!(held(&engine.lease(&bob, &known).await.unwrap()), held(&first));
        let unknown = LeaseRequest { idempotency_key: Some("other".into()), ..known.clone() };
        assert!(engine.lease(&bob, &unknown).await.unwrap().is_empty(), "the two other jobs stay unleased");
        let more = LeaseRequest { max_jobs: 4, ..wanted.clone() };
        assert!(matches!(engine.lease(&bob, &more).await, Err(EngineError::IdempotencyKeyReused)));
        let others = engine.lease(&worker("eve"), &wanted).await.unwrap();
        assert_eq!(others.len(), 2, "another worker's key is independent");

        let (id, token) = held(&first)[0];
        let commit = || {
            let call = Call::Commit { record: id, token, result: json!({ "n": 1 }), finish: true };
            Submission::new(&bob, call).with_idempotency_key("done")
        };
        let done = engine.submit(commit()).await.unwrap();
        let again = engine.submit(commit()).await.unwrap();
        assert_replay(&again, &done);
        assert_eq!(again.no_op, None, "the replay returns the first receipt");
    });
}

/// Neither the expired lease nor another job is returned.
#[test]
fn replayed_lease_call_omits_ended_leases() {
    on_each_store(config_without_polling(), async |engine, clock| {
        for _ in 0..3 {
            create_job(engine).await;
        }
        let bob = worker("bob");
        // If it scanned for others it would wait, and the test would not end.
        let wanted = LeaseRequest {
            max_jobs: 2,
            max_wait: TEST_TIMEOUT,
            idempotency_key: Some("take".into()),
            ..LeaseRequest::single_job(JOB_LIFECYCLE, "w")
        };
        let first = engine.lease(&bob, &wanted).await.unwrap();
        assert_eq!(first.len(), 2);
        engine.commit(&bob, first[0].record.id, first[0].token, json!(1), true).await.unwrap();
        let again = engine.lease(&bob, &wanted).await.unwrap();
        assert_eq!(again.iter().map(|job| job.record.id).collect::<Vec<_>>(), [first[1].record.id]);
        clock.set(first[1].expires_at);
        assert!(engine.lease(&bob, &wanted).await.unwrap().is_empty());
    });
}

#[test]
fn repeated_lease_call_while_first_waits_returns_key_in_use() {
    on_each_store(config_without_polling(), async |engine, _| {
        let bob = worker("bob");
        let wanted = LeaseRequest {
            max_wait: TEST_TIMEOUT,
            idempotency_key: Some("take".into()),
            ..LeaseRequest::single_job(JOB_LIFECYCLE, "w")
        };
        let first = tokio::spawn({
            let (engine, bob, wanted) = (engine.clone(), bob.clone(), wanted.clone());
            async move {
                loop {
                    match engine.lease(&bob, &wanted).await {
                        // The other call came first, and ends soon.
                        Err(EngineError::IdempotencyKeyInUse) => tokio::task::yield_now().await,
                        answer => break answer,
                    }
                }
            }
        });
        let now = LeaseRequest { max_wait: std::time::Duration::ZERO, ..wanted };
        let refusal = loop {
            match engine.lease(&bob, &now).await {
                // It came before the other.
                Ok(none) => assert!(none.is_empty()),
                Err(error) => break error,
            }
            tokio::task::yield_now().await;
        };
        assert_eq!((refusal.status(), refusal.code()), (409, "idempotency_key_in_use"));
        let id = create_job(engine).await;
        let leased = first.await.unwrap().unwrap();
        assert_eq!(leased[0].record.id, id);
    });
}

/// The first round cancels a call whose lease is queued, the second a parked call that a batch is matching.
#[test]
fn recall_waits_for_unsaved_lease_of_canceled_call() {
    block_on(async {
        for is_parked in [false, true] {
            let store = FaultyStore::gated(MemoryStore::new(Clock::manual(start_time())));
            let producer = open_engine(store.inner.clone(), EngineConfig::default()).await;
            let engine = open_engine(store.clone(), config_without_polling()).await;
            if !is_parked {
                create_job(&producer).await;
            }
            let bob = worker("bob");
            let wanted = LeaseRequest {
                max_wait: TEST_TIMEOUT,
                idempotency_key: Some("take".into()),
                ..LeaseRequest::single_job(JOB_LIFECYCLE, "w")
            };
            let canceled = tokio::spawn({
                let (engine, bob, wanted) = (engine.clone(), bob.clone(), wanted.clone());
                async move { engine.lease(&bob, &wanted).await }
            });
            if is_parked {
                while engine.metrics().parked_pollers == 0 {
                    tokio::task::yield_now().await;
                }
                drop(spawn_submit(&engine, new_job_submission()));
            }
            store.wait_for_saves(1).await;
            canceled.abort();
            assert!(canceled.await.unwrap_err().is_cancelled());
            let recall = LeaseRequest { replay_only: true, ..wanted };
            let early = engine.lease(&bob, &recall).await.map(|leased| leased.len());
            assert_eq!(early.unwrap_err().code(), "idempotency_key_in_use", "is_parked: {is_parked}");
            store.save_gate.add_permits(10);
            let leased = loop {
                match engine.lease(&bob, &recall).await {
                    Err(EngineError::IdempotencyKeyInUse) => tokio::task::yield_now().await,
                    answer => break answer.unwrap(),
                }
            };
            assert_eq!(leased.len(), 1, "is_parked: {is_parked}");
            engine.close().await;
            producer.close().await;
        }
    });
}

#[test]
fn idempotency_keys_survive_restart() {
    let (folder, clock) = (TempDir::new(), Clock::manual(start_time()));
    let run_once = || async {
        let engine = open_engine(open_sqlite(&folder, &clock), EngineConfig::default()).await;
        let made = engine.submit(create_lane("a").with_idempotency_key("k")).await.unwrap();
        let wanted =
            LeaseRequest { idempotency_key: Some("take".into()), ..LeaseRequest::single_job("race.lane", "w") };
        let leased = engine.lease(&worker("bob"), &wanted).await.unwrap();
        engine.close().await;
        (made, leased[0].token)
    };
    let (first, second) = (block_on(run_once()), block_on(run_once()));
    assert_replay(&second.0, &first.0);
    assert_eq!((first.1, second.1), (FencingToken(1), FencingToken(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_calls_with_same_key_share_one_result() {
    let store = FaultyStore::gated(MemoryStore::new(Clock::manual(start_time())));
    let engine = open_engine(store.clone(), EngineConfig::default()).await;
    let first = spawn_submit(&engine, create_lane("a").with_idempotency_key("k"));
    store.wait_for_saves(1).await;
    let followers: Vec<_> =
        (0..10).map(|_| spawn_submit(&engine, create_lane("a").with_idempotency_key("k"))).collect();
    assert_eq!(
        reply_code(&engine.submit(create_lane("b").with_idempotency_key("k")).await),
        "idempotency_key_reused",
        "the call is refused at once"
    );
    // The same owner with other roles may get another reply, so it must retry.
    let mut other = create_lane("a").with_idempotency_key("k");
    other.actor = Actor::new("ann", &["moderator"]);
    assert_eq!(reply_code(&engine.submit(other).await), "idempotency_key_in_use");
    wait_until_queued(&engine, 11).await;
    store.save_gate.add_permits(10);
    let first = first.await.unwrap().unwrap();
    for follower in followers {
        assert_replay(&follower.await.unwrap().unwrap(), &first);
    }
    assert_eq!(log_length(&engine).await, 1);
    engine.close().await;
}

/// The stored reply comes before the call in flight that misuses its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn repeated_call_gets_stored_reply_while_other_request_uses_its_key() {
    let store = FaultyStore::gated(MemoryStore::new(Clock::manual(start_time())));
    store.save_gate.add_permits(1);
    let engine = open_engine(store.clone(), config_without_polling()).await;
    let first = engine.submit(create_lane("a").with_idempotency_key("k")).await.unwrap();
    let other = spawn_submit(&engine, create_lane("b").with_idempotency_key("k"));
    store.wait_for_saves(2).await;
    let again = engine.submit(create_lane("a").with_idempotency_key("k")).await;
    assert_replay(&again.expect("the stored reply"), &first);
    let third = engine.submit(create_lane("c").with_idempotency_key("k")).await;
    assert_eq!(reply_code(&third), "idempotency_key_reused");
    store.save_gate.add_permits(10);
    assert_eq!(reply_code(&other.await.unwrap()), "idempotency_key_reused");
    engine.close().await;
}

/// The late engine finds the reply when it saves.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn second_engine_replays_reply_of_first() {
    let store = FaultyStore::gated(MemoryStore::new(Clock::manual(start_time())));
    let quick = open_engine(store.inner.clone(), EngineConfig::default()).await;
    let late = open_engine(store.clone(), EngineConfig::default()).await;
    let losing = tokio::spawn({
        let late = late.clone();
        // Other operations of its batch are not affected.
        async move {
            late.submit_all(vec![
                new_job_submission(),
                create_lane("a").with_idempotency_key("k"),
                create_lane("b").with_idempotency_key("l"),
            ])
            .await
        }
    });
    store.wait_for_saves(1).await;
    let first = quick.submit(create_lane("a").with_idempotency_key("k")).await.unwrap();
    quick.submit(create_lane("c").with_idempotency_key("l")).await.unwrap();
    store.save_gate.add_permits(10);
    let replies = losing.await.unwrap().unwrap();
    assert_eq!(replies.iter().map(reply_code).collect::<Vec<_>>(), ["ok", "ok", "idempotency_key_reused"]);
    assert_replay(replies[1].as_ref().unwrap(), &first);
    assert_eq!((late.counters().conflicts, log_length(&quick).await), (1, 3));
    quick.close().await;
    late.close().await;
}

#[test]
fn replayed_call_does_not_ask_checks_again() {
    let check_calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&check_calls);
    let checks = CheckRegistry::default().register("race.note", "decent", move |_: CheckRequest| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok(json_object(json!({ "fine": true }))) }
    });
    on_each_store(EngineConfig { checks, ..EngineConfig::default() }, async |engine, _| {
        check_calls.store(0, Ordering::SeqCst);
        let note = || {
            let fields = json_object(json!({ "text": "hello" }));
            let create = CreateRecord { lifecycle: "race.note".into(), id: None, owner: None, fields, payload: None };
            Submission::new(&user("ann"), Call::Create(create)).with_idempotency_key("n")
        };
        let first = engine.submit(note()).await.unwrap();
        assert_replay(&engine.submit(note()).await.unwrap(), &first);
        assert_eq!(check_calls.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn replayed_reply_hides_record_the_caller_may_not_read() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let create = CreateRecord {
            lifecycle: JOB_LIFECYCLE.into(),
            id: None,
            owner: Some("bob".into()),
            fields: json_object(json!({})),
            payload: None,
        };
        let made = |actor| Submission::new(&actor, Call::Create(create.clone())).with_idempotency_key("for bob");
        let first = engine.submit(made(operator_actor())).await.unwrap();
        // The same key owner, no longer an operator.
        let again = engine.submit(made(user("ops"))).await.unwrap();
        assert_replay(&again, &first);
        assert!(again.record.is_none());
    });
}

/// Other calls of the batch are not affected.
#[test]
fn invalid_idempotency_keys_are_rejected() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let long = "x".repeat(256);
        let calls =
            ["", "a\u{1f}0", "a\0", &long, &long[1..]].map(|key| new_job_submission().with_idempotency_key(key));
        let codes: Vec<String> = engine.submit_all(calls.into()).await.unwrap().iter().map(reply_code).collect();
        assert_eq!(
            codes,
            [
                "invalid_idempotency_key",
                "invalid_idempotency_key",
                "invalid_idempotency_key",
                "invalid_idempotency_key",
                "ok"
            ]
        );
        let submission =
            Submission { idempotency_key: Some(IdempotencyKey::new("own digest", [7; 32])), ..new_job_submission() };
        assert!(!engine.submit(submission.clone()).await.unwrap().replayed);
        assert!(engine.submit(submission).await.unwrap().replayed);
        let _: AnyStore = engine.store().clone();
    });
}
