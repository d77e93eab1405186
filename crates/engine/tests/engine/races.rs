//! Sixty-four tasks after the same thing, again and again: exactly one has it.

use std::slice::from_ref;

use onceward_core::record::Token;
use onceward_core::value::RecordId;
use onceward_engine::{Config, Wanted};
use onceward_testkit::worker;

use crate::stage::race::{Prizes, one_commit, one_lease};
use crate::stage::{JOB, job, leased, on_each};

/// Enough that a second batch sets out while the first is being written: 32 do.
const TASKS: usize = 64;

/// Of each kind and on each store.
const ROUNDS: usize = 100;

/// One of all workers has the lease, asked for by name.
#[test]
fn one_has_the_lease() {
    on_each(Config::default(), async |engine, _| {
        for _ in 0..ROUNDS {
            let id = job(engine).await;
            one_lease(from_ref(engine), TASKS, id).await;
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
fn one_has_the_commit() {
    on_each(Config::default(), async |engine, _| {
        for _ in 0..ROUNDS {
            let id = job(engine).await;
            assert_eq!(leased(engine).await.expect("the job").record.id, id);
            one_commit(from_ref(engine), TASKS, id).await;
        }
    });
}

/// The owner takes the prize back while entries are judged: either one entry has won it, or nobody has.
#[test]
fn a_cancel_or_one_winner() {
    on_each(Config::default(), async |engine, _| {
        let mut prizes = Prizes::default();
        for _ in 0..ROUNDS {
            let before = prizes.won;
            let told = prizes.race(from_ref(engine), TASKS).await;
            // Who cancels too late hears of it; whose entry is judged too late does not.
            let expected: &[&str] = if prizes.won > before { &["wrong_state"] } else { &[] };
            assert_eq!(told, expected);
        }
        println!("{prizes:?}");
        assert!(prizes.won > 0, "the race was never won");
    });
}
