//! Tasks of three engines after the same thing, again and again: exactly one has it.

use std::sync::Arc;

use onceward_core::decide::{Call, Create};
use onceward_engine::{Config, Submission, Wanted};
use onceward_store::{Clock, Store};
use onceward_testkit::postgres::Server;
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::stage::race::{race, submit};
use crate::stage::{job, object, start, state, wait};
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
            let (won, told) = race(&engines, TASKS, |engine, number| {
                let call = Call::Lease { record: id, worker: "w".into(), lease: None, start: true };
                submit(engine, Submission::new(&worker(&format!("w{number}")), call))
            })
            .await;
            assert_eq!(won, 1, "{told:?}");
            let executions = engines[0].store().executions(id).await.unwrap();
            assert_eq!(executions.len(), 1);
            let (token, holder) = (executions[0].token, Arc::clone(&executions[0].holder));
            let (won, told) = race(&engines, TASKS, |engine, number| {
                let call = Call::Commit { record: id, token, result: json!(number), finish: true };
                submit(engine, Submission::new(&worker(&holder), call))
            })
            .await;
            assert_eq!(won, 1, "{told:?}");
            assert_eq!(engines[0].store().history(id, 0, 10).await.unwrap().len(), 3);
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
        let (mut cancelled, mut resolved) = (0, 0);
        for round in 0..ROUNDS / 2 {
            let (ann, judge) = (user("ann"), worker("judge"));
            let prize = engines[0].create(&ann, "race.prize", object(json!({}))).await.unwrap().subject;
            let entry = |_| {
                let (lifecycle, fields) = ("race.entry".into(), object(json!({ "prize": prize.to_string() })));
                Submission::new(&ann, Call::Create(Create { lifecycle, id: None, owner: None, fields, payload: None }))
            };
            engines[0].submit_all((0..TASKS).map(entry).collect()).await.unwrap();
            let wanted = Wanted { most: TASKS, ..Wanted::one("race.entry", "judge") };
            let held = engines[0].lease(&judge, &wanted).await.unwrap();
            assert_eq!(held.len(), TASKS);
            race(&engines, TASKS, |engine, number| {
                let held = &held[number];
                let submission = if number == round % TASKS {
                    let (record, input) = (prize, object(json!({})));
                    let call = Call::Fire { record, event: "cancel".into(), input, token: None, if_version: None };
                    Submission::new(&ann, call)
                } else {
                    let (record, token, result) = (held.record.id, held.token, json!(null));
                    Submission::new(&judge, Call::Commit { record, token, result, finish: true })
                };
                submit(engine, submission)
            })
            .await;
            let mut passed = 0;
            for held in &held {
                passed += usize::from(state(&engines[1], held.record.id).await == "passed");
            }
            match state(&engines[2], prize).await.as_str() {
                "won" => {
                    assert_eq!(passed, 1);
                    resolved += 1;
                }
                "cancelled" => {
                    assert_eq!(passed, 0);
                    cancelled += 1;
                }
                other => panic!("{other} after all have had their say"),
            }
            let own = &held[round % TASKS];
            let _ = engines[0].commit(&judge, own.record.id, own.token, json!(null), true).await;
        }
        println!("{resolved} won, {cancelled} cancelled");
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
