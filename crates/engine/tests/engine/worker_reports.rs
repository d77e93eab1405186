//! Reports of workers, and missing permissions.

use onceward_core::decide::{Call, CreateRecord, FailureReport};
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::record::FencingToken;
use onceward_core::time::Duration;
use onceward_engine::{EngineConfig, EngineError, LeaseRequest, Submission};
use onceward_store::PayloadBytes;
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

/// EXE-5: the lifecycle's lease lasts 30 s.
#[test]
fn heartbeat_without_length_keeps_the_length_of_the_lease() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let (id, bob) = (create_job(engine).await, worker("bob"));
        let short = Some(Duration::from_secs(15));
        let request = LeaseRequest { lease_duration: short, ..LeaseRequest::single_job(JOB_LIFECYCLE, "w") };
        let held = engine.lease(&bob, &request).await.unwrap().pop().expect("the job");
        for (heartbeat_length, expected_secs) in [(None, 15), (Some(Duration::from_secs(20)), 20), (None, 15)] {
            clock.set(clock.now().checked_add(Duration::from_secs(10)).unwrap());
            let call = Call::Heartbeat { record: id, token: held.token, lease: heartbeat_length };
            engine.submit(Submission::new(&bob, call)).await.unwrap();
            let record = engine.get(&bob, id).await.unwrap().expect("the job");
            let expires_at = record.execution.as_ref().expect("a lease").expires_at;
            assert_eq!(expires_at.duration_since(clock.now()), Some(Duration::from_secs(expected_secs)));
        }
    });
}

/// No transition of `document.job` reads `error.retryAfter`, and its RETRYING lasts one second.
#[test]
fn retry_after_delays_the_next_lease() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let files = InputFiles { files: onceward_testkit::systems::source_files("document") };
        engine.put_lifecycles(&files).await.unwrap();
        let (ann, bob) = (user("ann"), worker("bob"));
        let create =
            CreateRecord { lifecycle: "document.job".into(), id: None, owner: None, fields: Map::new(), payload: None };
        let id = engine.create_with_payload(&ann, create, *b"x").await.unwrap().subject;
        engine.fire(&ann, id, "submit", Map::new()).await.unwrap();
        let lease = async || engine.lease(&bob, &LeaseRequest::single_job("document.job", "w")).await.unwrap().pop();
        let held = lease().await.expect("the job");
        let retry_after = Some(Duration::from_secs(5));
        let report = FailureReport { retry_after, ..FailureReport::new("TIMEOUT", "too slow") };
        engine.fail(&bob, id, held.token, report).await.unwrap();
        for seconds in [1, 3] {
            clock.set(clock.now().checked_add(Duration::from_secs(seconds)).unwrap());
            assert_eq!(state_of(engine, id).await, "QUEUED");
            let call = Call::Lease { record: id, worker: "w".into(), lease: None, start: true };
            assert_eq!(reply_code(&engine.submit(Submission::new(&bob, call)).await), "not_ready");
        }
        clock.set(clock.now().checked_add(Duration::from_secs(1)).unwrap());
        assert!(lease().await.is_some());
        // A terminal error sets no delay that would outlive it.
        engine
            .fail(&bob, id, FencingToken(2), FailureReport { retry_after, ..FailureReport::new("CORRUPT_DATA", "") })
            .await
            .unwrap();
        let page = engine.executions(&ann, id, FencingToken(0), 10).await.unwrap().expect("the job");
        let delays: Vec<_> = page
            .executions
            .iter()
            .map(|one| one.aborted.as_ref().is_some_and(|abort| abort.retry_at.is_some()))
            .collect();
        assert_eq!(delays, [true, false]);
    });
}

/// The message of an attempt stays after the job was retried, and an event that ends a lease is named.
#[test]
fn executions_keep_the_error_of_each_attempt() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let (id, bob) = (create_job(engine).await, worker("bob"));
        for message in ["the disk is full", ""] {
            let held = lease_one(engine).await.expect("the job");
            let report = FailureReport { retryable: Some(true), ..FailureReport::new("BUSY", message) };
            engine.fail(&bob, id, held.token, report).await.unwrap();
            clock.set(clock.now().checked_add(Duration::from_secs(60)).unwrap());
            state_of(engine, id).await;
        }
        let held = lease_one(engine).await.expect("the job");
        clock.set(clock.now().checked_add(Duration::from_secs(60)).unwrap());
        state_of(engine, id).await;
        let page = engine.executions(&user("ann"), id, FencingToken(0), 10).await.unwrap().expect("the job");
        let messages: Vec<_> =
            page.executions.iter().map(|one| one.aborted.as_ref().map(|abort| abort.message.to_string())).collect();
        let expected = ["the disk is full", "", "the lease expired"].map(|message| Some(message.to_owned()));
        assert_eq!(messages, expected, "{held:?}");
    });
}

/// The others stay ready: for the next call, and for another poller.
#[test]
fn lease_stops_at_its_bytes_and_leases_one_job_of_any_size() {
    on_each_store(config_without_polling(), async |engine, _| {
        let bob = worker("bob");
        let create = async |count: usize| {
            let create = CreateRecord {
                lifecycle: JOB_LIFECYCLE.into(),
                id: None,
                owner: None,
                fields: json_object(json!({})),
                payload: None,
            };
            for _ in 0..count {
                engine.create_with_payload(&user("ann"), create.clone(), vec![b'x'; 30_000]).await.unwrap();
            }
        };
        // A payload of 30,000 bytes has 40,000 as base64.
        let wanted = LeaseRequest { max_jobs: 9, max_bytes: 100_000, ..LeaseRequest::single_job(JOB_LIFECYCLE, "w") };
        create(5).await;
        for expected in [2, 2, 1, 0] {
            assert_eq!(engine.lease(&bob, &wanted).await.unwrap().len(), expected);
        }
        create(2).await;
        for expected in [1, 1, 0] {
            let tiny = LeaseRequest { max_bytes: 1, ..wanted.clone() };
            assert_eq!(engine.lease(&bob, &tiny).await.unwrap().len(), expected);
        }
        // Jobs of one batch for two parked pollers, whose wait ends only if they get jobs.
        let poll = || {
            let (engine, bob) = (engine.clone(), bob.clone());
            let wanted = LeaseRequest { max_wait: TEST_TIMEOUT, ..wanted.clone() };
            tokio::spawn(async move { engine.lease(&bob, &wanted).await.unwrap().len() })
        };
        let pollers = [poll(), poll()];
        while engine.metrics().parked_pollers < 2 {
            tokio::task::yield_now().await;
        }
        let payload = PayloadBytes::from_bytes(vec![b'x'; 30_000]);
        let create = CreateRecord {
            lifecycle: JOB_LIFECYCLE.into(),
            id: None,
            owner: None,
            fields: json_object(json!({})),
            payload: Some(payload.payload),
        };
        let one = Submission { payloads: vec![payload], ..Submission::new(&user("ann"), Call::Create(create)) };
        engine.submit_all(vec![one; 3]).await.unwrap();
        let mut leased = [0, 0];
        for (jobs, poller) in leased.iter_mut().zip(pollers) {
            *jobs = poller.await.unwrap();
        }
        leased.sort_unstable();
        assert_eq!(leased, [1, 2]);
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
