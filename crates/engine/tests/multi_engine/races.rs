//! Tasks of three engines compete for the same thing, repeatedly: exactly one wins.

use onceward_engine::{EngineConfig, LeaseRequest};
use onceward_store::{Clock, Store};
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::support::race::{PrizeRaces, assert_one_commit_wins, assert_one_lease_wins};
use crate::support::{create_job, json_object, start_time};
use crate::{assert_verified, open_engines};

const ENGINE_COUNT: usize = 3;
const RACING_TASKS: usize = 15;
const RACE_ROUNDS: usize = 100;

/// One lease, one commit, and either a cancel or one winner.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_leases_and_commits_across_engines_have_one_winner() {
    let url = PostgresServer::shared().create_database();
    let engines = open_engines(ENGINE_COUNT, &url, &Clock::manual(start_time()), &EngineConfig::default()).await;
    let mut conflicts = 0;
    for round in 0..RACE_ROUNDS {
        let id = create_job(&engines[round % ENGINE_COUNT]).await;
        assert_one_lease_wins(&engines, RACING_TASKS, id).await;
        assert_one_commit_wins(&engines, RACING_TASKS, id).await;
        conflicts = engines.iter().map(|engine| engine.counters().conflicts).sum();
    }
    println!("{} races across {ENGINE_COUNT} engines, {conflicts} conflicts", 2 * RACE_ROUNDS);
    assert!(conflicts > 0, "the writers never conflicted");
    for engine in &engines {
        engine.close().await;
    }
    assert_verified(&url, start_time()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cancel_races_across_engines_end_with_cancel_or_one_winner() {
    let url = PostgresServer::shared().create_database();
    let engines = open_engines(ENGINE_COUNT, &url, &Clock::manual(start_time()), &EngineConfig::default()).await;
    let mut prizes = PrizeRaces::default();
    for _ in 0..RACE_ROUNDS / 2 {
        prizes.run_race(&engines, RACING_TASKS).await;
    }
    println!("{prizes:?}");
    for engine in &engines {
        engine.close().await;
    }
    assert_verified(&url, start_time()).await;
}

/// Some jobs have concurrency keys; no lane runs two jobs.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_job_is_leased_once_across_engines() {
    const JOB_COUNT: usize = 150;
    let url = PostgresServer::shared().create_database();
    let engines = open_engines(ENGINE_COUNT, &url, &Clock::manual(start_time()), &EngineConfig::default()).await;
    let ann = user("ann");
    for number in 0..JOB_COUNT {
        let fields = json_object(json!({ "lane": format!("{}", number % 7) }));
        engines[number % ENGINE_COUNT].create(&ann, "race.lane", fields).await.unwrap();
    }
    let tasks = (0..2 * ENGINE_COUNT).map(|number| {
        let engine = engines[number % ENGINE_COUNT].clone();
        tokio::spawn(async move {
            let (bob, mut done) = (worker(&format!("w{number}")), Vec::new());
            loop {
                let wanted = LeaseRequest { max_jobs: 1 + number % 3, ..LeaseRequest::single_job("race.lane", "w") };
                let held = engine.lease(&bob, &wanted).await.expect("leasing");
                let states = engine.store().counts_by_state(None).await.unwrap();
                let left: u64 = states.iter().filter(|count| &*count.state == "waiting").map(|count| count.count).sum();
                if left == 0 {
                    return done;
                }
                for held in held {
                    let id = held.record.id;
                    engine
                        .commit(&bob, id, held.token, json!(null), true)
                        .await
                        .expect("the worker commits its own lease");
                    done.push(id);
                }
            }
        })
    });
    let mut done = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        done.extend(task.await.expect("no panic"));
    }
    assert_eq!(done.len(), JOB_COUNT);
    done.sort_unstable();
    done.dedup();
    assert_eq!(done.len(), JOB_COUNT, "no job was leased twice");
    for engine in &engines {
        engine.close().await;
    }
    assert_verified(&url, start_time()).await;
}
