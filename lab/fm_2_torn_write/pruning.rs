//! Pruning, killed before each of its writes and each of its syncs in turn: what it takes is gone with a checkpoint in the log, or
//! all of it is there.

use std::path::Path;

use onceward_core::decide::Call;
use onceward_engine::verify;
use onceward_store::SqliteView;
use onceward_testkit::Folder;
use serde_json::json;

use super::crash_points::{CALLS, MOST, tidy};
use crate::stage::play::{Play, nothing, time, wait};
use crate::stage::process;

const CHARGES: u64 = 3;

/// A database in which some charges are done, and other things are not.
async fn ended(folder: &Folder) {
    let play = Play::open_file(folder, 0).await;
    play.create("lab.seat", json!({ "room": "a", "size": 9 })).await;
    for _ in 0..CHARGES {
        play.create("execution.job", nothing()).await;
        play.charge().await;
        let held = play.lease("bob", "lab.charge", 30).await.expect("the job");
        let (record, token) = (held.record.id, held.token);
        let commit = Call::Commit { record, token, result: json!("done"), finish: true };
        assert_eq!(play.report("bob", commit).await, "ok");
    }
    play.engine.close().await;
}

/// How many records were pruned, and how many are left; nothing else may be wrong.
async fn left(file: &Path) -> (u64, u64) {
    let view = SqliteView::open(file).expect("it opens after the kill");
    let report = verify(&view, time(0), &mut ()).await.expect("it can be read");
    assert!(report.is_clean() && report.stopped.is_none(), "{report:#?}");
    (report.pruned.records, report.records)
}

/// FM-2, INV-2: cut off anywhere, pruning has taken all that it takes, or nothing.
#[test]
fn prevented_in_a_prune() {
    let folder = Folder::new();
    wait(ended(&folder));
    let (_, all) = wait(left(&folder.file()));
    let (mut points, mut before) = (0, 0);
    for call in CALLS {
        for nth in 1..=MOST {
            let file = folder.file().with_extension(format!("{call}-{nth}"));
            std::fs::copy(folder.file(), &file).expect("a copy");
            let mut engine = process::engine_killed_at(&file, 0, call, nth);
            engine.must_say("open");
            engine.say("prune");
            let answer = engine.hear();
            let _ = engine.ended();
            let (gone, kept) = wait(left(&file));
            tidy(&file);
            assert_eq!(gone + kept, all, "{call} {nth}");
            if let Some(answer) = answer {
                assert_eq!((&*answer, gone), ("ok 3", CHARGES), "{call} {nth}");
                assert!(nth > 1, "no {call} was hit");
                break;
            }
            assert!(gone == 0 || gone == CHARGES, "{call} {nth}: {gone}");
            points += 1;
            before += usize::from(gone == 0);
        }
    }
    assert!(before > 0, "no kill came in time");
    println!("lab: prune: {points} crash points, all or nothing at each");
}
