//! Backups of an SQLite database during writes.

mod support;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use onceward_store::{BackupError, Clock, SqliteStore, Store, StoreError, backup_database};
use support::growing_database::{BYTES_PER_MEGABYTE, GrowingDatabase};
use support::{block_on, start_time};

/// Returns the number of payloads in a file and the result of SQLite's integrity check.
fn contents_and_integrity(path: &PathBuf) -> (u64, String) {
    let connection = rusqlite::Connection::open(path).expect("it opens");
    let count = connection.query_row("SELECT count(*) FROM contents", [], |row| row.get(0)).expect("contents");
    (count, connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("an answer"))
}

/// Half a megabyte is written for each megabyte copied. With one snapshot for the whole copy, all of that would stay in
/// the WAL.
#[test]
fn wal_stays_bounded_while_backup_runs_beside_writes() {
    let mut database = GrowingDatabase::new();
    for _ in 0..96 {
        database.write_payload(BYTES_PER_MEGABYTE);
    }
    let (from, to) = (database.folder.database_path(), database.sibling_path("copy.db"));
    let (before, mut written, mut max_wal_bytes) = (database.payload_count, 0, 0);
    // The file keeps the size that it had before the backup.
    let bound = database.wal_bytes().max(24 * BYTES_PER_MEGABYTE);
    let report = backup_database(&from, &to, &mut |_, _| {
        database.write_payload(BYTES_PER_MEGABYTE / 2);
        written += BYTES_PER_MEGABYTE / 2;
        max_wal_bytes = max_wal_bytes.max(database.wal_bytes());
    });
    let done = report.expect("a copy");
    println!("{done:?}; {} MB written meanwhile, at most {} MB of WAL", written >> 20, max_wal_bytes >> 20);
    assert!(written > 48 * BYTES_PER_MEGABYTE && done.read_transactions > 2, "{done:?}");
    assert!(max_wal_bytes <= bound, "{} MB of WAL", max_wal_bytes >> 20);
    let (copied, integrity) = contents_and_integrity(&to);
    assert_eq!(integrity, "ok");
    assert!(
        (before..=database.payload_count).contains(&copied),
        "{copied} of {} to {}",
        before,
        database.payload_count
    );
    assert_eq!(std::fs::metadata(&to).expect("the copy").len(), done.bytes);
}

/// The writer can write faster than the backup copies. Set `ONCEWARD_MEGABYTES` and `--nocapture` to measure with other
/// sizes.
#[test]
fn backup_completes_beside_continuous_writer() {
    let megabytes = std::env::var("ONCEWARD_MEGABYTES").map_or(64, |text| text.parse().expect("a number"));
    let mut database = GrowingDatabase::new();
    for _ in 0..megabytes {
        database.write_payload(BYTES_PER_MEGABYTE);
    }
    let (from, to) = (database.folder.database_path(), database.sibling_path("copy.db"));
    let is_copied = AtomicBool::new(false);
    let bound = database.wal_bytes().max(40 * BYTES_PER_MEGABYTE) + 24 * BYTES_PER_MEGABYTE;
    let (mut max_wal_bytes, mut longest_write) = (0, std::time::Duration::ZERO);
    let (done, elapsed) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !is_copied.load(Ordering::Relaxed) {
                let started_at = std::time::Instant::now();
                database.write_payload(BYTES_PER_MEGABYTE / 4);
                longest_write = longest_write.max(started_at.elapsed());
                max_wal_bytes = max_wal_bytes.max(database.wal_bytes());
            }
        });
        let started_at = std::time::Instant::now();
        let done = backup_database(&from, &to, &mut |_, _| ());
        let took = started_at.elapsed();
        is_copied.store(true, Ordering::Relaxed);
        writer.join().expect("every write succeeded");
        (done.expect("a copy"), took)
    });
    let written = (database.payload_count - megabytes) / 4;
    println!(
        "{megabytes} MB copied in {elapsed:?}, {written} MB written meanwhile: {done:?}; longest write {longest_write:?}"
    );
    assert!(max_wal_bytes < bound, "{} MB of WAL", max_wal_bytes >> 20);
    assert_eq!(contents_and_integrity(&to).1, "ok");
}

