//! Several engines on one database do together what one would do alone, and little more.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use onceward_core::record::Token;
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_engine::{Config, Engine, Job, Wanted, Working};
use onceward_store::{AnyStore, Clock, PostgresStore, Store};
use onceward_testkit::postgres::Server;
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::stage::{JOB, LONG, new_job, object, ops, start, unpolled, wait};
use crate::{engines, proven};

/// Never gives up, however often its lease runs out.
const ERRAND: &str = "race.errand";

async fn errand(engine: &Engine<AnyStore>) -> RecordId {
    engine.create(&user("ann"), ERRAND, object(json!({}))).await.expect("an errand").subject
}

/// Leases run out again and again, and all engines see it at the same moment: one of them does the work, and the others find it done.
#[test]
fn what_is_due_is_not_tried_by_all() {
    const JOBS: usize = 60;
    const ROUNDS: usize = 20;
    /// Less than the others wait.
    const QUICK: std::time::Duration = std::time::Duration::from_millis(45);
    wait(async {
        let url = Server::shared().database();
        let clock = Clock::manual(start());
        let engines = engines(3, &url, &clock, &unpolled()).await;
        for _ in 0..JOBS {
            errand(&engines[0]).await;
        }
        let mut stream = engines[2].stream(&ops(), 0);
        for _ in 0..JOBS {
            stream.next().await.unwrap();
        }
        let sum = || {
            let tallies = engines.iter().map(Engine::tally);
            tallies.fold((0, 0), |(batches, conflicts), tally| (batches + tally.batches, conflicts + tally.conflicts))
        };
        // Where the one that is at it takes longer than the others wait for it, they try themselves, as they should: only rounds count that
        // were quick, and came after a quick one.
        let (mut batches, mut conflicts, mut rounds, mut was_quick) = (0, 0, 0_u64, false);
        for round in 1..=ROUNDS {
            let wanted = Wanted { most: JOBS, ..Wanted::one(ERRAND, "w") };
            let leased = engines[1].lease(&worker("bob"), &wanted).await.unwrap();
            assert_eq!(leased.len(), JOBS, "all are free again");
            let (before, began) = (sum(), std::time::Instant::now());
            clock.set(start().checked_add(Duration::from_secs(60 * i64::try_from(round).unwrap())).unwrap());
            engines.iter().for_each(Engine::wake);
            for _ in 0..2 * JOBS {
                stream.next().await.unwrap().unwrap();
            }
            let after = sum();
            let is_quick = began.elapsed() < QUICK;
            if is_quick && was_quick {
                rounds += 1;
                batches += after.0 - before.0;
                conflicts += after.1 - before.1;
            }
            was_quick = is_quick;
        }
        println!("{rounds} of {ROUNDS} rounds were quick: {batches} transactions, {conflicts} conflicts");
        assert!(batches <= rounds + rounds / 4 + 1, "{batches} transactions where {rounds} would do");
        assert!(conflicts <= rounds / 2 + 1, "{conflicts} conflicts: each means that two did the same");
        for engine in &engines {
            engine.close().await;
        }
        proven(&url, clock.now()).await;
    });
}

/// With the first one gone, another does what is due.
#[test]
fn whoever_was_first_may_go() {
    wait(async {
        let url = Server::shared().database();
        let clock = Clock::manual(start());
        let mut engines = engines(3, &url, &clock, &unpolled()).await;
        let id = errand(&engines[0]).await;
        for round in 1..=3 {
            let last = engines.last().expect("one is left");
            assert_eq!(last.lease(&worker("bob"), &Wanted::one(ERRAND, "w")).await.unwrap().len(), 1);
            clock.set(start().checked_add(Duration::from_secs(60 * round)).unwrap());
            engines.iter().for_each(Engine::wake);
            let mut stream = engines[0].stream(&ops(), 0);
            let done = async {
                // Made, and leased and lost in each round.
                for _ in 0..=2 * round {
                    stream.next().await.unwrap().unwrap();
                }
            };
            tokio::time::timeout(LONG, done).await.expect("somebody does it");
            drop(stream);
            engines.pop().expect("one is left").close().await;
        }
        let store = PostgresStore::open_with_clock(&url, clock.clone()).await.unwrap();
        assert_eq!(store.record(id).await.unwrap().unwrap().attempt, 3);
    });
}

