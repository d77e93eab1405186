//! Notifications between engines; one of them fires due work.

use std::collections::BTreeMap;

use onceward_core::time::Duration;
use onceward_engine::{EngineConfig, EngineError, LeaseRequest};
use onceward_store::{Clock, Store, StoreError};
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::support::{
    JOB_LIFECYCLE, TEST_TIMEOUT, config_without_polling, create_job, json_object, lease_one, open_engine,
    open_postgres, operator_actor, start_time, state_of,
};
use crate::{assert_verified, open_engines};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn job_of_other_engine_wakes_waiting_worker() {
    let url = PostgresServer::shared().create_database();
    let engines = open_engines(2, &url, &Clock::manual(start_time()), &config_without_polling()).await;
    let wanted = LeaseRequest { max_wait: TEST_TIMEOUT / 2, ..LeaseRequest::single_job(JOB_LIFECYCLE, "w") };
    for _ in 0..5 {
        let waiting = {
            let (engine, wanted) = (engines[1].clone(), wanted.clone());
            tokio::spawn(async move { engine.lease(&worker("bob"), &wanted).await })
        };
        let id = create_job(&engines[0]).await;
        let held = waiting.await.unwrap().unwrap().pop().expect("no timeout");
        assert_eq!(held.record.id, id);
    }
    // The log stream works across engines too.
    let mut stream = engines[1].stream(&operator_actor(), 0);
    for seq in 1..=10 {
        assert_eq!(stream.next().await.unwrap().unwrap().seq, seq);
    }
    let next = tokio::spawn(async move { stream.next().await });
    create_job(&engines[0]).await;
    assert_eq!(next.await.unwrap().unwrap().unwrap().seq, 11);
}

/// The waiting call gets the stored reply of its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn key_used_at_other_engine_does_not_block_jobs() {
    let url = PostgresServer::shared().create_database();
    let engines = open_engines(2, &url, &Clock::manual(start_time()), &config_without_polling()).await;
    let ranked = LeaseRequest { idempotency_key: Some("take".into()), ..LeaseRequest::single_job("race.ranked", "w") };
    let waiting = tokio::spawn({
        let (engine, wanted) = (engines[0].clone(), LeaseRequest { max_wait: TEST_TIMEOUT, ..ranked.clone() });
        async move { engine.lease(&worker("bob"), &wanted).await }
    });
    while engines[0].metrics().parked_pollers == 0 {
        tokio::task::yield_now().await;
    }
    let fields = || json_object(json!({ "rank": 1 }));
    let first = engines[1].create(&user("ann"), "race.ranked", fields()).await.unwrap().subject;
    // The first engine may get the notification earlier; then that path wins.
    engines[1].lease(&worker("bob"), &ranked).await.unwrap();
    let next = engines[0].create(&user("ann"), "race.ranked", fields()).await.unwrap().subject;
    let given = waiting.await.unwrap().unwrap();
    assert_eq!(given.iter().map(|given| given.record.id).collect::<Vec<_>>(), [first]);
    assert!(
        engines[0]
            .get(&operator_actor(), next)
            .await
            .unwrap()
            .expect("the record was created")
            .live_execution()
            .is_none()
    );
}

