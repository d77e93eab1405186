//! Copies of an embedded database while it is written.

mod stage;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use onceward_store::{BackupError, Clock, SqliteStore, Store, StoreError, back_up};
use stage::growing::{Growing, MEGABYTE};
use stage::{start, wait};

/// How many contents a file has, and what SQLite says about its pages.
fn looked_at(path: &PathBuf) -> (u64, String) {
    let connection = rusqlite::Connection::open(path).expect("it opens");
    let count = connection.query_row("SELECT count(*) FROM contents", [], |row| row.get(0)).expect("contents");
    (count, connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("an answer"))
}

/// For each megabyte that is copied half of one is written. One snapshot over all of it would keep all of that in the WAL.
#[test]
fn the_wal_stays_bounded_however_much_is_written_meanwhile() {
    let mut growing = Growing::new();
    for _ in 0..96 {
        growing.write(MEGABYTE);
    }
    let (from, to) = (growing.folder.file(), growing.beside("copy.db"));
    let (before, mut written, mut most) = (growing.number, 0, 0);
    // The file keeps the length that the engine left it with.
    let bound = growing.wal_bytes().max(24 * MEGABYTE);
    let done = back_up(&from, &to, &mut |_, _| {
        growing.write(MEGABYTE / 2);
        written += MEGABYTE / 2;
        most = most.max(growing.wal_bytes());
    });
    let done = done.expect("a copy");
    println!("{done:?}; {} MB written meanwhile, at most {} MB of WAL", written >> 20, most >> 20);
    assert!(written > 48 * MEGABYTE && done.holds > 2, "{done:?}");
    assert!(most <= bound, "{} MB of WAL", most >> 20);
    let (copied, said) = looked_at(&to);
    assert_eq!(said, "ok");
    assert!((before..=growing.number).contains(&copied), "{copied} of {} to {}", before, growing.number);
    assert_eq!(std::fs::metadata(&to).expect("the copy").len(), done.bytes);
}

/// Beside a writer that never pauses, and writes more than can be copied if it may, a copy comes to its end. With another size in
/// `ONCEWARD_MEGABYTES` and `--nocapture` this measures.
#[test]
fn a_copy_beside_a_busy_writer_comes_to_its_end() {
    let megabytes = std::env::var("ONCEWARD_MEGABYTES").map_or(64, |text| text.parse().expect("a number"));
    let mut growing = Growing::new();
    for _ in 0..megabytes {
        growing.write(MEGABYTE);
    }
    let (from, to) = (growing.folder.file(), growing.beside("copy.db"));
    let is_copied = AtomicBool::new(false);
    let bound = growing.wal_bytes().max(40 * MEGABYTE) + 24 * MEGABYTE;
    let (mut most, mut longest) = (0, std::time::Duration::ZERO);
    let (done, took) = std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            while !is_copied.load(Ordering::Relaxed) {
                let since = std::time::Instant::now();
                growing.write(MEGABYTE / 4);
                longest = longest.max(since.elapsed());
                most = most.max(growing.wal_bytes());
            }
        });
        let since = std::time::Instant::now();
        let done = back_up(&from, &to, &mut |_, _| ());
        let took = since.elapsed();
        is_copied.store(true, Ordering::Relaxed);
        busy.join().expect("every write was taken");
        (done.expect("a copy"), took)
    });
    let written = (growing.number - megabytes) / 4;
    println!("{megabytes} MB copied in {took:?}, {written} MB written meanwhile: {done:?}; longest write {longest:?}");
    assert!(most < bound, "{} MB of WAL", most >> 20);
    assert_eq!(looked_at(&to).1, "ok");
}