/// Each asks for one job at a time and does not wait. While there are jobs nobody goes away with nothing, and none is handed out twice.
#[test]
fn nobody_is_sent_away_while_there_are_jobs() {
    const JOBS: usize = 3_000;
    const LEASES: usize = 900;
    wait(async {
        let url = Server::shared().database();
        let engines = engines(3, &url, &Clock::manual(start()), &Config::default()).await;
        for _ in 0..JOBS / 500 {
            let made = engines[0].submit_all((0..500).map(|_| new_job()).collect()).await.unwrap();
            assert!(made.iter().all(Result::is_ok));
        }
        let taken: Arc<Mutex<HashSet<RecordId>>> = Arc::default();
        let mut tasks = Vec::new();
        for (number, engine) in engines.iter().enumerate() {
            let (engine, taken) = (engine.clone(), Arc::clone(&taken));
            tasks.push(tokio::spawn(async move {
                let bob = worker(&format!("w{number}"));
                while taken.lock().unwrap().len() < LEASES {
                    let held = engine.lease(&bob, &Wanted::one(JOB, "w")).await.expect("leasing").pop();
                    let id = held.expect("there are jobs for all of them").record.id;
                    assert!(taken.lock().unwrap().insert(id), "{id} was leased twice");
                }
            }));
        }
        for task in tasks {
            task.await.expect("no panic");
        }
        let conflicts: u64 = engines.iter().map(|engine| engine.tally().conflicts).sum();
        println!("{LEASES} leases of {JOBS} jobs, {conflicts} conflicts");
        for engine in &engines {
            engine.close().await;
        }
        proven(&url, start()).await;
    });
}

/// Pruning walks through the whole database: where one has just done so, another need not.
#[test]
fn one_looks_for_what_is_over() {
    wait(async {
        let url = Server::shared().database();
        let (rest, mut stores) = (LONG, Vec::new());
        for _ in 0..3 {
            stores.push(PostgresStore::open(&url).await.unwrap());
        }
        let (first, second, third) =
            tokio::join!(stores[0].turn_to_prune(rest), stores[1].turn_to_prune(rest), stores[2].turn_to_prune(rest));
        let turns = [first.unwrap(), second.unwrap(), third.unwrap()];
        assert_eq!(turns.iter().filter(|turn| **turn).count(), 1, "{turns:?}");
        assert!(!stores[0].turn_to_prune(rest).await.unwrap(), "not even the same one");
        assert!(stores[1].turn_to_prune(std::time::Duration::ZERO).await.unwrap(), "after its time another");
    });
}

/// A server that died held jobs of its own. Started again under its name it gives them back at once: the clock has not moved. What others
/// hold runs on, those of servers with another name and with none too.
#[test]
fn what_a_dead_server_held_is_free_when_its_name_is_back() {
    let url = Server::shared().database();
    let clock = Clock::manual(start());
    let open = async |name: Option<&str>| {
        let mut store = PostgresStore::open_with_clock(&url, clock.clone()).await.expect("the database opens");
        if let Some(name) = name {
            store = store.named(name).await.expect("a name");
        }
        crate::stage::open(AnyStore::Postgres(store), unpolled()).await
    };
    // Each in a runtime of its own, which ends without anybody being closed.
    let mut held = Vec::new();
    for name in [Some("alpha"), Some("alpha.1"), None, Some("beta")] {
        held.push(wait(async {
            let engine = open(name).await;
            let id = errand(&engine).await;
            engine.work(Working::on(ERRAND), |_: Job| std::future::pending());
            let mut stream = engine.stream(&ops(), 0);
            loop {
                let entry = stream.next().await.unwrap().unwrap();
                if entry.record == Some(id) && engine.get(&ops(), id).await.unwrap().unwrap().attempt == 1 {
                    return id;
                }
            }
        }));
    }
    wait(async {
        let engine = open(Some("alpha")).await;
        let lost = async {
            let mut stream = engine.stream(&ops(), 0);
            while engine.get(&ops(), held[0]).await.unwrap().unwrap().live_execution().is_some() {
                stream.next().await.unwrap();
            }
        };
        tokio::time::timeout(LONG, lost).await.expect("at once");
        for other in &held[1..] {
            let record = engine.get(&ops(), *other).await.unwrap().unwrap();
            assert_eq!(record.live_execution().map(|own| own.token), Some(Token(1)), "{record:?}");
        }
        // Its own leases, of this life, are nobody's leavings; and the one before, were it still there, has no say in them.
        engine.work(Working::on(ERRAND), |_: Job| std::future::pending());
        let leased = async {
            let mut stream = engine.stream(&ops(), 0);
            while engine.get(&ops(), held[0]).await.unwrap().unwrap().attempt < 2 {
                stream.next().await.unwrap();
            }
        };
        tokio::time::timeout(LONG, leased).await.expect("it is leased again");
        assert!(engine.store().left_behind(10).await.unwrap().is_empty());
        let worker = engine.get(&ops(), held[0]).await.unwrap().unwrap().execution.clone().unwrap().worker;
        assert!(worker.starts_with("in-process alpha:2 "), "{worker}");
        drop(engine);
        proven(&url, clock.now()).await;
    });
}
