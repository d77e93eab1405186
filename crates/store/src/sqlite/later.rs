//! Jobs that wait for their time. When it has come they are put where they belong by whoever looks for work next: nobody has to
//! walk past them before, and no clock of ours has to be right.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use onceward_core::decide::QueueKey;
use onceward_core::time::Time;
use rusqlite::{Connection, TransactionBehavior, params};

use super::hot::Hot;
use super::lanes::{self, Entry, Lane};
use super::save::Writer;
use crate::columns::read_parts;
use crate::error::StoreError;
use crate::names::Known;

/// Jobs at most that one transaction puts where they belong: savers wait for no longer than that takes.
const AT_ONCE: usize = 500;

/// Rows in a page of the database, about: by how much the WAL grows.
const ROWS_IN_A_PAGE: usize = 20;

/// When the first of them is ready; the largest number there is where none waits.
pub(super) fn soonest(connection: &Connection) -> Result<Time, StoreError> {
    let sql = "SELECT coalesce(min(ready_at), ?1) FROM later";
    let soonest = connection.query_row(sql, [Time::MAX.micros()], |row| row.get(0))?;
    Ok(Time::from_micros(soonest))
}

/// One that waits for its time, and the key that it will then wait for.
struct Due {
    lifecycle: i64,
    entry: Entry,
    key: Option<String>,
}

impl Writer {
    /// Put those where they belong whose time has come by now, so many at a time; and settle these work keys, in front of which
    /// stands somebody whose time has not come.
    pub(super) fn put_right(&mut self, now: Time, early: &[QueueKey]) -> Result<(), StoreError> {
        let known = self.shared.known();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let moved = put_right(&transaction, &known, now, early)?;
        let soonest = soonest(&transaction)?;
        transaction.commit()?;
        self.shared.soonest.store(soonest.micros(), Ordering::Release);
        self.written(moved / ROWS_IN_A_PAGE + 4);
        Ok(())
    }
}

fn put_right(connection: &Connection, known: &Known, now: Time, early: &[QueueKey]) -> Result<usize, StoreError> {
    let hot = &mut Hot::new(connection);
    let due = due(connection, now)?;
    let mut touched: BTreeSet<QueueKey> = early.iter().cloned().collect();
    for Due { lifecycle, entry, key } in &due {
        hot.not_later(entry.from, entry.row)?;
        match key {
            None => hot.ready(*lifecycle, entry, None)?,
            Some(parts) => {
                Lane { connection, lifecycle: *lifecycle, parts }.join(entry)?;
                // A damaged row is for `verify` to tell of; it must not keep the others waiting.
                if let (Ok(name), Ok(parts)) = (known.names.name(*lifecycle), read_parts(parts)) {
                    touched.insert(QueueKey { lifecycle: name, parts });
                }
            }
        }
    }
    settle((connection, hot), known, touched, now)?;
    Ok(due.len())
}

/// Bring the right jobs of these keys to the front.
pub(super) fn settle(
    (connection, hot): (&Connection, &mut Hot),
    known: &Known,
    touched: BTreeSet<QueueKey>,
    now: Time,
) -> Result<(), StoreError> {
    for key in touched {
        // By the current version: should an older one share its keys otherwise, `decide` has the last word.
        if let Some(current) = known.catalog.definitions.get(&key.lifecycle) {
            let definition = known.catalog.number_of(current)?;
            lanes::settle((connection, hot), known, &key, definition, now)?;
        }
    }
    Ok(())
}

fn due(connection: &Connection, now: Time) -> Result<Vec<Due>, StoreError> {
    let sql = "SELECT ready_at, record, lifecycle, rank, definition, key FROM later WHERE ready_at <= ?1 \
               ORDER BY ready_at, record LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![now.micros(), AT_ONCE])?;
    let mut due = Vec::new();
    while let Some(row) = found.next()? {
        let from = Time::from_micros(row.get(0)?);
        let entry = Entry { from, row: row.get(1)?, rank: row.get(3)?, definition: row.get(4)? };
        due.push(Due { lifecycle: row.get(2)?, entry, key: row.get(5)? });
    }
    Ok(due)
}
