//! Growth of the WAL.

mod support;

use support::growing_database::{BYTES_PER_MEGABYTE, GrowingDatabase};

/// More than the checkpoint limits allow the WAL to reach, and far less than is written here.
const MAX_WAL_BYTES: usize = 160 * BYTES_PER_MEGABYTE;

fn write_megabytes(database: &mut GrowingDatabase, megabytes: usize) -> usize {
    let mut max_wal_bytes = 0;
    for _ in 0..megabytes {
        database.write_payload(BYTES_PER_MEGABYTE);
        max_wal_bytes = max_wal_bytes.max(database.wal_bytes());
    }
    println!(
        "{megabytes} MB written, at most {} MB of WAL, {} in the end",
        max_wal_bytes >> 20,
        database.wal_bytes() >> 20
    );
    max_wal_bytes
}

/// While a reader holds an old snapshot, the WAL grows and writers continue.
#[test]
fn wal_is_checkpointed_once_old_snapshot_ends() {
    let mut database = GrowingDatabase::new();
    assert!(write_megabytes(&mut database, 200) < MAX_WAL_BYTES);
    let reader = rusqlite::Connection::open(database.folder.database_path()).expect("it opens");
    let snapshot = reader.unchecked_transaction().expect("a transaction");
    let count = || snapshot.query_row("SELECT count(*) FROM contents", [], |row| row.get::<_, u64>(0));
    assert_eq!(count(), Ok(200));
    assert!(write_megabytes(&mut database, 180) > MAX_WAL_BYTES, "all writes after the snapshot are in the WAL");
    assert_eq!(count(), Ok(200), "the reader still sees its snapshot");
    drop(snapshot);
    write_megabytes(&mut database, 100);
    let wal_bytes = database.wal_bytes();
    assert!(wal_bytes < MAX_WAL_BYTES, "{} MB of WAL are left", wal_bytes >> 20);
}
