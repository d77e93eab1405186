//! Several engines on one database share work with little overhead.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use onceward_core::record::FencingToken;
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_engine::{Engine, EngineConfig, LeaseRequest, WorkerConfig, WorkerJob};
use onceward_store::{AnyStore, Clock, PostgresStore, Store};
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::support::{
    JOB_LIFECYCLE, TEST_TIMEOUT, block_on, config_without_polling, json_object, new_job_submission, operator_actor,
    start_time,
};
use crate::{assert_verified, open_engines};

/// A job without a retry limit.
const ERRAND_LIFECYCLE: &str = "race.errand";

async fn create_errand(engine: &Engine<AnyStore>) -> RecordId {
    engine.create(&user("ann"), ERRAND_LIFECYCLE, json_object(json!({}))).await.expect("an errand").subject
}

/// All engines see the expired leases at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn due_work_is_done_by_one_engine() {
    const JOB_COUNT: usize = 60;
    const ROUND_COUNT: usize = 20;
    /// Less than the delay of the deferred engines.
    const MAX_QUICK_ROUND: std::time::Duration = std::time::Duration::from_millis(45);
    let url = PostgresServer::shared().create_database();
    let clock = Clock::manual(start_time());
    let engines = open_engines(3, &url, &clock, &config_without_polling()).await;
    for _ in 0..JOB_COUNT {
        create_errand(&engines[0]).await;
    }
    let mut stream = engines[2].stream(&operator_actor(), 0);
    for _ in 0..JOB_COUNT {
        stream.next().await.unwrap();
    }
    let count_batches_and_conflicts = || {
        let tallies = engines.iter().map(Engine::counters);
        tallies.fold((0, 0), |(batches, conflicts), tally| (batches + tally.batches, conflicts + tally.conflicts))
    };
    // If the eager engine takes longer than that delay, the others try too. So only quick rounds that follow a
    // quick round count.
    let (mut batches, mut conflicts, mut rounds, mut was_quick) = (0, 0, 0_u64, false);
    for round in 1..=ROUND_COUNT {
        let wanted = LeaseRequest { max_jobs: JOB_COUNT, ..LeaseRequest::single_job(ERRAND_LIFECYCLE, "w") };
        let leased = engines[1].lease(&worker("bob"), &wanted).await.unwrap();
        assert_eq!(leased.len(), JOB_COUNT, "all jobs are ready again");
        let (before, began) = (count_batches_and_conflicts(), std::time::Instant::now());
        clock.set(start_time().checked_add(Duration::from_secs(60 * i64::try_from(round).unwrap())).unwrap());
        engines.iter().for_each(Engine::wake_all);
        for _ in 0..2 * JOB_COUNT {
            stream.next().await.unwrap().unwrap();
        }
        let after = count_batches_and_conflicts();
        let is_quick = began.elapsed() < MAX_QUICK_ROUND;
        if is_quick && was_quick {
            rounds += 1;
            batches += after.0 - before.0;
            conflicts += after.1 - before.1;
        }
        was_quick = is_quick;
    }
    println!("{rounds} of {ROUND_COUNT} rounds were quick: {batches} transactions, {conflicts} conflicts");
    assert!(batches <= rounds + rounds / 4 + 1, "{batches} transactions where {rounds} would do");
    assert!(conflicts <= rounds / 2 + 1, "{conflicts} conflicts: two engines did the same work");
    for engine in &engines {
        engine.close().await;
    }
    assert_verified(&url, clock.now()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn remaining_engine_fires_due_work_after_others_close() {
    let url = PostgresServer::shared().create_database();
    let clock = Clock::manual(start_time());
    let mut engines = open_engines(3, &url, &clock, &config_without_polling()).await;
    let id = create_errand(&engines[0]).await;
    for round in 1..=3 {
        let last = engines.last().expect("one engine is left");
        assert_eq!(
            last.lease(&worker("bob"), &LeaseRequest::single_job(ERRAND_LIFECYCLE, "w")).await.unwrap().len(),
            1
        );
        clock.set(start_time().checked_add(Duration::from_secs(60 * round)).unwrap());
        engines.iter().for_each(Engine::wake_all);
        let mut stream = engines[0].stream(&operator_actor(), 0);
        let done = async {
            // Created, then leased and lost in each round.
            for _ in 0..=2 * round {
                stream.next().await.unwrap().unwrap();
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, done).await.expect("an engine completes the job in time");
        drop(stream);
        engines.pop().expect("one engine is left").close().await;
    }
    let store = PostgresStore::open_with_clock(&url, clock.clone()).await.unwrap();
    assert_eq!(store.record(id).await.unwrap().unwrap().attempt, 3);
}

/// No job is leased twice. Each call asks for one job and does not wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lease_is_never_empty_while_jobs_are_ready() {
    const JOB_COUNT: usize = 3_000;
    const LEASE_COUNT: usize = 900;
    let url = PostgresServer::shared().create_database();
    let engines = open_engines(3, &url, &Clock::manual(start_time()), &EngineConfig::default()).await;
    for _ in 0..JOB_COUNT / 500 {
        let made = engines[0].submit_all((0..500).map(|_| new_job_submission()).collect()).await.unwrap();
        assert!(made.iter().all(Result::is_ok));
    }
    let taken: Arc<Mutex<HashSet<RecordId>>> = Arc::default();
    let mut tasks = Vec::new();
    for (number, engine) in engines.iter().enumerate() {
        let (engine, taken) = (engine.clone(), Arc::clone(&taken));
        tasks.push(tokio::spawn(async move {
            let bob = worker(&format!("w{number}"));
            while taken.lock().unwrap().len() < LEASE_COUNT {
                let held =
                    engine.lease(&bob, &LeaseRequest::single_job(JOB_LIFECYCLE, "w")).await.expect("leasing").pop();
                let id = held.expect("there is a job for every lease call").record.id;
                assert!(taken.lock().unwrap().insert(id), "{id} was leased twice");
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    let conflicts: u64 = engines.iter().map(|engine| engine.counters().conflicts).sum();
    println!("{LEASE_COUNT} leases of {JOB_COUNT} jobs, {conflicts} conflicts");
    for engine in &engines {
        engine.close().await;
    }
    assert_verified(&url, start_time()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn only_one_store_claims_the_prune_turn() {
    let url = PostgresServer::shared().create_database();
    let (rest, mut stores) = (TEST_TIMEOUT, Vec::new());
    for _ in 0..3 {
        stores.push(PostgresStore::open(&url).await.unwrap());
    }
    let (first, second, third) = tokio::join!(
        stores[0].claim_prune_turn(rest),
        stores[1].claim_prune_turn(rest),
        stores[2].claim_prune_turn(rest)
    );
    let turns = [first.unwrap(), second.unwrap(), third.unwrap()];
    assert_eq!(turns.iter().filter(|turn| **turn).count(), 1, "{turns:?}");
    assert!(!stores[0].claim_prune_turn(rest).await.unwrap(), "the claiming process cannot claim twice");
    assert!(
        stores[1].claim_prune_turn(std::time::Duration::ZERO).await.unwrap(),
        "another process can claim after the interval"
    );
}

/// The clock does not move. Leases of servers with another name, or without one, continue.
#[test]
fn restarted_instance_releases_leases_of_its_predecessor() {
    let url = PostgresServer::shared().create_database();
    let clock = Clock::manual(start_time());
    let open = async |name: Option<&str>| {
        let mut store = PostgresStore::open_with_clock(&url, clock.clone()).await.expect("the database opens");
        if let Some(name) = name {
            store = store.with_server_name(name).await.expect("a name");
        }
        crate::support::open_engine(AnyStore::Postgres(store), config_without_polling()).await
    };
    // Each in its own runtime, which ends without closing the engine.
    let mut held = Vec::new();
    for name in [Some("alpha"), Some("alpha.1"), None, Some("beta")] {
        held.push(block_on(async {
            let engine = open(name).await;
            let id = create_errand(&engine).await;
            engine.work(WorkerConfig::for_lifecycle(ERRAND_LIFECYCLE), |_: WorkerJob| std::future::pending());
            let mut stream = engine.stream(&operator_actor(), 0);
            loop {
                let entry = stream.next().await.unwrap().unwrap();
                if entry.record == Some(id) && engine.get(&operator_actor(), id).await.unwrap().unwrap().attempt == 1 {
                    return id;
                }
            }
        }));
    }
    block_on(async {
        let engine = open(Some("alpha")).await;
        let lost = async {
            let mut stream = engine.stream(&operator_actor(), 0);
            while engine.get(&operator_actor(), held[0]).await.unwrap().unwrap().live_execution().is_some() {
                stream.next().await.unwrap();
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, lost).await.expect("the orphaned lease ends at once");
        for other in &held[1..] {
            let record = engine.get(&operator_actor(), *other).await.unwrap().unwrap();
            assert_eq!(record.live_execution().map(|own| own.token), Some(FencingToken(1)), "{record:?}");
        }
        // Leases of the current instance are not orphaned; a predecessor that still ran could not end them.
        engine.work(WorkerConfig::for_lifecycle(ERRAND_LIFECYCLE), |_: WorkerJob| std::future::pending());
        let leased = async {
            let mut stream = engine.stream(&operator_actor(), 0);
            while engine.get(&operator_actor(), held[0]).await.unwrap().unwrap().attempt < 2 {
                stream.next().await.unwrap();
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, leased).await.expect("it is leased again");
        assert!(engine.store().orphaned_leases(10).await.unwrap().is_empty());
        let worker = engine.get(&operator_actor(), held[0]).await.unwrap().unwrap().execution.clone().unwrap().worker;
        assert!(worker.starts_with("in-process alpha:2 "), "{worker}");
        drop(engine);
        assert_verified(&url, clock.now()).await;
    });
}
