//! How long the WAL becomes.

mod stage;

use stage::growing::{Growing, MEGABYTE};

/// More than an engine lets come together, and what is left of the file afterwards; far less than is written here.
const BOUND: usize = 160 * MEGABYTE;

fn write(growing: &mut Growing, megabytes: usize) -> usize {
    let mut most = 0;
    for _ in 0..megabytes {
        growing.write(MEGABYTE);
        most = most.max(growing.wal_bytes());
    }
    println!("{megabytes} MB written, at most {} MB of WAL, {} in the end", most >> 20, growing.wal_bytes() >> 20);
    most
}

/// It is folded back while it is written. As long as somebody reads one old state it grows, and writers go on; then it is folded back and
/// the file becomes short again.
#[test]
fn the_wal_is_folded_back_and_an_old_snapshot_only_puts_that_off() {
    let mut growing = Growing::new();
    assert!(write(&mut growing, 200) < BOUND);
    let reader = rusqlite::Connection::open(growing.folder.file()).expect("it opens");
    let snapshot = reader.unchecked_transaction().expect("a transaction");
    let count = || snapshot.query_row("SELECT count(*) FROM contents", [], |row| row.get::<_, u64>(0));
    assert_eq!(count(), Ok(200));
    assert!(write(&mut growing, 180) > BOUND, "what came after the snapshot is all in the WAL");
    assert_eq!(count(), Ok(200), "it still sees its own state");
    drop(snapshot);
    write(&mut growing, 100);
    let left = growing.wal_bytes();
    assert!(left < BOUND, "{} MB of WAL are left", left >> 20);
}
