//! Bounds on what callers can grow.

use onceward_core::decide::{Call, CreateRecord, FailureReport};
use onceward_core::record::PayloadRef;
use onceward_core::time::Duration as Span;
use onceward_core::value::RecordId;
use onceward_engine::{CheckRegistry, EngineConfig, EngineError, Submission};
use onceward_store::{Clock, MemoryStore, PayloadBytes, Store};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::support::held_checks::HeldChecks;
use crate::support::{
    JOB_LIFECYCLE, TEST_TIMEOUT, config_without_polling, create_job, json_object, lease_one, new_job_submission,
    on_each_store, open_engine, reply_code, start_time,
};

fn poke(actor: &str, record: RecordId, text: &str) -> Submission {
    let input = json_object(json!({ "text": text }));
    let call = Call::Fire { record, event: "poke".into(), input, token: None, if_version: None };
    Submission::new(&user(actor), call)
}

/// INV-9: refusals beyond the limit are only counted.
#[test]
fn logged_denials_are_limited_per_owner() {
    on_each_store(EngineConfig { logged_denials_per_minute: 3, ..config_without_polling() }, async |engine, clock| {
        let id = create_job(engine).await;
        let log = async || engine.store().log(0, 1_000).await.unwrap().len() - 1;
        let storm = || (0..10).map(|_| poke("eve", id, "hm")).collect();
        for _ in 0..2 {
            let codes: Vec<String> = engine.submit_all(storm()).await.unwrap().iter().map(reply_code).collect();
            assert_eq!(codes, vec!["not_found"; 10]);
        }
        assert_eq!((log().await, engine.counters().unlogged_refusals), (3, 17));
        assert_eq!(reply_code(&engine.submit(poke("bob", id, "hm")).await), "not_found");
        assert_eq!(log().await, 4, "another owner has its own budget");
        clock.set(start_time().checked_add(Span::from_secs(20)).unwrap());
        engine.submit_all(storm()).await.unwrap();
        assert_eq!(log().await, 5, "a third of a minute refills one of three");
        clock.set(start_time());
        engine.submit_all(storm()).await.unwrap();
        assert_eq!(log().await, 5, "a clock that is set back refills nothing");
        clock.set(start_time().checked_add(Span::from_secs(24 * 3_600)).unwrap());
        engine.submit(poke("eve", id, &"x".repeat(2_500))).await.unwrap_err();
        engine.submit_all(storm()).await.unwrap();
        assert_eq!(log().await, 6, "a large entry costs as much as several");
    });
}

/// INV-9, IMG-16: many denials do not suppress an audited refusal, nor the other way round.
#[test]
fn audited_refusals_have_their_own_log_limit() {
    let asleep = CheckRegistry::default()
        .register("race.bell", "awake", |_| async { Ok(json_object(json!({ "fine": false }))) });
    on_each_store(
        EngineConfig { logged_denials_per_minute: 3, checks: asleep, ..config_without_polling() },
        async |engine, _| {
            let id = create_job(engine).await;
            let later = start_time().checked_add(Span::from_secs(3_600)).unwrap().to_string();
            let fields = json_object(json!({ "to": "http://nowhere", "first": later, "second": later }));
            let bell = engine.create(&user("eve"), "race.bell", fields).await.expect("eve creates a bell").subject;
            let audits = async || {
                let log = engine.store().log(0, 1_000).await.unwrap();
                log.iter().filter(|entry| entry.text.contains("ASLEEP")).count()
            };
            let denied: Vec<Submission> = (0..10).map(|_| poke("eve", id, "hm")).collect();
            engine.submit_all(denied).await.unwrap();
            let eve = user("eve");
            let wake = || engine.fire(&eve, bell, "wake", json_object(json!({})));
            for logged in [1, 2, 3, 3] {
                assert_eq!(reply_code(&wake().await), "asleep");
                assert_eq!(audits().await, logged, "audited refusals have their own budget");
            }
            assert_eq!(engine.counters().unlogged_refusals, 8, "refusals beyond the budget are counted");
        },
    );
}

