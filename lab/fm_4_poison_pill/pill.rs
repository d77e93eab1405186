//! A job that kills every worker that takes it: no error is reported, the lease just runs out.

use std::os::unix::process::ExitStatusExt as _;

use onceward_core::value::{RecordId, Value};
use onceward_testkit::user;
use serde_json::json;

use crate::stage::books::whole;
use crate::stage::play::{Play, on_each, on_sqlite};
use crate::stage::process;

/// Failures that the job may have.
const BUDGET: i64 = 3;

/// Longer than the lease and any backoff.
const MEANWHILE: i64 = 1_000;

/// Workers take the job and die, one after the other, `most` of them at most: how many died.
async fn feed(play: &Play, id: RecordId, most: i64) -> i64 {
    for number in 0..most {
        play.at(number * MEANWHILE);
        if play.lease("w", "execution.job", 30).await.is_none() {
            return number;
        }
        // It dies: nobody ever reports. The lease runs out.
        play.at(number * MEANWHILE + 30);
        assert_ne!(play.state(id).await, "RUNNING");
    }
    most
}

/// The same with processes, each killed by SIGKILL.
async fn feed_processes(play: &Play, most: i64) -> i64 {
    for number in 0..most {
        play.at(number * MEANWHILE);
        let mut worker = process::worker("w");
        let held = play.serve_lease(&mut worker, "w", "execution.job", 30, "poison").await;
        let Some(held) = held else { return number };
        assert_eq!(worker.hear(), None, "not a word");
        let status = worker.ended();
        assert_eq!(status.signal(), Some(9), "{status}");
        play.at(number * MEANWHILE + 30);
        assert_ne!(play.state(held.record.id).await, "RUNNING");
    }
    most
}

async fn pill(play: &Play) -> RecordId {
    play.create("execution.job", json!({ "budget": BUDGET })).await
}

/// Without the budget it takes every worker that there is.
#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_every_worker() {
    on_each(async |play| {
        let id = pill(play).await;
        assert_eq!(feed(play, id, 10 * BUDGET).await, 10 * BUDGET, "all of them");
        assert_eq!(play.state(id).await, "PENDING", "and it waits for the next");
    });
    println!("lab: {} of {} workers dead, and the job waits for the next", 10 * BUDGET, 10 * BUDGET);
}

#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_every_process() {
    on_sqlite(async |play| {
        let id = pill(play).await;
        assert_eq!(feed_processes(play, 4 * BUDGET).await, 4 * BUDGET, "all of them");
        assert_eq!(play.state(id).await, "PENDING", "and it waits for the next");
    });
    println!("lab: {} of {} worker processes killed, and the job waits for the next", 4 * BUDGET, 4 * BUDGET);
}

/// FM-4: a lost lease costs budget like any failure; then the job is FAILED, says why, and harms nobody.
#[test]
fn prevented_by_the_budget() {
    on_each(async |play| {
        let id = pill(play).await;
        assert_eq!(feed(play, id, 10 * BUDGET).await, BUDGET);
        let record = play.engine.get(&user("ann"), id).await.expect("reading").expect("it is there");
        assert_eq!(record.state_name().as_ref(), "FAILED");
        assert_eq!(record.field("lastError").map(Value::to_json), Some(json!("the lease ran out")));
        whole(play.store()).await.expect("whole");
    });
    println!("lab: {BUDGET} of {} workers dead, then the job is FAILED", 10 * BUDGET);
}

/// FM-4: with processes that die by SIGKILL; the worker after them does good work.
#[test]
fn prevented_with_processes() {
    on_sqlite(async |play| {
        let id = pill(play).await;
        assert_eq!(feed_processes(play, 4 * BUDGET).await, BUDGET);
        assert_eq!(play.state(id).await, "FAILED");
        whole(play.store()).await.expect("whole");
    });
    println!("lab: {BUDGET} worker processes killed, then the job is FAILED");
}

/// FM-4: whoever is left works on.
#[test]
fn recovered_workers_go_on() {
    on_sqlite(async |play| {
        pill(play).await;
        let dead = feed_processes(play, 4 * BUDGET).await;
        let good = play.create("execution.job", json!({})).await;
        let mut worker = process::worker("w");
        play.serve_lease(&mut worker, "w", "execution.job", 30, "good").await.expect("the good job");
        worker.must_say("working");
        worker.say("fine");
        assert_eq!(play.serve_commit(&mut worker, "w").await, "ok");
        assert_eq!(play.landed(good).await, Some(json!("fine")));
        assert_eq!(dead, BUDGET);
    });
    println!("lab: the worker after them does the next job");
}
