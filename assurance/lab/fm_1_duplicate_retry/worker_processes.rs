//! Like `two_workers`, but with worker processes, some of which are killed.

use onceward_testkit::{TempDir, user};

use crate::support::lab_engine::{LabEngine, WAIT_TIMEOUT, block_on, on_sqlite};
use crate::support::process::{self, LabProcess};
use crate::support::store_checks::{count_effects, shop_balance, verify_against_log};

/// Runs two worker processes on one job. The first one's lease is shorter than its work. Both commit; returns both
/// replies.
async fn commit_from_both(lab: &LabEngine) -> [String; 2] {
    let (mut a, mut b) = (process::worker("A"), process::worker("B"));
    lab.serve_lease(&mut a, "A", "lab.charge", 1, "good").await.expect("job is ready");
    a.expect_line("working");
    lab.set_clock(1);
    expect_lease_expiry(lab).await;
    lab.serve_lease(&mut b, "B", "lab.charge", 30, "good").await.expect("expired job is ready again");
    b.expect_line("working");
    lab.set_clock(2);
    let finish = async |process: &mut LabProcess, name: &str| {
        process.send_line(name);
        lab.serve_commit(process, name).await
    };
    [finish(&mut a, "A").await, finish(&mut b, "B").await]
}

/// Waits until the scheduler expires the lease, without a caller that reads the job.
async fn expect_lease_expiry(lab: &LabEngine) {
    let mut stream = lab.engine.stream(&user("ann"), 2);
    lab.engine.wake_all();
    let entry = tokio::time::timeout(WAIT_TIMEOUT, stream.next()).await.expect("before the timeout");
    assert!(entry.expect("reading").expect("open").text.contains("Due"));
}

#[test]
#[ignore = "shows the damage without a safeguard; `cargo xtask lab` runs it"]
fn damage_both_worker_processes_commit() {
    on_sqlite(async |lab| {
        let id = lab.create_charge().await;
        assert_eq!(commit_from_both(lab).await, ["ok", "ok"]);
        assert_eq!((count_effects(lab.store(), id).await, shop_balance(lab.store()).await), (2, 2));
    });
    println!("lab: 2 worker processes, 2 effects, 2 coins");
}

/// FM-1: two processes commit, and one effect is stored.
#[test]
fn prevented_stale_process_commit_gets_lease_lost() {
    on_sqlite(async |lab| {
        let id = lab.create_charge().await;
        assert_eq!(commit_from_both(lab).await, ["lease_lost", "ok"]);
        assert_eq!((count_effects(lab.store(), id).await, shop_balance(lab.store()).await), (1, 1));
        verify_against_log(lab.store()).await.expect("store matches its log");
    });
    println!("lab: 2 worker processes, 1 effect, 1 coin");
}

/// FM-1, INV-4
#[test]
fn recovered_killed_worker_job_is_done_once_by_another() {
    on_sqlite(async |lab| {
        let id = lab.create_charge().await;
        let (mut a, mut b) = (process::worker("A"), process::worker("B"));
        lab.serve_lease(&mut a, "A", "lab.charge", 1, "good").await.expect("job is ready");
        a.expect_line("working");
        a.kill();
        lab.set_clock(1);
        expect_lease_expiry(lab).await;
        lab.serve_lease(&mut b, "B", "lab.charge", 30, "good").await.expect("expired job is ready again");
        b.expect_line("working");
        b.send_line("B");
        assert_eq!(lab.serve_commit(&mut b, "B").await, "ok");
        assert_eq!((count_effects(lab.store(), id).await, shop_balance(lab.store()).await), (1, 1));
        verify_against_log(lab.store()).await.expect("store matches its log");
    });
    println!("lab: worker killed by SIGKILL, 1 effect by another worker");
}

/// FM-1, INV-4: the engine's process is killed after COMMITTED and before DONE. The work is not repeated.
#[test]
fn recovered_next_engine_finishes_committed_job() {
    let folder = TempDir::new();
    let (id, token) = block_on(async {
        let lab = LabEngine::open_file(&folder, 0).await;
        let id = lab.create_charge().await;
        let held = lab.lease("bob", "lab.charge", 1).await.expect("job is ready");
        lab.engine.close().await;
        (id, held.token)
    });
    let mut engine = process::engine(&folder.database_path(), 0);
    engine.expect_line("open");
    engine.send_line(&format!("commit {} {} stay", id.0, token.0));
    engine.expect_line(&format!("ok {}", id.0));
    engine.kill();
    block_on(async {
        let found = LabEngine::open_file(&folder, 60).await;
        // The new engine's scheduler finishes the job without any call.
        let mut stream = found.engine.stream(&user("ann"), 3);
        let entry = tokio::time::timeout(WAIT_TIMEOUT, stream.next()).await.expect("before the timeout");
        assert_eq!(entry.expect("reading").expect("open").record, Some(id));
        assert_eq!(found.state(id).await, "charged");
        assert_eq!((count_effects(found.store(), id).await, shop_balance(found.store()).await), (1, 1));
        verify_against_log(found.store()).await.expect("store matches its log");
        found.engine.close().await;
    });
    println!("lab: engine killed after COMMITTED, the next engine finishes the job, 1 effect");
}
