//! Tasks of three engines after the same thing, again and again: exactly one has it.

use onceward_engine::{Config, Wanted};
use onceward_store::{Clock, Store};
use onceward_testkit::postgres::Server;
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::stage::race::{Prizes, one_commit, one_lease};
use crate::stage::{job, object, start, wait};
use crate::{engines, proven};

const ENGINES: usize = 3;
const TASKS: usize = 15;
const ROUNDS: usize = 100;

/// One lease, one commit, and either a cancel or one winner.
#[test]
fn one_winner_across_engines() {
    wait(async {
        let url = Server::shared().database();
        let engines = engines(ENGINES, &url, &Clock::manual(start()), &Config::default()).await;
        let mut conflicts = 0;
        for round in 0..ROUNDS {
            let id = job(&engines[round % ENGINES]).await;
            one_lease(&engines, TASKS, id).await;
            one_commit(&engines, TASKS, id).await;
            conflicts = engines.iter().map(|engine| engine.tally().conflicts).sum();
        }
        println!("{} races across {ENGINES} engines, {conflicts} conflicts", 2 * ROUNDS);
        assert!(conflicts > 0, "they never met");
        for engine in &engines {
            engine.close().await;
        }
        proven(&url, start()).await;
    });
}

#[test]
fn a_cancel_or_one_winner_across_engines() {
    wait(async {
        let url = Server::shared().database();
        let engines = engines(ENGINES, &url, &Clock::manual(start()), &Config::default()).await;
        let mut prizes = Prizes::default();
        for _ in 0..ROUNDS / 2 {
            prizes.race(&engines, TASKS).await;
        }
        println!("{prizes:?}");
        for engine in &engines {
            engine.close().await;
        }
        proven(&url, start()).await;
    });
}

/// Workers at three engines take what there is, some of it in lanes: every job goes to one of them, and no lane runs two.
#[test]
fn one_worker_for_each_job_across_engines() {
    const JOBS: usize = 150;
    wait(async {
        let url = Server::shared().database();
        let engines = engines(ENGINES, &url, &Clock::manual(start()), &Config::default()).await;
        let ann = user("ann");
        for number in 0..JOBS {
            let fields = object(json!({ "lane": format!("{}", number % 7) }));
            engines[number % ENGINES].create(&ann, "race.lane", fields).await.unwrap();
        }
        let tasks = (0..2 * ENGINES).map(|number| {
            let engine = engines[number % ENGINES].clone();
            tokio::spawn(async move {
                let (bob, mut done) = (worker(&format!("w{number}")), Vec::new());
                loop {
                    let wanted = Wanted { most: 1 + number % 3, ..Wanted::one("race.lane", "w") };
                    let held = engine.lease(&bob, &wanted).await.expect("leasing");
                    let states = engine.store().counts_by_state(None).await.unwrap();
                    let left: u64 =
                        states.iter().filter(|count| &*count.state == "waiting").map(|count| count.count).sum();
                    if left == 0 {
                        return done;
                    }
                    for held in held {
                        let id = held.record.id;
                        engine.commit(&bob, id, held.token, json!(null), true).await.expect("its own");
                        done.push(id);
                    }
                }
            })
        });
        let mut done = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            done.extend(task.await.expect("no panic"));
        }
        assert_eq!(done.len(), JOBS);
        done.sort_unstable();
        done.dedup();
        assert_eq!(done.len(), JOBS, "none was handed out twice");
        for engine in &engines {
            engine.close().await;
        }
        proven(&url, start()).await;
    });
}
