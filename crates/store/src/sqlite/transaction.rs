//! Transactions that are begun and ended by statements at hand. From their text SQLite would make them anew each time, and a call that
//! comes alone would wait for that.

use std::ops::Deref;
use std::time::Duration;

use rusqlite::Connection;

use super::open::BUSY_TIMEOUT;
use crate::error::StoreError;

/// Somebody else writes, in another process.
#[derive(Clone, Copy, Debug)]
pub(super) enum OnBusy {
    /// For as long as the connection waits.
    Wait,
    /// At once, by [`StoreError::Busy`]: on a thread on which others wait for their turn.
    Fail,
}

/// Taken back when it is dropped, unless it was committed.
pub(super) struct SqliteTransaction<'a>(&'a Connection);

impl<'a> SqliteTransaction<'a> {
    /// One that writes: nobody else does, from here on.
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

    /// One snapshot for all that is read. It begins with the first statement.
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
        // Some errors end it, and a commit that fails may leave it open.
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

    /// Only what is committed stays, however it ends and however often; and whoever writes is alone.
    #[test]
    fn only_committed_rows_persist_and_writers_exclude_each_other() {
        let folder = onceward_testkit::TempDir::new();
        let open = || Connection::open(folder.database_path()).expect("the file");
        let (connection, other) = (open(), open());
        connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE a (x)").expect("a table");
        other.busy_timeout(std::time::Duration::ZERO).expect("it does not wait");
        for round in 1..=3 {
            let transaction = begin_waiting(&connection).expect("nobody writes");
            transaction.execute("INSERT INTO a VALUES (1)", []).expect("a row");
            assert!(begin_waiting(&other).is_err(), "somebody writes");
            assert!(begin_waiting(&connection).is_err(), "this one writes already");
            transaction.commit().expect("it is kept");
            let transaction = begin_waiting(&connection).expect("nobody writes");
            transaction.execute("INSERT INTO a VALUES (2)", []).expect("a row");
            drop(transaction);
            assert_eq!((count_rows(&connection), connection.is_autocommit()), (round, true));
        }
        let guard = begin_waiting(&other).expect("nobody writes");
        let started = std::time::Instant::now();
        let refused = SqliteTransaction::begin_write(&connection, OnBusy::Fail);
        assert!(matches!(refused, Err(StoreError::Busy)), "somebody writes");
        assert!(started.elapsed() < BUSY_TIMEOUT, "that is not waited for");
        drop(guard);
        assert!(SqliteTransaction::begin_write(&connection, OnBusy::Fail).is_ok());
        let reader = SqliteTransaction::begin_read(&other).expect("a snapshot");
        assert_eq!(count_rows(&reader), 3);
        connection.execute("INSERT INTO a VALUES (3)", []).expect("a row beside it");
        assert_eq!(count_rows(&reader), 3, "what came later is not in it");
        drop(reader);
        assert_eq!(count_rows(&other), 4);
    }
}
