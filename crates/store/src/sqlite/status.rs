//! Status summary of an SQLite file.

use std::path::Path;
use std::sync::Arc;

use onceward_core::time::Time;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{read, symbols, wal};
use crate::database_status::{DatabaseSetting, DatabaseStatus, MAX_COUNTED_ROWS, OverdueSummary, ReadyBacklog};
use crate::error::StoreError;
use crate::symbols::CatalogSnapshot;

pub(super) fn read_status(connection: &mut Connection, path: &Path, now: Time) -> Result<DatabaseStatus, StoreError> {
    let transaction = connection.transaction()?;
    let pragma_number = |name: &str| transaction.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
    let snapshot = CatalogSnapshot { catalog: Arc::default(), symbols: Arc::new(symbols::load_symbols(&transaction)?) };
    let last_seq: u64 = transaction.query_row("SELECT seq FROM log_seq", [], |row| row.get(0))?;
    let at_sql = "SELECT at FROM history WHERE seq = ?1";
    let last_entry_at: Option<i64> = transaction.query_row(at_sql, [last_seq], |row| row.get(0)).optional()?;
    let journal: String = transaction.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    let is_recommended = journal == "wal";
    let behind_sql = "SELECT count(*) FROM (SELECT front FROM lanes LIMIT ?1) WHERE front = 0";
    let delayed_sql = "SELECT count(*) FROM (SELECT 1 FROM delayed WHERE ready_at > ?1 LIMIT ?2)";
    Ok(DatabaseStatus {
        server_version: format!("SQLite {}", rusqlite::version()),
        schema_version: u32::try_from(pragma_number("user_version")?).unwrap_or(u32::MAX),
        now,
        database_bytes: pragma_number("page_count")? * pragma_number("page_size")?,
        wal_bytes: Some(wal::file_bytes(&wal::wal_path(path))),
        last_seq,
        last_entry_at: last_entry_at.map(Time::from_micros),
        state_counts: read::counts_by_state(&transaction, &snapshot, None)?,
        ready_backlogs: ready_backlogs(&transaction, &snapshot, now)?,
        waiting_behind_key: transaction.query_row(behind_sql, [MAX_COUNTED_ROWS], |row| row.get(0))?,
        delayed: transaction.query_row(delayed_sql, params![now.micros(), MAX_COUNTED_ROWS], |row| row.get(0))?,
        overdue: overdue_summary(&transaction, now)?,
        inbox: None,
        settings: vec![DatabaseSetting { name: "journal_mode".to_owned(), value: journal, is_recommended }],
        oldest_transaction: None,
    })
}

/// Counts the ready jobs of each lifecycle up to a limit, including delayed jobs that are due but not promoted yet.
fn ready_backlogs(
    connection: &Connection,
    snapshot: &CatalogSnapshot,
    now: Time,
) -> Result<Vec<ReadyBacklog>, StoreError> {
    let mut statement = connection.prepare("SELECT DISTINCT name FROM definitions ORDER BY name")?;
    let lifecycles = statement.query_map([], |row| row.get::<_, Arc<str>>(0))?.collect::<Result<Vec<_>, _>>()?;
    let sql = "SELECT count(*), min(ready_at) FROM (SELECT ready_at FROM \
               (SELECT ready_at FROM ready WHERE lifecycle = ?1 ORDER BY rank, record LIMIT ?2) WHERE ready_at <= ?3 UNION ALL \
               SELECT ready_at FROM (SELECT ready_at, lifecycle FROM delayed WHERE ready_at <= ?3 ORDER BY ready_at, record LIMIT ?2) \
               WHERE lifecycle = ?1)";
    let mut statement = connection.prepare(sql)?;
    let mut backlogs = Vec::new();
    for lifecycle in lifecycles {
        let Some(number) = snapshot.symbols.id(&lifecycle) else { continue };
        let bound = params![number, MAX_COUNTED_ROWS, now.micros()];
        let (count, since) = statement.query_row(bound, |row| Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?)))?;
        if count > 0 {
            backlogs.push(ReadyBacklog { lifecycle, count, oldest_since: since.map(Time::from_micros) });
        }
    }
    Ok(backlogs)
}

/// Overdue leases are at the start of `timers`, because each live lease has a timer for its expiry.
fn overdue_summary(connection: &Connection, now: Time) -> Result<OverdueSummary, StoreError> {
    let sql = "SELECT count(*), min(t.due_at), coalesce(sum(e.status < 2), 0), coalesce(sum(e.status = 2), 0) \
               FROM (SELECT due_at, record FROM timers WHERE due_at <= ?1 ORDER BY due_at, record LIMIT ?2) t \
               LEFT JOIN records r ON r.row = t.record \
               LEFT JOIN executions e ON e.record = r.row AND e.token = r.attempt AND e.status < 3 AND e.expires_at <= ?1";
    Ok(connection.query_row(sql, params![now.micros(), MAX_COUNTED_ROWS], |row| {
        let oldest_due_at = row.get::<_, Option<i64>>(1)?.map(Time::from_micros);
        Ok(OverdueSummary {
            count: row.get(0)?,
            oldest_due_at,
            expired_leases: row.get(2)?,
            unfinished_commits: row.get(3)?,
        })
    })?)
}
