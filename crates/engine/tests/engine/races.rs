//! Sixty-four tasks compete for the same thing, repeatedly: exactly one wins.

use std::slice::from_ref;

use onceward_core::record::FencingToken;
use onceward_core::value::RecordId;
use onceward_engine::{EngineConfig, LeaseRequest};
use onceward_testkit::worker;

use crate::support::race::{PrizeRaces, assert_one_commit_wins, assert_one_lease_wins};
use crate::support::{JOB_LIFECYCLE, create_job, lease_one, on_each_store};

/// Enough that a second batch is sent during the first save: that takes 32.
const RACING_TASKS: usize = 64;

/// Races of each kind.
const RACES_PER_STORE: usize = 100;

#[test]
fn racing_leases_have_one_winner() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        for _ in 0..RACES_PER_STORE {
            let id = create_job(engine).await;
            assert_one_lease_wins(from_ref(engine), RACING_TASKS, id).await;
        }
    });
}

#[test]
fn each_job_is_leased_to_one_worker() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let jobs: Vec<_> = (0..RACES_PER_STORE).map(|_| crate::support::new_job_submission()).collect();
        engine.submit_all(jobs).await.unwrap();
        let tasks = (0..RACING_TASKS).map(|number| {
            let engine = engine.clone();
            tokio::spawn(async move {
                let mut had: Vec<RecordId> = Vec::new();
                loop {
                    let wanted =
                        LeaseRequest { max_jobs: 1 + number % 3, ..LeaseRequest::single_job(JOB_LIFECYCLE, "w") };
                    let found = engine.lease(&worker(&format!("w{number}")), &wanted).await.expect("leasing");
                    if found.is_empty() {
                        return had;
                    }
                    assert!(found.iter().all(|held| held.token == FencingToken(1)));
                    had.extend(found.iter().map(|held| held.record.id));
                }
            })
        });
        let mut had = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            had.extend(task.await.expect("no panic"));
        }
        // A worker may give up while others hold reservations, but no job is left.
        while let Some(held) = lease_one(engine).await {
            had.push(held.record.id);
        }
        assert_eq!(had.len(), RACES_PER_STORE);
        had.sort_unstable();
        had.dedup();
        assert_eq!(had.len(), RACES_PER_STORE, "no job was leased twice");
    });
}

/// The other commits learn that the effect exists.
#[test]
fn racing_commits_leave_one_effect() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        for _ in 0..RACES_PER_STORE {
            let id = create_job(engine).await;
            assert_eq!(lease_one(engine).await.expect("the job").record.id, id);
            assert_one_commit_wins(from_ref(engine), RACING_TASKS, id).await;
        }
    });
}

#[test]
fn cancel_races_end_with_cancel_or_one_winner() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let mut prizes = PrizeRaces::default();
        for _ in 0..RACES_PER_STORE {
            let before = prizes.won;
            let codes = prizes.run_race(from_ref(engine), RACING_TASKS).await;
            // A late cancel is refused; a late judgment is not.
            let expected: &[&str] = if prizes.won > before { &["wrong_state"] } else { &[] };
            assert_eq!(codes, expected);
        }
        println!("{prizes:?}");
        assert!(prizes.won > 0, "no race had a winner");
    });
}