/// The other engine has the record as created in its cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn refusal_is_not_based_on_cached_record() {
    for _ in 0..3 {
        let url = PostgresServer::shared().create_database();
        let engines = open_engines(2, &url, &Clock::manual(start_time()), &config_without_polling()).await;
        let id = create_job(&engines[0]).await;
        let held = engines[1]
            .lease(&worker("bob"), &LeaseRequest::single_job(JOB_LIFECYCLE, "w"))
            .await
            .unwrap()
            .pop()
            .expect("it exists");
        engines[0].commit(&worker("bob"), id, held.token, json!(1), true).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn expired_leases_are_lost_once_across_engines() {
    const JOB_COUNT: usize = 60;
    let url = PostgresServer::shared().create_database();
    let clock = Clock::manual(start_time());
    let engines = open_engines(3, &url, &clock, &EngineConfig::default()).await;
    let mut jobs = Vec::new();
    for _ in 0..JOB_COUNT {
        jobs.push(create_job(&engines[0]).await);
    }
    let wanted = LeaseRequest { max_jobs: JOB_COUNT, ..LeaseRequest::single_job(JOB_LIFECYCLE, "w") };
    assert_eq!(engines[1].lease(&worker("bob"), &wanted).await.unwrap().len(), JOB_COUNT);
    let mut stream = engines[2].stream(&operator_actor(), 0);
    for _ in 0..2 * JOB_COUNT {
        stream.next().await.unwrap();
    }
    clock.set(start_time().checked_add(Duration::from_secs(3_600)).unwrap());
    engines.iter().for_each(onceward_engine::Engine::wake_all);
    let mut lost = BTreeMap::<_, usize>::new();
    for _ in 0..JOB_COUNT {
        let entry = stream.next().await.unwrap().unwrap();
        *lost.entry(entry.record.unwrap()).or_default() += 1;
    }
    assert_eq!(lost.len(), JOB_COUNT, "each job has exactly one more entry");
    for engine in &engines {
        engine.close().await;
    }
    assert_eq!(
        engines[0].store().log(0, 10_000).await.unwrap().len(),
        3 * JOB_COUNT,
        "no operation was executed twice"
    );
    assert_verified(&url, clock.now()).await;
}

/// Calls without a reply get an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn engine_recovers_after_database_restart() {
    let server = PostgresServer::start();
    let url = server.create_database();
    let clock = Clock::manual(start_time());
    let engine = open_engine(open_postgres(&url, &clock).await, EngineConfig::default()).await;
    let mut made = Vec::new();
    for round in 0..3 {
        made.push(create_job(&engine).await);
        let held = lease_one(&engine).await.expect("the job");
        server.stop_immediately();
        let commit = engine.commit(&worker("bob"), held.record.id, held.token, json!(round), true).await;
        let unreachable = |error: &EngineError| matches!(error, EngineError::Store(store) if matches!(**store, StoreError::Unavailable(_)));
        assert!(commit.as_ref().is_err_and(unreachable), "{commit:?}");
        let made = engine.create(&user("ann"), JOB_LIFECYCLE, json_object(json!({}))).await;
        assert!(made.as_ref().is_err_and(unreachable), "{made:?}");
        server.restart();
        engine
            .commit(&worker("bob"), held.record.id, held.token, json!(round), true)
            .await
            .expect("the lease is still live");
    }
    for id in &made {
        assert_eq!(state_of(&engine, *id).await, "SUCCEEDED");
    }
    engine.close().await;
    assert_verified(&url, clock.now()).await;
}

/// The notification of the other engine's change may not have arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn visibility_is_not_based_on_cached_record() {
    let url = PostgresServer::shared().create_database();
    let engines = open_engines(2, &url, &Clock::manual(start_time()), &config_without_polling()).await;
    let ann = user("ann");
    let board = engines[0].create(&ann, "race.board", json_object(json!({ "reader": "eve" }))).await.unwrap().subject;
    let on_it = json_object(json!({ "board": board.to_string() }));
    let pinned = engines[0].create(&ann, "race.pinned", on_it).await.unwrap().subject;
    for (reader, other) in [("zoe", "eve"), ("eve", "zoe"), ("zoe", "eve")] {
        engines[1].fire(&ann, board, "hand", json_object(json!({ "reader": reader }))).await.unwrap();
        let sees = async |who: &str| engines[0].get(&user(who), pinned).await.unwrap().is_some();
        assert_eq!((sees(reader).await, sees(other).await), (true, false), "only {reader} may read the record");
        // This engine saves the record again, so that it is in its cache.
        engines[0].fire(&ann, board, "hand", json_object(json!({ "reader": reader }))).await.unwrap();
    }
}
