//! Nobody makes anything grow without bound.

use onceward_core::decide::{Call, Create, ErrorReport};
use onceward_core::record::Payload;
use onceward_core::time::Duration as Span;
use onceward_core::value::RecordId;
use onceward_engine::{Checks, Config, EngineError, Submission};
use onceward_store::{Clock, Content, MemoryStore, Store};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::stage::held::Held;
use crate::stage::{JOB, LONG, code, job, leased, new_job, object, on_each, open, start, unpolled, wait};

fn fire(actor: &str, record: RecordId, text: &str) -> Submission {
    let input = object(json!({ "text": text }));
    let call = Call::Fire { record, event: "poke".into(), input, token: None, if_version: None };
    Submission::new(&user(actor), call)
}

/// INV-9: a denial is logged, but not each of a storm: an owner has so many a minute. The others are refused just the same, and
/// counted.
#[test]
fn a_storm_of_denials() {
    on_each(Config { denials: 3, ..unpolled() }, async |engine, clock| {
        let id = job(engine).await;
        let log = async || engine.store().log(0, 1_000).await.unwrap().len() - 1;
        let storm = || (0..10).map(|_| fire("eve", id, "hm")).collect();
        for _ in 0..2 {
            let codes: Vec<String> = engine.submit_all(storm()).await.unwrap().iter().map(code).collect();
            assert_eq!(codes, vec!["not_found"; 10]);
        }
        assert_eq!((log().await, engine.tally().untold), (3, 17));
        assert_eq!(code(&engine.submit(fire("bob", id, "hm")).await), "not_found");
        assert_eq!(log().await, 4, "another owner has its own");
        clock.set(start().checked_add(Span::from_secs(20)).unwrap());
        engine.submit_all(storm()).await.unwrap();
        assert_eq!(log().await, 5, "a third of a minute, one of three");
        clock.set(start());
        engine.submit_all(storm()).await.unwrap();
        assert_eq!(log().await, 5, "a clock that is set back gives nothing");
        clock.set(start().checked_add(Span::from_secs(24 * 3_600)).unwrap());
        engine.submit(fire("eve", id, &"x".repeat(2_500))).await.unwrap_err();
        engine.submit_all(storm()).await.unwrap();
        assert_eq!(log().await, 6, "a large one costs as much as several");
    });
}

/// INV-9, IMG-16: a storm of denials before it does not keep a refusal that is audited out of the log, nor the other way round.
#[test]
fn denials_do_not_spend_the_audit() {
    let asleep = Checks::default().on("race.bell", "awake", |_| async { Ok(object(json!({ "fine": false }))) });
    on_each(Config { denials: 3, checks: asleep, ..unpolled() }, async |engine, _| {
        let id = job(engine).await;
        let later = start().checked_add(Span::from_secs(3_600)).unwrap().to_string();
        let fields = object(json!({ "to": "http://nowhere", "first": later, "second": later }));
        let bell = engine.create(&user("eve"), "race.bell", fields).await.expect("a bell of her own").subject;
        let audits = async || {
            let log = engine.store().log(0, 1_000).await.unwrap();
            log.iter().filter(|entry| entry.text.contains("ASLEEP")).count()
        };
        let denied: Vec<Submission> = (0..10).map(|_| fire("eve", id, "hm")).collect();
        engine.submit_all(denied).await.unwrap();
        let eve = user("eve");
        let wake = || engine.fire(&eve, bell, "wake", object(json!({})));
        for logged in [1, 2, 3, 3] {
            assert_eq!(code(&wake().await), "asleep");
            assert_eq!(audits().await, logged, "she has as many of these, and no more");
        }
        assert_eq!(engine.tally().untold, 8, "what goes beyond is counted");
    });
}

