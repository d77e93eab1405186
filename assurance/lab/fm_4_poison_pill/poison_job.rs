//! A job kills every worker that leases it. No worker reports an error; the leases expire.

use std::os::unix::process::ExitStatusExt as _;

use onceward_core::value::{RecordId, Value};
use onceward_testkit::user;
use serde_json::json;

use crate::support::lab_engine::{LabEngine, on_each_store, on_sqlite};
use crate::support::process;
use crate::support::store_checks::verify_against_log;

/// The `budget` of the job.
const MAX_FAILURES: i64 = 3;

/// Longer than the lease and any backoff.
const ROUND_GAP_SECS: i64 = 1_000;

/// Lets at most `max_workers` workers lease the job and die, one after the other. Returns how many died.
async fn lose_workers(lab: &LabEngine, id: RecordId, max_workers: i64) -> i64 {
    for number in 0..max_workers {
        lab.set_clock(number * ROUND_GAP_SECS);
        if lab.lease("w", "execution.job", 30).await.is_none() {
            return number;
        }
        // The worker dies without a report, and the lease expires.
        lab.set_clock(number * ROUND_GAP_SECS + 30);
        assert_ne!(lab.state(id).await, "RUNNING");
    }
    max_workers
}

/// Like [`lose_workers`], but with processes that SIGKILL ends.
async fn lose_worker_processes(lab: &LabEngine, max_workers: i64) -> i64 {
    for number in 0..max_workers {
        lab.set_clock(number * ROUND_GAP_SECS);
        let mut worker = process::worker("w");
        let held = lab.serve_lease(&mut worker, "w", "execution.job", 30, "poison").await;
        let Some(held) = held else { return number };
        assert_eq!(worker.next_line(), None, "no output");
        let status = worker.wait_for_exit();
        assert_eq!(status.signal(), Some(9), "{status}");
        lab.set_clock(number * ROUND_GAP_SECS + 30);
        assert_ne!(lab.state(held.record.id).await, "RUNNING");
    }
    max_workers
}

async fn create_poison_job(lab: &LabEngine) -> RecordId {
    lab.create("execution.job", json!({ "budget": MAX_FAILURES })).await
}

/// Without the budget the job kills every worker.
#[test]
#[ignore = "shows the damage without a safeguard; `cargo xtask lab` runs it"]
fn damage_poison_job_kills_every_worker() {
    on_each_store(async |lab| {
        let id = create_poison_job(lab).await;
        assert_eq!(lose_workers(lab, id, 10 * MAX_FAILURES).await, 10 * MAX_FAILURES, "all workers died");
        assert_eq!(lab.state(id).await, "PENDING", "the job waits for the next worker");
    });
    println!("lab: {} of {} workers killed, and the job waits for the next one", 10 * MAX_FAILURES, 10 * MAX_FAILURES);
}

#[test]
#[ignore = "shows the damage without a safeguard; `cargo xtask lab` runs it"]
fn damage_poison_job_kills_every_process() {
    on_sqlite(async |lab| {
        let id = create_poison_job(lab).await;
        assert_eq!(lose_worker_processes(lab, 4 * MAX_FAILURES).await, 4 * MAX_FAILURES, "all workers died");
        assert_eq!(lab.state(id).await, "PENDING", "the job waits for the next worker");
    });
    println!(
        "lab: {} of {} worker processes killed, and the job waits for the next",
        4 * MAX_FAILURES,
        4 * MAX_FAILURES
    );
}

/// FM-4: a lost lease costs budget like any failure. The job ends as FAILED and gives the reason.
#[test]
fn prevented_poison_job_fails_after_budget() {
    on_each_store(async |lab| {
        let id = create_poison_job(lab).await;
        assert_eq!(lose_workers(lab, id, 10 * MAX_FAILURES).await, MAX_FAILURES);
        let record = lab.engine.get(&user("ann"), id).await.expect("reading").expect("record exists");
        assert_eq!(record.state_name().as_ref(), "FAILED");
        assert_eq!(record.field("lastError").map(Value::to_json), Some(json!("the lease expired")));
        verify_against_log(lab.store()).await.expect("whole");
    });
    println!("lab: {MAX_FAILURES} of {} workers killed, then the job is FAILED", 10 * MAX_FAILURES);
}

/// FM-4: the next worker completes its own job.
#[test]
fn prevented_poison_job_fails_after_budget_with_processes() {
    on_sqlite(async |lab| {
        let id = create_poison_job(lab).await;
        assert_eq!(lose_worker_processes(lab, 4 * MAX_FAILURES).await, MAX_FAILURES);
        assert_eq!(lab.state(id).await, "FAILED");
        verify_against_log(lab.store()).await.expect("store matches its log");
    });
    println!("lab: {MAX_FAILURES} worker processes killed, then the job is FAILED");
}

/// FM-4
#[test]
fn recovered_next_worker_completes_next_job() {
    on_sqlite(async |lab| {
        create_poison_job(lab).await;
        let dead = lose_worker_processes(lab, 4 * MAX_FAILURES).await;
        let good = lab.create("execution.job", json!({})).await;
        let mut worker = process::worker("w");
        lab.serve_lease(&mut worker, "w", "execution.job", 30, "good").await.expect("the next job is done");
        worker.expect_line("working");
        worker.send_line("fine");
        assert_eq!(lab.serve_commit(&mut worker, "w").await, "ok");
        assert_eq!(lab.committed_result(good).await, Some(json!("fine")));
        assert_eq!(dead, MAX_FAILURES);
    });
    println!("lab: the next worker completes the next job");
}
