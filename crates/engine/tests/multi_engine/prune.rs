//! Several engines prune one database: no record is pruned twice, and no engine blocks forever.

use std::time::Duration as Length;

use onceward_engine::{EngineConfig, LeaseRequest, PruneOptions, RetentionPolicy};
use onceward_store::Clock;
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::worker;
use serde_json::json;

use crate::support::{JOB_LIFECYCLE, create_job, operator_actor, start_time};
use crate::{assert_verified, open_engines};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_prunes_delete_each_record_once() {
    const JOB_COUNT: usize = 90;
    let url = PostgresServer::shared().create_database();
    let clock = Clock::manual(start_time());
    let engines = open_engines(3, &url, &clock, &EngineConfig::default()).await;
    for _ in 0..JOB_COUNT {
        create_job(&engines[0]).await;
    }
    let wanted = LeaseRequest { max_jobs: JOB_COUNT, ..LeaseRequest::single_job(JOB_LIFECYCLE, "w") };
    for held in engines[1].lease(&worker("bob"), &wanted).await.unwrap() {
        engines[1].commit(&worker("bob"), held.record.id, held.token, json!(1), true).await.unwrap();
    }
    let retention =
        RetentionPolicy { records_ttl: Some(Length::ZERO), max_batch_records: 7, ..RetentionPolicy::default() };
    let options = PruneOptions { retention, ..PruneOptions::default() };
    let mut pruning = Vec::new();
    for engine in &engines {
        let (engine, options) = (engine.clone(), options.clone());
        pruning.push(tokio::spawn(async move { engine.prune(&options).await.expect("pruning").records }));
    }
    let mut pruned = 0;
    for records in pruning {
        pruned += records.await.unwrap();
    }
    // Records that an engine skipped because of a conflict are found by the next pass.
    pruned += engines[2].prune(&options).await.unwrap().records;
    assert_eq!(pruned, u64::try_from(JOB_COUNT).unwrap());
    assert_eq!(engines[0].counts(&operator_actor()).await.unwrap(), []);
    create_job(&engines[1]).await;
    assert_verified(&url, clock.now()).await;
}
