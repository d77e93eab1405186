//! Reports of workers, and missing permissions.

use onceward_core::decide::FailureReport;
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_engine::{EngineConfig, EngineError, LeaseRequest};
use onceward_testkit::{user, worker};
use serde_json::{Map, json};

use crate::support::{
    JOB_LIFECYCLE, TEST_TIMEOUT, config_without_polling, create_job, json_object, lease_one, on_each_store, reply_code,
    state_of,
};

#[test]
fn reports_change_job_state_as_declared() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let (id, bob) = (create_job(engine).await, worker("bob"));
        let wanted = LeaseRequest { start: false, ..LeaseRequest::single_job(JOB_LIFECYCLE, "w") };
        let held = engine.lease(&bob, &wanted).await.unwrap().pop().expect("the job");
        engine.start(&bob, id, held.token).await.unwrap();
        assert_eq!(reply_code(&engine.finish(&bob, id, held.token).await), "not_committed");
        engine.commit(&bob, id, held.token, json!(1), false).await.unwrap();
        assert_eq!(state_of(engine, id).await, "RUNNING");
        engine.finish(&bob, id, held.token).await.unwrap();
        assert_eq!(state_of(engine, id).await, "SUCCEEDED");

        let failing = create_job(engine).await;
        let held = lease_one(engine).await.expect("the job");
        let error =
            FailureReport { code: "broken".into(), message: "no".into(), retryable: Some(false), retry_after: None };
        engine.fail(&bob, failing, held.token, error).await.unwrap();
        assert_eq!(state_of(engine, failing).await, "FAILED");

        let yielded = create_job(engine).await;
        let held = lease_one(engine).await.expect("the job");
        engine.yield_job(&bob, yielded, held.token).await.unwrap();
        assert_eq!(state_of(engine, yielded).await, "PENDING");
        assert_eq!(reply_code(&engine.commit(&bob, yielded, held.token, json!(1), true).await), "lease_lost");
    });
}

#[test]
fn lease_requires_worker_role() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        create_job(engine).await;
        let found = engine.lease(&user("ann"), &LeaseRequest::single_job(JOB_LIFECYCLE, "w")).await;
        assert!(matches!(&found, Err(EngineError::Refused(_))), "{found:?}");
        assert!(
            engine
                .lease(&worker("bob"), &LeaseRequest { max_jobs: 0, ..LeaseRequest::single_job(JOB_LIFECYCLE, "w") })
                .await
                .unwrap()
                .is_empty()
        );
        assert!(lease_one(engine).await.is_some());
    });
}

/// A full lane delays only its own jobs.
#[test]
fn freed_concurrency_key_wakes_waiting_worker() {
    const LANE_LIFECYCLE: &str = "race.lane";
    on_each_store(config_without_polling(), async |engine, _| {
        let (ann, bob) = (user("ann"), worker("bob"));
        let mut made = Vec::new();
        for lane in ["a", "a", "b"] {
            made.push(engine.create(&ann, LANE_LIFECYCLE, json_object(json!({ "lane": lane }))).await.unwrap().subject);
        }
        let wanted = LeaseRequest { max_jobs: 10, ..LeaseRequest::single_job(LANE_LIFECYCLE, "w") };
        let held = engine.lease(&bob, &wanted).await.unwrap();
        let ids: Vec<_> = held.iter().map(|held| held.record.id).collect();
        assert_eq!(ids, [made[0], made[2]]);
        assert!(engine.lease(&bob, &wanted).await.unwrap().is_empty());
        let waiting = tokio::spawn({
            let (engine, bob) = (engine.clone(), bob.clone());
            async move { engine.lease(&bob, &LeaseRequest { max_wait: TEST_TIMEOUT, ..wanted }).await }
        });
        engine.commit(&bob, made[0], held[0].token, json!(1), true).await.unwrap();
        let woken = tokio::time::timeout(TEST_TIMEOUT / 2, waiting)
            .await
            .expect("it ends before the next poll")
            .unwrap()
            .unwrap();
        assert_eq!((woken.len(), woken[0].record.id), (1, made[1]));
    });
}

/// Each decide pass shows only the next link of a chain, so the prefetch grows per round.
#[test]
fn long_record_chain_is_prefetched() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let text = include_str!("../../../../assurance/bench/lifecycles/belief.toml");
        let file = InputFile { name: "belief.toml".to_owned(), text: text.into() };
        engine.put_lifecycles(&InputFiles { files: vec![file] }).await.expect("a valid file");
        let ann = user("ann");
        let believe = async |support: Vec<String>| {
            let fields = json_object(json!({ "subject": "one of many", "support": support }));
            engine.create(&ann, "bench.belief", fields).await.expect("believed").subject
        };
        let first = believe(Vec::new()).await;
        let mut last = first;
        for _ in 0..1_000 {
            last = believe(vec![last.to_string()]).await;
        }
        engine.fire(&ann, first, "reject", Map::new()).await.expect("the cascade is all or nothing");
        assert_eq!(state_of(engine, last).await, "stale");
    });
}
