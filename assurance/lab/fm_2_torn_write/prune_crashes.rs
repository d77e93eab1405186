//! Kills pruning before each write and each sync in turn. Either the records are gone and the log has a checkpoint, or
//! all of them are still there.

use std::path::Path;

use onceward_core::decide::Call;
use onceward_engine::verify;
use onceward_store::SqliteScanner;
use onceward_testkit::TempDir;
use serde_json::json;

use super::crash_points::{KILL_SYSCALLS, MAX_CRASH_POINTS, remove_files};
use crate::support::lab_engine::{LabEngine, block_on, empty_fields, time_at};
use crate::support::process;

const CHARGE_COUNT: u64 = 3;

/// Creates a database with some ended charges and some live records.
async fn prepare_ended_charges(folder: &TempDir) {
    let lab = LabEngine::open_file(folder, 0).await;
    lab.create("lab.seat", json!({ "room": "a", "size": 9 })).await;
    for _ in 0..CHARGE_COUNT {
        lab.create("execution.job", empty_fields()).await;
        lab.create_charge().await;
        let held = lab.lease("bob", "lab.charge", 30).await.expect("job is ready");
        let (record, token) = (held.record.id, held.token);
        let commit = Call::Commit { record, token, result: json!("done"), finish: true };
        assert_eq!(lab.report("bob", commit).await, "ok");
    }
    lab.engine.close().await;
}

/// Returns how many records were pruned and how many are left. Panics if verify finds a difference.
async fn pruned_and_remaining(file: &Path) -> (u64, u64) {
    let view = SqliteScanner::open(file).expect("database opens after the kill");
    let report = verify(&view, time_at(0), &mut ()).await.expect("database can be verified");
    assert!(report.is_clean() && report.stopped.is_none(), "{report:#?}");
    (report.pruned.records, report.records)
}

/// FM-2, INV-2
#[test]
fn prevented_crash_in_prune_is_all_or_nothing() {
    let folder = TempDir::new();
    block_on(prepare_ended_charges(&folder));
    let (_, all) = block_on(pruned_and_remaining(&folder.database_path()));
    let (mut points, mut before) = (0, 0);
    for call in KILL_SYSCALLS {
        for nth in 1..=MAX_CRASH_POINTS {
            let file = folder.database_path().with_extension(format!("{call}-{nth}"));
            std::fs::copy(folder.database_path(), &file).expect("a copy");
            let mut engine = process::engine_killed_at_syscall(&file, 0, call, nth);
            engine.expect_line("open");
            engine.send_line("prune");
            let answer = engine.next_line();
            let _ = engine.wait_for_exit();
            let (pruned, remaining) = block_on(pruned_and_remaining(&file));
            remove_files(&file);
            assert_eq!(pruned + remaining, all, "{call} {nth}");
            if let Some(answer) = answer {
                assert_eq!((&*answer, pruned), ("ok 3", CHARGE_COUNT), "{call} {nth}");
                assert!(nth > 1, "no {call} was interrupted");
                break;
            }
            assert!(pruned == 0 || pruned == CHARGE_COUNT, "{call} {nth}: {pruned}");
            points += 1;
            before += usize::from(pruned == 0);
        }
    }
    assert!(before > 0, "every process finished before its kill");
    println!("lab: prune: {points} crash points, all or nothing at each");
}
