//! A file at a glance.

use std::path::Path;
use std::sync::Arc;

use onceward_core::time::Time;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{names, read, wal};
use crate::error::StoreError;
use crate::look::{COUNTED, Look, Overdue, Setting, Waiting};
use crate::names::Known;

pub(super) fn look(connection: &mut Connection, path: &Path, now: Time) -> Result<Look, StoreError> {
    let transaction = connection.transaction()?;
    let number = |name: &str| transaction.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
    let known = Known { catalog: Arc::default(), names: Arc::new(names::load(&transaction)?) };
    let last_entry: u64 = transaction.query_row("SELECT seq FROM counter", [], |row| row.get(0))?;
    let at = "SELECT at FROM history WHERE seq = ?1";
    let last_entry_at: Option<i64> = transaction.query_row(at, [last_entry], |row| row.get(0)).optional()?;
    let journal: String = transaction.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    let is_good = journal == "wal";
    let behind = "SELECT count(*) FROM (SELECT front FROM lanes LIMIT ?1) WHERE front = 0";
    let later = "SELECT count(*) FROM (SELECT 1 FROM later WHERE ready_at > ?1 LIMIT ?2)";
    Ok(Look {
        server: format!("SQLite {}", rusqlite::version()),
        schema: u32::try_from(number("user_version")?).unwrap_or(u32::MAX),
        now,
        bytes: number("page_count")? * number("page_size")?,
        wal_bytes: Some(wal::bytes(&wal::path(path))),
        last_entry,
        last_entry_at: last_entry_at.map(Time::from_micros),
        counts: read::counts_by_state(&transaction, &known, None)?,
        waiting: waiting(&transaction, &known, now)?,
        behind: transaction.query_row(behind, [COUNTED], |row| row.get(0))?,
        later: transaction.query_row(later, params![now.micros(), COUNTED], |row| row.get(0))?,
        overdue: overdue(&transaction, now)?,
        inbox: None,
        settings: vec![Setting { name: "journal_mode".to_owned(), value: journal, is_good }],
        oldest_transaction: None,
    })
}

/// The first in line of each lifecycle, so many at most; and those whose time has come since somebody looked for work.
fn waiting(connection: &Connection, known: &Known, now: Time) -> Result<Vec<Waiting>, StoreError> {
    let mut statement = connection.prepare("SELECT DISTINCT name FROM definitions ORDER BY name")?;
    let lifecycles = statement.query_map([], |row| row.get::<_, Arc<str>>(0))?.collect::<Result<Vec<_>, _>>()?;
    let sql = "SELECT count(*), min(ready_at) FROM (SELECT ready_at FROM \
               (SELECT ready_at FROM ready WHERE lifecycle = ?1 ORDER BY rank, record LIMIT ?2) WHERE ready_at <= ?3 UNION ALL \
               SELECT ready_at FROM (SELECT ready_at, lifecycle FROM later WHERE ready_at <= ?3 ORDER BY ready_at, record LIMIT ?2) \
               WHERE lifecycle = ?1)";
    let mut statement = connection.prepare(sql)?;
    let mut waiting = Vec::new();
    for lifecycle in lifecycles {
        let Some(number) = known.names.number(&lifecycle) else { continue };
        let bound = params![number, COUNTED, now.micros()];
        let (count, since) = statement.query_row(bound, |row| Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?)))?;
        if count > 0 {
            waiting.push(Waiting { lifecycle, count, since: since.map(Time::from_micros) });
        }
    }
    Ok(waiting)
}

/// Every live lease has a timer for its end, so that all of it stands at the front of `timers`.
fn overdue(connection: &Connection, now: Time) -> Result<Overdue, StoreError> {
    let sql = "SELECT count(*), min(t.due), coalesce(sum(e.status < 2), 0), coalesce(sum(e.status = 2), 0) \
               FROM (SELECT due, record FROM timers WHERE due <= ?1 ORDER BY due, record LIMIT ?2) t \
               LEFT JOIN records r ON r.row = t.record \
               LEFT JOIN executions e ON e.record = r.row AND e.token = r.attempt AND e.status < 3 AND e.expires_at <= ?1";
    Ok(connection.query_row(sql, params![now.micros(), COUNTED], |row| {
        let first = row.get::<_, Option<i64>>(1)?.map(Time::from_micros);
        Ok(Overdue { count: row.get(0)?, first, leases: row.get(2)?, committed: row.get(3)? })
    })?)
}