/// Other calls of the batch are not affected.
#[test]
fn oversized_call_returns_request_too_large() {
    let config = EngineConfig { max_input_bytes: 100, max_result_bytes: 50, ..EngineConfig::default() };
    on_each_store(config, async |engine, _| {
        let (id, bob) = (create_job(engine).await, worker("bob"));
        let large = poke("ann", id, &"x".repeat(100));
        let replies = engine.submit_all(vec![new_job_submission(), large, new_job_submission()]).await.unwrap();
        assert_eq!(replies.iter().map(reply_code).collect::<Vec<_>>(), ["ok", "request_too_large", "ok"]);
        assert_eq!(replies[1].as_ref().unwrap_err().status(), 413);
        let name = "x".repeat(101);
        assert_eq!(reply_code(&engine.create(&user("ann"), &name, json_object(json!({}))).await), "request_too_large");
        assert_eq!(
            reply_code(&engine.fire(&user("ann"), id, &name, json_object(json!({}))).await),
            "request_too_large"
        );
        let held = lease_one(engine).await.expect("the job");
        let deep = json!([[["x".repeat(50)]]]);
        assert_eq!(reply_code(&engine.commit(&bob, held.record.id, held.token, deep, true).await), "request_too_large");
        let error = FailureReport::new("broken", &"x".repeat(100));
        assert_eq!(reply_code(&engine.fail(&bob, held.record.id, held.token, error).await), "request_too_large");
        engine.commit(&bob, held.record.id, held.token, json!("x".repeat(40)), true).await.unwrap();
        assert_eq!(engine.store().log(0, 100).await.unwrap().len(), 5);
    });
}

fn nested_json(depth: usize) -> serde_json::Value {
    (0..depth).fold(json!(1), |inner, _| json!([inner]))
}

/// Accepted values can be read back from the log.
#[test]
fn json_deeper_than_limit_is_rejected() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let (id, bob) = (create_job(engine).await, worker("bob"));
        for (by, expected) in [(99, ""), (100, ""), (101, "invalid_input"), (120, "invalid_input")] {
            let fired = engine.fire(&user("ann"), id, "nothing", json_object(json!({ "text": nested_json(by) }))).await;
            let refused = fired.expect_err("there is no such event");
            assert_eq!(matches!(refused, EngineError::NestingTooDeep { .. }), !expected.is_empty(), "{by}: {refused}");
            let made =
                engine.create(&user("ann"), JOB_LIFECYCLE, json_object(json!({ "text": nested_json(by) }))).await;
            assert_eq!(matches!(made, Err(EngineError::NestingTooDeep { .. })), !expected.is_empty(), "{by}");
        }
        let held = lease_one(engine).await.expect("the job");
        assert_eq!(reply_code(&engine.commit(&bob, id, held.token, nested_json(101), true).await), "invalid_input");
        engine.commit(&bob, id, held.token, nested_json(100), true).await.expect("the maximum depth is accepted");
        assert!(engine.effect(&user("ann"), id).await.expect("the read succeeds").is_some());
        for entry in engine.store().log(0, 100).await.unwrap() {
            entry.body().expect("the read succeeds");
        }
    });
}

#[test]
fn mismatched_payload_bytes_return_payload_mismatch() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let create = |payload| {
            let (id, owner, fields) = (None, None, json_object(json!({})));
            Call::Create(CreateRecord { lifecycle: JOB_LIFECYCLE.into(), id, owner, fields, payload })
        };
        let payload = PayloadRef { sha256: [7; 32], bytes: 3 };
        let content = |payload| PayloadBytes { payload, bytes: (*b"abc").into() };
        let lies = [
            (create(Some(payload)), content(payload)),
            (create(None), content(payload)),
            (create(Some(payload)), content(PayloadRef { bytes: 4, ..payload })),
        ];
        for (call, content) in lies {
            let submission = Submission { payloads: vec![content], ..Submission::new(&user("ann"), call) };
            assert_eq!(reply_code(&engine.submit(submission).await), "payload_mismatch");
        }
        let create = CreateRecord {
            lifecycle: JOB_LIFECYCLE.into(),
            id: None,
            owner: None,
            fields: json_object(json!({})),
            payload: None,
        };
        let large = vec![0; (1 << 20) + 1];
        let reply = engine.create_with_payload(&user("ann"), create, large).await;
        assert_eq!(reply_code(&reply), "invalid_input", "the input exceeds the bounds of its field");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn queued_bytes_over_limit_return_overloaded() {
    let (checks, held) = HeldChecks::create();
    let config = EngineConfig { max_queued_bytes: 150, checks, check_timeout: TEST_TIMEOUT, ..EngineConfig::default() };
    let engine = open_engine(MemoryStore::new(Clock::manual(start_time())), config).await;
    let note = || {
        let engine = engine.clone();
        let fields = json_object(json!({ "text": "x".repeat(80) }));
        async move { engine.create(&user("ann"), "race.note", fields).await }
    };
    let first = tokio::spawn(note());
    held.wait_until_asked(1).await;
    assert!(matches!(note().await, Err(EngineError::Overloaded { .. })));
    held.release();
    first.await.unwrap().unwrap();
    note().await.expect("the queue has capacity again");
    engine.close().await;
}
