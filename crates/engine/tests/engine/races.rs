//! Sixty-four tasks after the same thing, again and again: exactly one has it.

use std::slice::from_ref;

use onceward_core::decide::Call;
use onceward_core::record::Token;
use onceward_core::value::RecordId;
use onceward_engine::{Config, Submission, Wanted};
use onceward_store::Store;
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::stage::race::{race, submit};
use crate::stage::{JOB, job, leased, object, on_each, ops, state};

/// Enough that a second batch sets out while the first is being written: 32 do.
const TASKS: usize = 64;

/// Of each kind and on each store.
const ROUNDS: usize = 100;

/// One of all workers has the lease, asked for by name.
#[test]
fn one_lease() {
    on_each(Config::default(), async |engine, _| {
        for _ in 0..ROUNDS {
            let id = job(engine).await;
            let (won, told) = race(from_ref(engine), TASKS, |engine, number| {
                let call = Call::Lease { record: id, worker: "w".into(), lease: None, start: true };
                submit(engine, Submission::new(&worker(&format!("w{number}")), call))
            })
            .await;
            assert_eq!(won, 1, "{told:?}");
            assert_eq!(engine.store().executions(id).await.unwrap().len(), 1);
        }
    });
}

/// Workers that take what there is: every job goes to one of them.
#[test]
fn one_worker_for_each_job() {
    on_each(Config::default(), async |engine, _| {
        let jobs: Vec<_> = (0..ROUNDS).map(|_| crate::stage::new_job()).collect();
        engine.submit_all(jobs).await.unwrap();
        let tasks = (0..TASKS).map(|number| {
            let engine = engine.clone();
            tokio::spawn(async move {
                let mut had: Vec<RecordId> = Vec::new();
                loop {
                    let wanted = Wanted { most: 1 + number % 3, ..Wanted::one(JOB, "w") };
                    let found = engine.lease(&worker(&format!("w{number}")), &wanted).await.expect("leasing");
                    if found.is_empty() {
                        return had;
                    }
                    assert!(found.iter().all(|held| held.token == Token(1)));
                    had.extend(found.iter().map(|held| held.record.id));
                }
            })
        });
        let mut had = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            had.extend(task.await.expect("no panic"));
        }
        // Where one gave up because others had the last ones on offer, nothing is left all the same.
        while let Some(held) = leased(engine).await {
            had.push(held.record.id);
        }
        assert_eq!(had.len(), ROUNDS);
        had.sort_unstable();
        had.dedup();
        assert_eq!(had.len(), ROUNDS, "none was handed out twice");
    });
}

/// Many commits of one execution leave one effect; all the others hear that it has landed.
#[test]
fn one_commit() {
    on_each(Config::default(), async |engine, _| {
        for _ in 0..ROUNDS {
            let id = job(engine).await;
            let held = leased(engine).await.expect("the job");
            assert_eq!(held.record.id, id);
            let (won, told) = race(from_ref(engine), TASKS, |engine, number| {
                let call = Call::Commit { record: id, token: held.token, result: json!(number), finish: true };
                submit(engine, Submission::new(&worker("bob"), call))
            })
            .await;
            assert_eq!(won, 1, "{told:?}");
            assert_eq!(engine.history(&ops(), id, 0, 10).await.unwrap().unwrap().entries.len(), 3);
        }
    });
}

/// The owner takes the prize back while entries are judged: either one entry has won it, or nobody has.
#[test]
fn a_cancel_or_one_winner() {
    on_each(Config::default(), async |engine, _| {
        let (mut cancelled, mut resolved) = (0, 0);
        for round in 0..ROUNDS {
            let ann = user("ann");
            let prize = engine.create(&ann, "race.prize", object(json!({}))).await.unwrap().subject;
            let mut entries = Vec::new();
            for _ in 0..TASKS {
                let fields = object(json!({ "prize": prize.to_string() }));
                let create = onceward_core::decide::Create {
                    lifecycle: "race.entry".into(),
                    id: None,
                    owner: None,
                    fields,
                    payload: None,
                };
                entries.push(Submission::new(&ann, Call::Create(create)));
            }
            engine.submit_all(entries).await.unwrap();
            let wanted = Wanted { most: TASKS, ..Wanted::one("race.entry", "judge") };
            let held = engine.lease(&worker("judge"), &wanted).await.unwrap();
            assert_eq!(held.len(), TASKS);
            // A different one tries to cancel each time, so that it comes early and late.
            let (_, told) = race(from_ref(engine), TASKS, |engine, number| {
                let held = &held[number];
                let submission = if number == round % TASKS {
                    let (record, input) = (prize, object(json!({})));
                    let call = Call::Fire { record, event: "cancel".into(), input, token: None, if_version: None };
                    Submission::new(&user("ann"), call)
                } else {
                    let (record, token, result) = (held.record.id, held.token, json!(null));
                    Submission::new(&worker("judge"), Call::Commit { record, token, result, finish: true })
                };
                submit(engine, submission)
            })
            .await;
            let mut passed = 0;
            for held in &held {
                passed += usize::from(state(engine, held.record.id).await == "passed");
            }
            match state(engine, prize).await.as_str() {
                "won" => {
                    assert_eq!(passed, 1);
                    assert_eq!(told, ["wrong_state"], "the one that cancels too late");
                    resolved += 1;
                }
                "cancelled" => {
                    assert_eq!((passed, told.len()), (0, 0));
                    cancelled += 1;
                }
                other => panic!("{other} after all have had their say"),
            }
            // The one whose judge cancelled instead is done with, so that the next round has only its own.
            let own = &held[round % TASKS];
            let _ = engine.commit(&worker("judge"), own.record.id, own.token, json!(null), true).await;
        }
        println!("{resolved} won, {cancelled} cancelled");
        assert!(resolved > 0, "the race was never won");
    });
}
