//! A worker pauses until its lease has expired, does not notice, and commits while another worker holds the lease.

use onceward_core::value::RecordId;
use serde_json::json;

use crate::support::lab_engine::{LabEngine, on_each_store, on_sqlite};
use crate::support::process;
use crate::support::store_checks::{count_effects, shop_balance, verify_against_log};

/// Returns the replies to the zombie and to the lease holder.
async fn commit_from_zombie_and_holder(lab: &LabEngine) -> (RecordId, [String; 2]) {
    let id = lab.create_charge().await;
    let paused = lab.lease("A", "lab.charge", 30).await.expect("job is ready");
    // A is paused, and B leases the job.
    lab.set_clock(30);
    assert_eq!(lab.state(id).await, "waiting");
    let holding = lab.lease("B", "lab.charge", 30).await.expect("expired job is ready again");
    assert!(holding.token > paused.token);
    let a = lab.commit("A", &paused, "stale").await;
    let b = lab.commit("B", &holding, "fresh").await;
    (id, [a, b])
}

/// Like [`commit_from_zombie_and_holder`], but with a process that SIGSTOP pauses and SIGCONT resumes.
async fn commit_from_zombie_and_holder_processes(lab: &LabEngine) -> (RecordId, [String; 2]) {
    let id = lab.create_charge().await;
    let (mut a, mut b) = (process::worker("A"), process::worker("B"));
    lab.serve_lease(&mut a, "A", "lab.charge", 30, "good").await.expect("job is ready");
    a.expect_line("working");
    a.pause();
    // The process reads this when it resumes, and then commits.
    a.send_line("stale");
    lab.set_clock(30);
    assert_eq!(lab.state(id).await, "waiting");
    lab.serve_lease(&mut b, "B", "lab.charge", 30, "good").await.expect("expired job is ready again");
    b.expect_line("working");
    a.resume();
    let reply_a = lab.serve_commit(&mut a, "A").await;
    b.send_line("fresh");
    let reply_b = lab.serve_commit(&mut b, "B").await;
    (id, [reply_a, reply_b])
}

/// Without the fence the zombie's stale result is stored, and the lease holder's commit succeeds too.
#[test]
#[ignore = "shows the damage without a safeguard; `cargo xtask lab` runs it"]
fn damage_stale_commit_wins() {
    on_each_store(async |lab| {
        let (id, replies) = commit_from_zombie_and_holder(lab).await;
        assert_eq!(replies, ["ok", "ok"]);
        assert_eq!(lab.committed_result(id).await, Some(json!("stale")));
    });
    println!("lab: the zombie's result was committed; the holder got ok, and its result is discarded");
}

#[test]
#[ignore = "shows the damage without a safeguard; `cargo xtask lab` runs it"]
fn damage_stale_commit_of_paused_process_wins() {
    on_sqlite(async |lab| {
        let (id, replies) = commit_from_zombie_and_holder_processes(lab).await;
        assert_eq!(replies, ["ok", "ok"]);
        assert_eq!(lab.committed_result(id).await, Some(json!("stale")));
    });
    println!("lab: a process continued by SIGCONT committed its stale result");
}

/// FM-5
#[test]
fn prevented_stale_token_gets_lease_lost() {
    on_each_store(async |lab| {
        let (id, replies) = commit_from_zombie_and_holder(lab).await;
        assert_eq!(replies, ["lease_lost", "ok"]);
        assert_eq!(lab.committed_result(id).await, Some(json!("fresh")));
        assert_eq!((count_effects(lab.store(), id).await, shop_balance(lab.store()).await), (1, 1));
        verify_against_log(lab.store()).await.expect("store matches its log");
    });
    println!("lab: the zombie gets lease_lost; the holder's result is committed");
}

/// FM-5
#[test]
fn prevented_late_commit_without_new_holder_is_refused() {
    on_each_store(async |lab| {
        let id = lab.create_charge().await;
        let paused = lab.lease("A", "lab.charge", 30).await.expect("job is ready");
        lab.set_clock(30);
        assert_eq!(lab.commit("A", &paused, "stale").await, "lease_lost");
        assert_eq!(lab.committed_result(id).await, None);
        assert_eq!(count_effects(lab.store(), id).await, 0);
    });
    println!("lab: a late commit is refused, although no other worker leased the job");
}

/// FM-5
#[test]
fn prevented_paused_process_gets_lease_lost() {
    on_sqlite(async |lab| {
        let (id, replies) = commit_from_zombie_and_holder_processes(lab).await;
        assert_eq!(replies, ["lease_lost", "ok"]);
        assert_eq!(lab.committed_result(id).await, Some(json!("fresh")));
        verify_against_log(lab.store()).await.expect("store matches its log");
    });
    println!("lab: SIGSTOP, SIGCONT, lease_lost");
}

/// FM-5: the worker leases again without a restart.
#[test]
fn recovered_former_zombie_completes_next_job() {
    on_each_store(async |lab| {
        let (_, replies) = commit_from_zombie_and_holder(lab).await;
        assert_eq!(replies[0], "lease_lost");
        let next = lab.create_charge().await;
        let held = lab.lease("A", "lab.charge", 30).await.expect("the next job");
        assert_eq!(held.record.id, next);
        assert_eq!(lab.commit("A", &held, "fresh").await, "ok");
        assert_eq!(lab.committed_result(next).await, Some(json!("fresh")));
    });
    println!("lab: the former zombie completes the next job");
}