/// Pages that were in the WAL before the backup are checkpointed once.
#[test]
fn idle_database_is_copied_with_few_holds() {
    let mut database = GrowingDatabase::new();
    for _ in 0..30 {
        database.write_payload(BYTES_PER_MEGABYTE);
    }
    assert!(database.wal_bytes() > 20 * BYTES_PER_MEGABYTE, "no WAL checkpoint has run yet");
    let done = backup_database(&database.folder.database_path(), &database.sibling_path("copy.db"), &mut |_, _| ())
        .expect("a copy");
    assert!(done.read_transactions < 100 && done.recopied_pages == 0, "{done:?}");
}

/// Writers continue meanwhile.
#[test]
fn backup_waits_for_old_read_snapshot() {
    let mut database = GrowingDatabase::new();
    database.write_payload(BYTES_PER_MEGABYTE);
    let (from, to) = (database.folder.database_path(), database.sibling_path("copy.db"));
    let reader = rusqlite::Connection::open(&from).expect("it opens");
    let snapshot = reader.unchecked_transaction().expect("a transaction");
    snapshot.query_row("SELECT count(*) FROM contents", [], |_| Ok(())).expect("a snapshot");
    database.write_payload(BYTES_PER_MEGABYTE);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(backup_database(&from, &to, &mut |_, _| ())));
        let early = receiver.recv_timeout(std::time::Duration::from_millis(200));
        assert!(early.is_err(), "the backup waits for the reader: {early:?}");
        database.write_payload(BYTES_PER_MEGABYTE);
        drop(snapshot);
        receiver.recv().expect("an answer").expect("a copy");
    });
    assert_eq!(contents_and_integrity(&to), (3, "ok".to_owned()));
}

/// Also checks that an engine in the same process keeps its locks, and that a backup of an idle database is exact.
#[test]
fn backup_refuses_existing_target_and_removes_partial_file() {
    let mut database = GrowingDatabase::new();
    database.write_payload(3 * BYTES_PER_MEGABYTE);
    let (from, to) = (database.folder.database_path(), database.sibling_path("copy.db"));
    std::fs::write(&to, "mine").expect("a file");
    let refused = backup_database(&from, &to, &mut |_, _| ());
    assert!(matches!(&refused, Err(BackupError::Exists(path)) if *path == to), "{refused:?}");
    assert_eq!(std::fs::read(&to).expect("it exists"), b"mine");
    std::fs::remove_file(&to).expect("removed");

    // The file of a killed backup is overwritten; that of a running one is not.
    let part = database.sibling_path("copy.db.part");
    std::fs::write(&part, vec![9; 9 * BYTES_PER_MEGABYTE]).expect("a file");
    let lock_holder = std::fs::File::open(&part).expect("it exists");
    lock_holder.lock().expect("no other process holds the lock");
    let refused = backup_database(&from, &to, &mut |_, _| ());
    assert!(matches!(refused, Err(BackupError::InProgress(_))), "{refused:?}");
    drop(lock_holder);
    let done = backup_database(&from, &to, &mut |_, _| ()).expect("a copy");
    assert_eq!((contents_and_integrity(&to), done.recopied_pages), ((1, "ok".to_owned()), 0));
    assert!(!part.exists());
    let again = SqliteStore::open(&from, Clock::manual(start_time()));
    assert!(matches!(again, Err(StoreError::Locked { .. })), "{again:?}");

    let missing =
        backup_database(&database.sibling_path("nowhere.db"), &database.sibling_path("second.db"), &mut |_, _| ());
    assert!(matches!(missing, Err(BackupError::Store(_))), "{missing:?}");
    assert!(!database.sibling_path("second.db.part").exists() && !database.sibling_path("nowhere.db").exists());
    database.write_payload(BYTES_PER_MEGABYTE);
}

#[test]
fn backup_opens_as_store_with_same_contents() {
    let mut database = GrowingDatabase::new();
    database.write_payload(BYTES_PER_MEGABYTE);
    let to = database.sibling_path("copy.db");
    backup_database(&database.folder.database_path(), &to, &mut |_, _| ()).expect("a copy");
    let store = SqliteStore::open(&to, Clock::manual(start_time())).expect("it opens");
    let mut sha256 = [0; 32];
    sha256[..8].copy_from_slice(&1_u64.to_be_bytes());
    assert_eq!(block_on(store.payload(&sha256)).expect("read").expect("it exists").len(), BYTES_PER_MEGABYTE);
}
