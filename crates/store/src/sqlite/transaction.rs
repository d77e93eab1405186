//! Transactions whose BEGIN, COMMIT and ROLLBACK are cached prepared statements. Preparing them each time would delay a
//! single call.

use std::ops::Deref;
use std::time::Duration;

use rusqlite::Connection;

use super::open::BUSY_TIMEOUT;
use crate::error::StoreError;

/// What to do if another process is writing.
#[derive(Clone, Copy, Debug)]
pub(super) enum OnBusy {
    /// Wait for the connection's busy timeout.
    Wait,
    /// Fail at once with [`StoreError::Busy`], for a thread that other tasks need.
    Fail,
}

/// A transaction that is rolled back when dropped without a commit.
pub(super) struct SqliteTransaction<'a>(&'a Connection);

impl<'a> SqliteTransaction<'a> {
    /// Begins a write transaction and takes the write lock.
    pub(super) fn begin_write(connection: &'a Connection, on_busy: OnBusy) -> Result<Self, StoreError> {
        if matches!(on_busy, OnBusy::Fail) {
            connection.busy_timeout(Duration::ZERO)?;
        }
        let begun = execute_cached(connection, "BEGIN IMMEDIATE");
        if matches!(on_busy, OnBusy::Fail) {
            connection.busy_timeout(BUSY_TIMEOUT)?;
        }
        begun.map(|()| Self(connection))
    }

    /// Begins a read transaction. Its snapshot begins with the first statement.
    pub(super) fn begin_read(connection: &'a Connection) -> Result<Self, StoreError> {
        execute_cached(connection, "BEGIN")?;
        Ok(Self(connection))
    }

    pub(super) fn commit(self) -> Result<(), StoreError> {
        execute_cached(self.0, "COMMIT")
    }
}

impl Deref for SqliteTransaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

impl Drop for SqliteTransaction<'_> {
    fn drop(&mut self) {
        // Some errors end the transaction, and a failed commit may leave it open.
        if !self.0.is_autocommit() {
            let _ = execute_cached(self.0, "ROLLBACK");
        }
    }
}

fn execute_cached(connection: &Connection, sql: &str) -> Result<(), StoreError> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin_waiting(connection: &Connection) -> Result<SqliteTransaction<'_>, StoreError> {
        SqliteTransaction::begin_write(connection, OnBusy::Wait)
    }

    fn count_rows(connection: &Connection) -> i64 {
        connection.query_row("SELECT count(*) FROM a", [], |row| row.get(0)).expect("a count")
    }

    /// Covers commit, drop and repeated use.
    #[test]
    fn only_committed_rows_persist_and_writers_exclude_each_other() {
        let folder = onceward_testkit::TempDir::new();
        let open = || Connection::open(folder.database_path()).expect("the file");
        let (connection, other) = (open(), open());
        connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE a (x)").expect("a table");
        other.busy_timeout(std::time::Duration::ZERO).expect("the busy timeout can be set");
        for round in 1..=3 {
            let transaction = begin_waiting(&connection).expect("no other connection writes");
            transaction.execute("INSERT INTO a VALUES (1)", []).expect("a row");
            assert!(begin_waiting(&other).is_err(), "another connection writes");
            assert!(begin_waiting(&connection).is_err(), "the connection has an open write transaction");
            transaction.commit().expect("the commit succeeds");
            let transaction = begin_waiting(&connection).expect("no other connection writes");
            transaction.execute("INSERT INTO a VALUES (2)", []).expect("a row");
            drop(transaction);
            assert_eq!((count_rows(&connection), connection.is_autocommit()), (round, true));
        }
        let guard = begin_waiting(&other).expect("no other connection writes");
        let started = std::time::Instant::now();
        let refused = SqliteTransaction::begin_write(&connection, OnBusy::Fail);
        assert!(matches!(refused, Err(StoreError::Busy)), "another connection writes");
        assert!(started.elapsed() < BUSY_TIMEOUT, "the call does not wait");
        drop(guard);
        assert!(SqliteTransaction::begin_write(&connection, OnBusy::Fail).is_ok());
        let reader = SqliteTransaction::begin_read(&other).expect("a snapshot");
        assert_eq!(count_rows(&reader), 3);
        connection.execute("INSERT INTO a VALUES (3)", []).expect("another connection inserts a row");
        assert_eq!(count_rows(&reader), 3, "the snapshot does not contain the later row");
        drop(reader);
        assert_eq!(count_rows(&other), 4);
    }
}
