//! One operation, killed before each of its writes and each of its syncs in turn, in a process of its own under `strace`. After
//! every kill the database that is left is looked at.

use std::path::{Path, PathBuf};

use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::Clock;
use onceward_testkit::Folder;
use serde_json::json;

use crate::stage::books::{charged, effects, whole};
use crate::stage::play::{Play, nothing, sqlite, wait};
use crate::stage::process;

/// What SQLite does to its WAL; by which of the two it syncs hangs on how it was built.
pub(super) const CALLS: [&str; 2] = ["pwrite64", "fsync,fdatasync"];

/// More than any operation makes.
pub(super) const MOST: usize = 500;

/// A database in which one operation is about to happen.
struct Scene {
    folder: Folder,
    /// What the engine's process is told, and when.
    words: String,
    at: i64,
    record: Option<RecordId>,
    entries: usize,
}

async fn scene(kind: &str) -> Scene {
    let folder = Folder::new();
    let play = Play::open_file(&folder, 0).await;
    // Company, so that pages are shared with others.
    for _ in 0..3 {
        play.create("lab.seat", json!({ "room": "a", "size": 9 })).await;
        play.create("execution.job", nothing()).await;
    }
    let (mut words, mut at, mut record) = (format!("{kind} lab.charge"), 0, None);
    if kind != "create" {
        let id = play.charge().await;
        record = Some(id);
        words = format!("{kind} {}", id.0);
        if kind != "lease" {
            let held = play.lease("bob", "lab.charge", 30).await.expect("the job");
            words = match kind {
                "commit" => format!("commit {} {} finish", id.0, held.token.0),
                "fail" => format!("fail {} {}", id.0, held.token.0),
                // The lease has run out: looking at the job takes it back.
                _ => {
                    at = 30;
                    format!("look {}", id.0)
                }
            };
        }
    }
    let entries = whole(play.store()).await.expect("whole before");
    play.engine.close().await;
    Scene { folder, words, at, record, entries }
}

/// What one kill left.
struct Left {
    /// Log entries, or what is torn.
    found: Result<usize, String>,
    file: PathBuf,
}

impl Scene {
    /// Kill the process before its `nth` call; `None` where it made fewer and answered.
    fn kill(&self, call: &str, nth: usize) -> Option<Left> {
        let file = self.folder.file().with_extension(format!("{call}-{nth}"));
        std::fs::copy(self.folder.file(), &file).expect("a copy");
        let mut engine = process::engine_killed_at(&file, self.at, call, nth);
        engine.must_say("open");
        engine.say(&self.words);
        let answer = engine.hear();
        let status = engine.ended();
        let found = wait(look(&file));
        match answer {
            Some(answer) => {
                assert!(answer.starts_with("ok") && status.success(), "{answer}, {status}");
                assert!(found.as_ref() != Ok(&self.entries), "what was answered is there");
                tidy(&file);
                None
            }
            None => Some(Left { found, file }),
        }
    }

    /// Every crash point of the operation, one after the other.
    fn points(&self) -> impl Iterator<Item = Left> {
        CALLS.into_iter().flat_map(move |call| {
            (1..=MOST).map_while(move |nth| {
                let left = self.kill(call, nth);
                assert!(nth > 1 || left.is_some(), "no {call} was hit");
                left
            })
        })
    }
}

async fn look(file: &Path) -> Result<usize, String> {
    // Long ago, so that nothing falls due while we look.
    let store = sqlite(file, &Clock::manual(Time::MIN)).map_err(|error| error.to_string())?;
    whole(&store).await
}

pub(super) fn tidy(file: &Path) {
    for suffix in ["", "-wal", "-shm", ".lock"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
}

/// All or nothing at every point.
fn all_or_nothing(kind: &str) {
    let scene = wait(scene(kind));
    let (mut points, mut nothing) = (0, 0);
    for left in scene.points() {
        let entries = left.found.as_ref().unwrap_or_else(|torn| panic!("{kind}, point {points}: {torn}"));
        assert!([scene.entries, scene.entries + 1].contains(entries), "{kind}, point {points}: {entries} entries");
        points += 1;
        nothing += usize::from(*entries == scene.entries);
        tidy(&left.file);
    }
    assert!(nothing > 0, "{kind}: no kill came in time");
    println!("lab: {kind}: {points} crash points, all or nothing at each");
}

/// What is torn, and how many crash points there are.
fn torn(kind: &str) -> (Vec<String>, usize) {
    let scene = wait(scene(kind));
    let found: Vec<Result<usize, String>> = scene
        .points()
        .map(|left| {
            tidy(&left.file);
            left.found
        })
        .collect();
    let points = found.len();
    (found.into_iter().filter_map(Result::err).collect(), points)
}

/// Without the transaction each row is on its own. What the log tells and what is kept come apart.
#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_half_an_operation() {
    let (torn, points) = torn("commit");
    assert!(torn.iter().any(|text| text.contains("its log says")), "{torn:?}");
    let unpaid = torn.iter().find(|text| text.contains("coins were charged"));
    let unpaid = unpaid.unwrap_or_else(|| panic!("nothing of money in {torn:?}"));
    println!("lab: a commit is torn at {} of {points} crash points, as: {unpaid}", torn.len());
}

/// The entry is there and its record is not, so that the entry's hash no longer holds.
#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_an_entry_without_its_record() {
    let (torn, points) = torn("create");
    assert!(torn.iter().any(|text| text.contains("does not carry the hash")), "{torn:?}");
    println!("lab: a create is torn at {} of {points} crash points, as: {}", torn.len(), torn[0]);
}

/// FM-2, INV-2: cut off anywhere, a commit with its money has happened whole or not at all.
#[test]
fn prevented_in_a_commit() {
    all_or_nothing("commit");
}

/// FM-2, INV-2.
#[test]
fn prevented_in_a_create() {
    all_or_nothing("create");
}

/// FM-2, INV-2.
#[test]
fn prevented_in_a_lease() {
    all_or_nothing("lease");
}

/// FM-2, INV-2.
#[test]
fn prevented_in_a_failure() {
    all_or_nothing("fail");
}

/// FM-2, INV-2: the engine's own operation, a lease that has run out.
#[test]
fn prevented_in_a_lost_lease() {
    all_or_nothing("due");
}

/// FM-2, INV-4: whoever got no answer asks again on what is left, and the effect has landed once.
#[test]
fn recovered_by_asking_again() {
    let scene = wait(scene("commit"));
    let id = scene.record.expect("a job");
    let (mut before, mut after) = (0, 0);
    for left in scene.points() {
        match left.found.as_ref() {
            Ok(entries) if *entries == scene.entries => before += 1,
            _ => after += 1,
        }
        let mut engine = process::engine(&left.file, scene.at);
        engine.must_say("open");
        engine.say(&scene.words);
        engine.must_say(&format!("ok {}", id.0));
        assert!(engine.ended().success());
        wait(async {
            let store = sqlite(&left.file, &Clock::manual(Time::MIN)).expect("it opens");
            assert_eq!(whole(&store).await, Ok(scene.entries + 1));
            assert_eq!((effects(&store, id).await, charged(&store).await), (1, 1));
        });
        tidy(&left.file);
    }
    println!("lab: asked again after {} kills ({after} of them had landed): 1 effect, 1 coin", before + after);
}
