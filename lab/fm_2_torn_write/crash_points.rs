//! One operation, killed before each of its writes and each of its syncs in turn, in a process of its own under `strace`. After
//! every kill the database that is left is looked at.

use std::path::{Path, PathBuf};

use onceward_core::time::Time;
use onceward_engine::verify;
use onceward_store::{Clock, SqliteView};
use onceward_testkit::Folder;

use super::kinds::{self, Act, Sight};
use crate::stage::books::{charged, effects, whole};
use crate::stage::play::{Play, sqlite, time, wait};
use crate::stage::process;

/// What SQLite does to its WAL; by which of the two it syncs hangs on how it was built.
pub(super) const CALLS: [&str; 2] = ["pwrite64", "fsync,fdatasync"];

/// More than any operation makes.
pub(super) const MOST: usize = 500;

/// A database in which one operation is about to happen.
struct Scene {
    folder: Folder,
    act: Act,
    entries: usize,
    before: Sight,
}

async fn scene(kind: &str) -> Scene {
    let folder = Folder::new();
    let play = Play::open_file(&folder, 0).await;
    kinds::begin(kind, &play).await;
    let act = kinds::prepare(kind, &play, 1).await;
    let entries = whole(play.store()).await.expect("whole before");
    let before = Sight::of(play.store()).await;
    play.engine.close().await;
    Scene { folder, act, entries, before }
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
        let mut engine = process::engine_killed_at(&file, self.act.at, call, nth);
        engine.must_say("open");
        engine.say(&self.act.words);
        let answer = engine.hear();
        let status = engine.ended();
        let found = wait(look(&file));
        match answer {
            Some(answer) => {
                assert!(answer.starts_with("ok") && status.success(), "{answer}, {status}");
                assert!(found.is_err() || wait(seen(&file)) != self.before, "what was answered is there");
                tidy(&file);
                None
            }
            None => Some(Left { found, file }),
        }
    }

    /// What the operation moves where nobody dies.
    fn step(&self) -> Sight {
        let file = self.folder.file().with_extension("step");
        std::fs::copy(self.folder.file(), &file).expect("a copy");
        let answer = self.asked(&file);
        assert!(answer.starts_with("ok"), "{answer}");
        let step = wait(seen(&file)).since(self.before);
        assert_ne!(step, Sight::SAME, "nobody could see it");
        tidy(&file);
        step
    }

    /// The answer of an engine that is left alone.
    fn asked(&self, file: &Path) -> String {
        let mut engine = process::engine(file, self.act.at);
        engine.must_say("open");
        engine.say(&self.act.words);
        let answer = engine.hear().expect("an answer");
        assert!(engine.ended().success());
        answer
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

impl Scene {
    /// Whether the operation is there: all of it, or nothing of it.
    fn landed(&self, kind: &str, left: &Left, step: Sight) -> bool {
        let point = left.file.display();
        left.found.as_ref().unwrap_or_else(|torn| panic!("{kind}, {point}: {torn}"));
        wait(verified(&left.file));
        let moved = wait(seen(&left.file)).since(self.before);
        assert!([Sight::SAME, step].contains(&moved), "{kind}, {point}: {moved:?}");
        moved == step
    }
}

async fn look(file: &Path) -> Result<usize, String> {
    // Long ago, so that nothing falls due while we look.
    let store = sqlite(file, &Clock::manual(Time::MIN)).map_err(|error| error.to_string())?;
    whole(&store).await
}

async fn seen(file: &Path) -> Sight {
    Sight::of(&sqlite(file, &Clock::manual(Time::MIN)).expect("it opens")).await
}

async fn verified(file: &Path) {
    let view = SqliteView::open(file).expect("it opens");
    let report = verify(&view, time(0), &mut ()).await.expect("it can be read");
    assert!(report.is_clean() && report.stopped.is_none(), "{report:#?}");
}

pub(super) fn tidy(file: &Path) {
    for suffix in ["", "-wal", "-shm", ".lock"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
}

/// All or nothing at every point, and nothing for `verify` to say.
fn all_or_nothing(kind: &str) {
    let scene = wait(scene(kind));
    let (mut points, mut nothing, step) = (0, 0, scene.step());
    for left in scene.points() {
        nothing += usize::from(!scene.landed(kind, &left, step));
        points += 1;
        tidy(&left.file);
    }
    assert!(nothing > 0, "{kind}: no kill came in time");
    println!("lab: {kind}: {points} crash points, all or nothing at each");
}

/// The same; and whoever finds nothing of it, or may ask again in any case, does so on what is left: then it has happened once.
fn recovered(kind: &str) {
    let scene = wait(scene(kind));
    let (mut points, mut nothing, step) = (0, 0, scene.step());
    for left in scene.points() {
        let landed = scene.landed(kind, &left, step);
        nothing += usize::from(!landed);
        points += 1;
        if scene.act.is_safe || !landed {
            let answer = scene.asked(&left.file);
            assert!(answer.starts_with("ok"), "{kind}, point {points}: {answer}");
            assert_eq!(wait(seen(&left.file)).since(scene.before), step, "{kind}, point {points}, asked again");
            wait(verified(&left.file));
        }
        tidy(&left.file);
    }
    assert!(nothing > 0, "{kind}: no kill came in time");
    println!("lab: {kind}: {points} crash points, all or nothing at each; asked again, it happened once");
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
    let id = scene.act.record.expect("a job");
    let (mut before, mut after) = (0, 0);
    for left in scene.points() {
        match left.found.as_ref() {
            Ok(entries) if *entries == scene.entries => before += 1,
            _ => after += 1,
        }
        assert_eq!(scene.asked(&left.file), format!("ok {}", id.0));
        wait(async {
            let store = sqlite(&left.file, &Clock::manual(Time::MIN)).expect("it opens");
            assert_eq!(whole(&store).await, Ok(scene.entries + 1));
            assert_eq!((effects(&store, id).await, charged(&store).await), (1, 1));
        });
        tidy(&left.file);
    }
    println!("lab: asked again after {} kills ({after} of them had landed): 1 effect, 1 coin", before + after);
}

/// FM-2, INV-2.
#[test]
fn recovered_in_a_start() {
    recovered("start");
}

/// FM-2, INV-2.
#[test]
fn recovered_in_a_heartbeat() {
    recovered("heartbeat");
}

/// FM-2, INV-2.
#[test]
fn recovered_in_a_finish() {
    recovered("finish");
}

/// FM-2, INV-2.
#[test]
fn recovered_in_a_yield() {
    recovered("yield");
}

/// FM-2, INV-2.
#[test]
fn recovered_in_an_event() {
    recovered("event");
}

/// FM-2, INV-2.
#[test]
fn recovered_in_a_create_under_a_key() {
    recovered("once");
}

/// FM-2, INV-2.
#[test]
fn recovered_in_a_verdict_that_pays_and_ends_others() {
    recovered("resolve");
}

/// FM-2, INV-2.
#[test]
fn recovered_in_a_definition() {
    recovered("define");
}

/// FM-2, INV-2.
#[test]
fn recovered_in_a_new_api_key() {
    recovered("key");
}

/// FM-2, INV-2.
#[test]
fn recovered_in_a_revoked_api_key() {
    recovered("revoke");
}
