//! Reports of workers, and what a worker may not do.

use onceward_core::decide::ErrorReport;
use onceward_core::diagnostic::{File, Files};
use onceward_engine::{Config, EngineError, Wanted};
use onceward_testkit::{user, worker};
use serde_json::{Map, json};

use crate::stage::{JOB, LONG, code, job, leased, object, on_each, state, unpolled};

/// Start, commit and finish apart; fail and yield give the job back.
#[test]
fn reports() {
    on_each(Config::default(), async |engine, _| {
        let (id, bob) = (job(engine).await, worker("bob"));
        let wanted = Wanted { start: false, ..Wanted::one(JOB, "w") };
        let held = engine.lease(&bob, &wanted).await.unwrap().pop().expect("the job");
        engine.start(&bob, id, held.token).await.unwrap();
        assert_eq!(code(&engine.finish(&bob, id, held.token).await), "not_committed");
        engine.commit(&bob, id, held.token, json!(1), false).await.unwrap();
        assert_eq!(state(engine, id).await, "RUNNING");
        engine.finish(&bob, id, held.token).await.unwrap();
        assert_eq!(state(engine, id).await, "SUCCEEDED");

        let failing = job(engine).await;
        let held = leased(engine).await.expect("the job");
        let error =
            ErrorReport { code: "broken".into(), message: "no".into(), retryable: Some(false), retry_after: None };
        engine.fail(&bob, failing, held.token, error).await.unwrap();
        assert_eq!(state(engine, failing).await, "FAILED");

        let yielded = job(engine).await;
        let held = leased(engine).await.expect("the job");
        engine.yield_back(&bob, yielded, held.token).await.unwrap();
        assert_eq!(state(engine, yielded).await, "PENDING");
        assert_eq!(code(&engine.commit(&bob, yielded, held.token, json!(1), true).await), "lease_lost");
    });
}

/// Who is no worker gets no job, and is told so.
#[test]
fn only_workers_lease() {
    on_each(Config::default(), async |engine, _| {
        job(engine).await;
        let found = engine.lease(&user("ann"), &Wanted::one(JOB, "w")).await;
        assert!(matches!(&found, Err(EngineError::Refused(_))), "{found:?}");
        assert!(engine.lease(&worker("bob"), &Wanted { most: 0, ..Wanted::one(JOB, "w") }).await.unwrap().is_empty());
        assert!(leased(engine).await.is_some());
    });
}

/// A lane that is full keeps its other jobs back, and nobody else's. When its job is done, a worker that waits is woken.
#[test]
fn a_lane_that_frees_wakes_a_worker() {
    const LANE: &str = "race.lane";
    on_each(unpolled(), async |engine, _| {
        let (ann, bob) = (user("ann"), worker("bob"));
        let mut made = Vec::new();
        for lane in ["a", "a", "b"] {
            made.push(engine.create(&ann, LANE, object(json!({ "lane": lane }))).await.unwrap().subject);
        }
        let wanted = Wanted { most: 10, ..Wanted::one(LANE, "w") };
        let held = engine.lease(&bob, &wanted).await.unwrap();
        let ids: Vec<_> = held.iter().map(|held| held.record.id).collect();
        assert_eq!(ids, [made[0], made[2]]);
        assert!(engine.lease(&bob, &wanted).await.unwrap().is_empty());
        let waiting = tokio::spawn({
            let (engine, bob) = (engine.clone(), bob.clone());
            async move { engine.lease(&bob, &Wanted { wait: LONG, ..wanted }).await }
        });
        engine.commit(&bob, made[0], held[0].token, json!(1), true).await.unwrap();
        let woken = tokio::time::timeout(LONG / 2, waiting).await.expect("before the poll").unwrap().unwrap();
        assert_eq!((woken.len(), woken[0].record.id), (1, made[1]));
    });
}

/// A chain of records shows only its next link each time it is decided. It is loaded in ever longer steps, so that its length
/// costs neither a round each nor the operation.
#[test]
fn a_long_chain_is_loaded_ahead() {
    on_each(Config::default(), async |engine, _| {
        let text = include_str!("../../../../bench/lifecycles/belief.toml");
        let file = File { name: "belief.toml".to_owned(), text: text.into() };
        engine.define(&Files { files: vec![file] }).await.expect("a sound file");
        let ann = user("ann");
        let believe = async |support: Vec<String>| {
            let fields = object(json!({ "subject": "one of many", "support": support }));
            engine.create(&ann, "bench.belief", fields).await.expect("believed").subject
        };
        let first = believe(Vec::new()).await;
        let mut last = first;
        for _ in 0..1_000 {
            last = believe(vec![last.to_string()]).await;
        }
        engine.fire(&ann, first, "reject", Map::new()).await.expect("all of it, or none");
        assert_eq!(state(engine, last).await, "stale");
    });
}
