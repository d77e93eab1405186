//! Transactions that are begun and ended by statements at hand. From their text SQLite would make them anew each time, and a call that
//! comes alone would wait for that.

use std::ops::Deref;
use std::time::Duration;

use rusqlite::Connection;

use super::open::BUSY;
use crate::error::StoreError;

/// Somebody else writes, in another process.
#[derive(Clone, Copy, Debug)]
pub(super) enum Busy {
    /// For as long as the connection waits.
    IsWaitedFor,
    /// At once, by [`StoreError::Busy`]: on a thread on which others wait for their turn.
    IsTold,
}

/// Taken back when it is dropped, unless it was committed.
pub(super) struct Transaction<'a>(&'a Connection);

impl<'a> Transaction<'a> {
    /// One that writes: nobody else does, from here on.
    pub(super) fn to_write(connection: &'a Connection, busy: Busy) -> Result<Self, StoreError> {
        if matches!(busy, Busy::IsTold) {
            connection.busy_timeout(Duration::ZERO)?;
        }
        let begun = run(connection, "BEGIN IMMEDIATE");
        if matches!(busy, Busy::IsTold) {
            connection.busy_timeout(BUSY)?;
        }
        begun.map(|()| Self(connection))
    }

    /// One snapshot for all that is read. It begins with the first statement.
    pub(super) fn to_read(connection: &'a Connection) -> Result<Self, StoreError> {
        run(connection, "BEGIN")?;
        Ok(Self(connection))
    }

    pub(super) fn commit(self) -> Result<(), StoreError> {
        run(self.0, "COMMIT")
    }
}

impl Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // Some errors end it, and a commit that fails may leave it open.
        if !self.0.is_autocommit() {
            let _ = run(self.0, "ROLLBACK");
        }
    }
}

fn run(connection: &Connection, sql: &str) -> Result<(), StoreError> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(connection: &Connection) -> Result<Transaction<'_>, StoreError> {
        Transaction::to_write(connection, Busy::IsWaitedFor)
    }

    fn count(connection: &Connection) -> i64 {
        connection.query_row("SELECT count(*) FROM a", [], |row| row.get(0)).expect("a count")
    }

    /// Only what is committed stays, however it ends and however often; and whoever writes is alone.
    #[test]
    fn only_what_is_committed_stays() {
        let folder = onceward_testkit::Folder::new();
        let open = || Connection::open(folder.file()).expect("the file");
        let (connection, other) = (open(), open());
        connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE a (x)").expect("a table");
        other.busy_timeout(std::time::Duration::ZERO).expect("it does not wait");
        for round in 1..=3 {
            let transaction = begin(&connection).expect("nobody writes");
            transaction.execute("INSERT INTO a VALUES (1)", []).expect("a row");
            assert!(begin(&other).is_err(), "somebody writes");
            assert!(begin(&connection).is_err(), "this one writes already");
            transaction.commit().expect("it is kept");
            let transaction = begin(&connection).expect("nobody writes");
            transaction.execute("INSERT INTO a VALUES (2)", []).expect("a row");
            drop(transaction);
            assert_eq!((count(&connection), connection.is_autocommit()), (round, true));
        }
        let held = begin(&other).expect("nobody writes");
        let began = std::time::Instant::now();
        let told = Transaction::to_write(&connection, Busy::IsTold);
        assert!(matches!(told, Err(StoreError::Busy)), "somebody writes");
        assert!(began.elapsed() < BUSY, "that is not waited for");
        drop(held);
        assert!(Transaction::to_write(&connection, Busy::IsTold).is_ok());
        let reader = Transaction::to_read(&other).expect("a snapshot");
        assert_eq!(count(&reader), 3);
        connection.execute("INSERT INTO a VALUES (3)", []).expect("a row beside it");
        assert_eq!(count(&reader), 3, "what came later is not in it");
        drop(reader);
        assert_eq!(count(&other), 4);
    }
}