/// What is too large is turned away by itself, whatever came with it.
#[test]
fn calls_are_bounded() {
    let config = Config { input_bytes: 100, result_bytes: 50, ..Config::default() };
    on_each(config, async |engine, _| {
        let (id, bob) = (job(engine).await, worker("bob"));
        let large = fire("ann", id, &"x".repeat(100));
        let replies = engine.submit_all(vec![new_job(), large, new_job()]).await.unwrap();
        assert_eq!(replies.iter().map(code).collect::<Vec<_>>(), ["ok", "too_large", "ok"]);
        assert_eq!(replies[1].as_ref().unwrap_err().status(), 413);
        let name = "x".repeat(101);
        assert_eq!(code(&engine.create(&user("ann"), &name, object(json!({}))).await), "too_large");
        assert_eq!(code(&engine.fire(&user("ann"), id, &name, object(json!({}))).await), "too_large");
        let held = leased(engine).await.expect("the job");
        let deep = json!([[["x".repeat(50)]]]);
        assert_eq!(code(&engine.commit(&bob, held.record.id, held.token, deep, true).await), "too_large");
        let error = ErrorReport::new("broken", &"x".repeat(100));
        assert_eq!(code(&engine.fail(&bob, held.record.id, held.token, error).await), "too_large");
        engine.commit(&bob, held.record.id, held.token, json!("x".repeat(40)), true).await.unwrap();
        assert_eq!(engine.store().log(0, 100).await.unwrap().len(), 5);
    });
}

fn deep(by: usize) -> serde_json::Value {
    (0..by).fold(json!(1), |inner, _| json!([inner]))
}

/// What is nested so deep that the log could not be read again is not taken; what is taken can be read, by everybody who reads it.
#[test]
fn calls_are_not_too_deep() {
    on_each(Config::default(), async |engine, _| {
        let (id, bob) = (job(engine).await, worker("bob"));
        for (by, expected) in [(99, ""), (100, ""), (101, "bad_input"), (120, "bad_input")] {
            let fired = engine.fire(&user("ann"), id, "nothing", object(json!({ "text": deep(by) }))).await;
            let refused = fired.expect_err("there is no such event");
            assert_eq!(matches!(refused, EngineError::TooDeep { .. }), !expected.is_empty(), "{by}: {refused}");
            let made = engine.create(&user("ann"), JOB, object(json!({ "text": deep(by) }))).await;
            assert_eq!(matches!(made, Err(EngineError::TooDeep { .. })), !expected.is_empty(), "{by}");
        }
        let held = leased(engine).await.expect("the job");
        assert_eq!(code(&engine.commit(&bob, id, held.token, deep(101), true).await), "bad_input");
        engine.commit(&bob, id, held.token, deep(100), true).await.expect("as deep as may be");
        assert!(engine.effect(&user("ann"), id).await.expect("it can be read").is_some());
        for entry in engine.store().log(0, 100).await.unwrap() {
            entry.body().expect("it can be read");
        }
    });
}

/// Bytes come under their own hash, with a call that names them, and no longer than they are said to be.
#[test]
fn bytes_are_what_they_are_said_to_be() {
    on_each(Config::default(), async |engine, _| {
        let create = |payload| {
            let (id, owner, fields) = (None, None, object(json!({})));
            Call::Create(Create { lifecycle: JOB.into(), id, owner, fields, payload })
        };
        let payload = Payload { sha256: [7; 32], bytes: 3 };
        let content = |payload| Content { payload, bytes: (*b"abc").into() };
        let lies = [
            (create(Some(payload)), content(payload)),
            (create(None), content(payload)),
            (create(Some(payload)), content(Payload { bytes: 4, ..payload })),
        ];
        for (call, content) in lies {
            let submission = Submission { contents: vec![content], ..Submission::new(&user("ann"), call) };
            assert_eq!(code(&engine.submit(submission).await), "bad_content");
        }
        let create = Create { lifecycle: JOB.into(), id: None, owner: None, fields: object(json!({})), payload: None };
        let large = vec![0; (1 << 20) + 1];
        let reply = engine.create_with(&user("ann"), create, large).await;
        assert_eq!(code(&reply), "bad_input", "larger than its lifecycle takes");
    });
}

/// However many calls have room, their bytes together are bounded.
#[test]
fn bytes_on_their_way_are_bounded() {
    let (checks, held) = Held::checks();
    wait(async {
        let config = Config { queue_bytes: 150, checks, check_time: LONG, ..Config::default() };
        let engine = open(MemoryStore::new(Clock::manual(start())), config).await;
        let note = || {
            let engine = engine.clone();
            let fields = object(json!({ "text": "x".repeat(80) }));
            async move { engine.create(&user("ann"), "race.note", fields).await }
        };
        let first = tokio::spawn(note());
        held.have_asked(1).await;
        assert!(matches!(note().await, Err(EngineError::Overloaded { .. })));
        held.go();
        first.await.unwrap().unwrap();
        note().await.expect("there is room again");
        engine.close().await;
    });
}