/// What stands in the WAL from before is folded back once, and then does not count.
#[test]
fn an_idle_database_is_copied_in_few_holds() {
    let mut growing = Growing::new();
    for _ in 0..30 {
        growing.write(MEGABYTE);
    }
    assert!(growing.wal_bytes() > 20 * MEGABYTE, "nothing was folded back yet");
    let done = back_up(&growing.folder.file(), &growing.beside("copy.db"), &mut |_, _| ()).expect("a copy");
    assert!(done.holds < 100 && done.pages_again == 0, "{done:?}");
}

/// Where somebody reads one old state all the while, nothing is copied until that ends; writers go on.
#[test]
fn an_old_snapshot_is_waited_for() {
    let mut growing = Growing::new();
    growing.write(MEGABYTE);
    let (from, to) = (growing.folder.file(), growing.beside("copy.db"));
    let reader = rusqlite::Connection::open(&from).expect("it opens");
    let snapshot = reader.unchecked_transaction().expect("a transaction");
    snapshot.query_row("SELECT count(*) FROM contents", [], |_| Ok(())).expect("a snapshot");
    growing.write(MEGABYTE);
    let (say, hear) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| say.send(back_up(&from, &to, &mut |_, _| ())));
        let early = hear.recv_timeout(std::time::Duration::from_millis(200));
        assert!(early.is_err(), "it waits: {early:?}");
        growing.write(MEGABYTE);
        drop(snapshot);
        hear.recv().expect("an answer").expect("a copy");
    });
    assert_eq!(looked_at(&to), (3, "ok".to_owned()));
}

/// The engine of the same process keeps its locks: a second one is still refused, and a copy of an idle database is exact.
#[test]
fn nothing_is_overwritten_and_nothing_left_behind() {
    let mut growing = Growing::new();
    growing.write(3 * MEGABYTE);
    let (from, to) = (growing.folder.file(), growing.beside("copy.db"));
    std::fs::write(&to, "mine").expect("a file");
    let refused = back_up(&from, &to, &mut |_, _| ());
    assert!(matches!(&refused, Err(BackupError::Exists(path)) if *path == to), "{refused:?}");
    assert_eq!(std::fs::read(&to).expect("it is there"), b"mine");
    std::fs::remove_file(&to).expect("removed");

    // What a backup that was killed has left is written over; one under way is not.
    let part = growing.beside("copy.db.part");
    std::fs::write(&part, vec![9; 9 * MEGABYTE]).expect("a file");
    let other = std::fs::File::open(&part).expect("it is there");
    other.lock().expect("nobody has it");
    let refused = back_up(&from, &to, &mut |_, _| ());
    assert!(matches!(refused, Err(BackupError::UnderWay(_))), "{refused:?}");
    drop(other);
    let done = back_up(&from, &to, &mut |_, _| ()).expect("a copy");
    assert_eq!((looked_at(&to), done.pages_again), ((1, "ok".to_owned()), 0));
    assert!(!part.exists());
    let again = SqliteStore::open(&from, Clock::manual(start()));
    assert!(matches!(again, Err(StoreError::Locked { .. })), "{again:?}");

    let nowhere = back_up(&growing.beside("nowhere.db"), &growing.beside("second.db"), &mut |_, _| ());
    assert!(matches!(nowhere, Err(BackupError::Store(_))), "{nowhere:?}");
    assert!(!growing.beside("second.db.part").exists() && !growing.beside("nowhere.db").exists());
    growing.write(MEGABYTE);
}

/// To restore is to put the file in place: an engine opens it as its own.
#[test]
fn a_copy_is_a_database() {
    let mut growing = Growing::new();
    growing.write(MEGABYTE);
    let to = growing.beside("copy.db");
    back_up(&growing.folder.file(), &to, &mut |_, _| ()).expect("a copy");
    let store = SqliteStore::open(&to, Clock::manual(start())).expect("it opens");
    let mut sha256 = [0; 32];
    sha256[..8].copy_from_slice(&1_u64.to_be_bytes());
    assert_eq!(wait(store.content(&sha256)).expect("read").expect("it is there").len(), MEGABYTE);
}
