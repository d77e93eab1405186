//! Reads and writes rows of the replay database.

use std::sync::Arc;

use onceward_core::decide::ConcurrencyKey;
use onceward_core::record::{Execution, FencingToken};
use onceward_core::value::RecordId;
use rusqlite::types::Value as Sql;
use rusqlite::{OptionalExtension as _, Row, params};
use uuid::Uuid;

use super::{CachedRecord, MAX_CACHED_RECORDS, ReplayDatabase, record_text};
use crate::StoreError;
use crate::log::EffectRef;
use crate::scan::{KEY_SEPARATOR, ReplayedRecord, RowSubject, join_key_parts};

/// Columns in the order that [`ReplayDatabase::read_record`] reads.
const SELECT_RECORDS_SQL: &str = "SELECT row, text, head, entry, effect, incoming_links, link_version, ledger_balance, \
     is_log_damaged, id, has_verified_entry FROM records";

/// Tables of key-value rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayTable {
    /// Unique key to its holder, if any.
    Unique = 1,
    Count = 2,
    /// Named account to its balance.
    Account = 3,
    StateCount = 4,
    /// Payloads that an operation itself generated, by hash.
    GeneratedPayload = 5,
    /// Counters recomputed from the current records.
    RecountedCounter = 6,
    /// Number of records that reference a payload, by hash.
    PayloadReference = 7,
    /// API key as rebuilt from the log, as JSON.
    ApiKey = 8,
    /// API key id by the digest of its hash.
    ApiKeyDigest = 9,
}

/// A record without its fields.
#[derive(Clone, Debug)]
pub struct RecordSummary {
    pub row_id: u64,
    pub is_log_damaged: bool,
    pub effect: Option<EffectRef>,
}

/// A row of a [`ReplayTable`], or an execution or a link.
#[derive(Clone, Debug)]
pub struct ReplayedRow<V> {
    /// Row number in the replay database. It is nearly dense, so it can serve as a count.
    pub row_id: u64,
    pub subject: RowSubject,
    pub value: V,
    /// Seq of the entry that last wrote the row.
    pub written_seq: u64,
}

pub(super) fn queue_name(key: &ConcurrencyKey) -> String {
    let parts: Vec<&str> = key.parts.iter().map(|part| &**part).collect();
    join_key_parts(&[&key.lifecycle, &join_key_parts(&parts)])
}

impl ReplayDatabase {
    /// Returns a record as rebuilt from the log.
    pub fn replayed_record(&mut self, id: RecordId) -> Result<Option<ReplayedRecord>, StoreError> {
        if let Some(recent) = self.cached.get(&id) {
            return Ok(Some(recent.record.clone()));
        }
        self.evict_if_full()?;
        let mut statement = self.connection.prepare_cached(&format!("{SELECT_RECORDS_SQL} WHERE id = ?1"))?;
        let mut found = statement.query([id.0.as_bytes()])?;
        let Some(row) = found.next()? else { return Ok(None) };
        let replayed = self.read_record(row)?;
        self.cached.insert(id, CachedRecord { record: replayed.clone(), is_new: false, is_changed: false });
        Ok(Some(replayed))
    }

    fn read_record(&self, row: &Row) -> Result<ReplayedRecord, StoreError> {
        let id = RecordId(Uuid::from_bytes(row.get(9)?));
        let effect: Option<String> = row.get(4)?;
        Ok(ReplayedRecord {
            row_id: row.get(0)?,
            record: Arc::new(record_text::decode_record(
                id,
                row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?,
                &self.catalog,
            )?),
            head_hash: row.get(2)?,
            head_seq: row.get(3)?,
            effect: effect.map(|effect| serde_json::from_str(&effect)).transpose().map_err(corrupt_row)?,
            incoming_links: row.get(5)?,
            link_version: row.get(6)?,
            ledger_balance: row.get(7)?,
            is_log_damaged: row.get(8)?,
            has_verified_entry: row.get(10)?,
        })
    }

    /// Like [`replayed_record`](Self::replayed_record), but does not read the record's fields.
    pub fn record_summary(&self, id: RecordId) -> Result<Option<RecordSummary>, StoreError> {
        if let Some(CachedRecord { record: replayed, .. }) = self.cached.get(&id) {
            return Ok(Some(RecordSummary {
                row_id: replayed.row_id,
                is_log_damaged: replayed.is_log_damaged,
                effect: replayed.effect.clone(),
            }));
        }
        let mut statement =
            self.connection.prepare_cached("SELECT row, is_log_damaged, effect FROM records WHERE id = ?1")?;
        let mut found = statement.query([id.0.as_bytes()])?;
        let Some(row) = found.next()? else { return Ok(None) };
        let effect: Option<String> = row.get(2)?;
        let effect = effect.map(|effect| serde_json::from_str(&effect)).transpose().map_err(corrupt_row)?;
        Ok(Some(RecordSummary { row_id: row.get(0)?, is_log_damaged: row.get(1)?, effect }))
    }

    /// Returns the records after a row, in the order of creation.
    pub fn records_after(&mut self, row: u64, limit: usize) -> Result<Vec<ReplayedRecord>, StoreError> {
        self.flush()?;
        let sql = format!("{SELECT_RECORDS_SQL} WHERE row > ?1 ORDER BY row LIMIT ?2");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut found = statement.query(params![row, limit])?;
        let mut records = Vec::new();
        while let Some(row) = found.next()? {
            records.push(self.read_record(row)?);
        }
        Ok(records)
    }

    fn record_id(&self, row: u64) -> Result<RecordId, StoreError> {
        let mut statement = self.connection.prepare_cached("SELECT id FROM records WHERE row = ?1")?;
        Ok(RecordId(Uuid::from_bytes(statement.query_row([row], |row| row.get(0))?)))
    }

    /// Empties the cache of records when it is full.
    pub(super) fn evict_if_full(&mut self) -> Result<(), StoreError> {
        if self.cached.len() >= MAX_CACHED_RECORDS {
            self.flush()?;
            self.cached.clear();
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), StoreError> {
        // In row order, so that adjacent rows are written together.
        let mut changed: Vec<&mut CachedRecord> = self.cached.values_mut().filter(|recent| recent.is_changed).collect();
        changed.sort_unstable_by_key(|recent| recent.record.row_id);
        let insert = "INSERT INTO records (row, id, text, head, entry, effect, incoming_links, link_version, ledger_balance, \
                      is_log_damaged, has_verified_entry) \
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
        let update = "UPDATE records SET text = ?3, head = ?4, entry = ?5, effect = ?6, incoming_links = ?7, \
                      link_version = ?8, ledger_balance = ?9, is_log_damaged = ?10, has_verified_entry = ?11 WHERE row = ?1 AND id = ?2";
        for recent in changed {
            let replayed = &recent.record;
            let effect = replayed.effect.as_ref().map(serde_json::to_string).transpose().map_err(corrupt_row)?;
            self.connection.prepare_cached(if recent.is_new { insert } else { update })?.execute(params![
                replayed.row_id,
                replayed.record.id.0.as_bytes(),
                record_text::encode_record(&replayed.record, &self.catalog)?,
                replayed.head_hash,
                replayed.head_seq,
                effect,
                replayed.incoming_links,
                replayed.link_version,
                replayed.ledger_balance,
                replayed.is_log_damaged,
                replayed.has_verified_entry,
            ])?;
            (recent.is_new, recent.is_changed) = (false, false);
        }
        Ok(())
    }

    pub(super) fn put_execution(&mut self, record: u64, execution: &Execution, seq: u64) -> Result<(), StoreError> {
        self.written_rows += 1;
        let sql = "INSERT INTO executions (record, token, text, written_seq) VALUES (?1, ?2, ?3, ?4) \
                   ON CONFLICT (record, token) DO UPDATE SET text = excluded.text, written_seq = excluded.written_seq";
        let text = serde_json::to_string(execution).map_err(corrupt_row)?;
        self.connection.prepare_cached(sql)?.execute(params![record, execution.token.0, text, seq])?;
        Ok(())
    }

    /// Returns one execution of a record.
    pub fn execution(&self, row: u64, id: RecordId, token: i64) -> Result<Option<ReplayedRow<Execution>>, StoreError> {
        let sql = "SELECT row, text, written_seq, token FROM executions WHERE record = ?1 AND token = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query(params![row, token])?;
        found.next()?.map(|row| read_execution(row, id)).transpose()
    }

    /// Returns the executions after a row.
    pub fn executions_after(&mut self, row: u64, limit: usize) -> Result<Vec<ReplayedRow<Execution>>, StoreError> {
        self.flush()?;
        let sql = "SELECT row, text, written_seq, token, record FROM executions WHERE row > ?1 ORDER BY row LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query(params![row, limit])?;
        let mut executions = Vec::new();
        while let Some(row) = found.next()? {
            let id = self.record_id(row.get(4)?)?;
            executions.push(read_execution(row, id)?);
        }
        Ok(executions)
    }

    pub fn find_row(&self, table: ReplayTable, key: &str) -> Result<Option<ReplayedRow<Option<String>>>, StoreError> {
        let sql = "SELECT row, key, value, written_seq FROM keyed_rows WHERE kind = ?1 AND key = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query(params![table as u8, key])?;
        found.next()?.map(read_row).transpose()
    }

    /// Returns the rows of a table after a row.
    pub fn rows_after(
        &self,
        table: ReplayTable,
        row: u64,
        limit: usize,
    ) -> Result<Vec<ReplayedRow<Option<String>>>, StoreError> {
        // By row number. Using the index on `kind` would read and sort the whole table for each page.
        let sql =
            "SELECT row, key, value, written_seq FROM keyed_rows WHERE +kind = ?1 AND row > ?2 ORDER BY row LIMIT ?3";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query(params![table as u8, row, limit])?;
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            rows.push(read_row(row)?);
        }
        Ok(rows)
    }

    pub(super) fn add_delta(&mut self, table: ReplayTable, key: &str, delta: i64) -> Result<(), StoreError> {
        self.written_rows += 1;
        let sql = "INSERT INTO keyed_rows (kind, key, value, written_seq) VALUES (?1, ?2, ?3, ?4) \
                   ON CONFLICT (kind, key) DO UPDATE SET value = value + excluded.value, written_seq = excluded.written_seq";
        self.connection.prepare_cached(sql)?.execute(params![table as u8, key, delta, self.seq])?;
        Ok(())
    }

    /// Inserts or replaces a row.
    pub fn put_row(&mut self, table: ReplayTable, key: &str, value: Option<&str>) -> Result<(), StoreError> {
        self.written_rows += 1;
        let sql = "INSERT INTO keyed_rows (kind, key, value, written_seq) VALUES (?1, ?2, ?3, ?4) \
                   ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, written_seq = excluded.written_seq";
        self.connection.prepare_cached(sql)?.execute(params![table as u8, key, value, self.seq])?;
        Ok(())
    }

    /// Finds the index row of an account and a log entry, both given in one key.
    pub fn account_entry(&self, key: &str) -> Result<Option<ReplayedRow<()>>, StoreError> {
        let Some((account, seq)) = key.rsplit_once(KEY_SEPARATOR) else { return Ok(None) };
        let Ok(seq) = seq.parse::<u64>() else { return Ok(None) };
        let sql = "SELECT row FROM account_entries WHERE seq = ?1 AND account = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let found: Option<u64> = statement.query_row(params![seq, account], |row| row.get(0)).optional()?;
        Ok(found.map(|row| ReplayedRow {
            row_id: row,
            subject: RowSubject::Key(key.to_owned()),
            value: (),
            written_seq: seq,
        }))
    }

    /// Returns the account index rows after a row.
    pub fn account_entries_after(&self, row: u64, limit: usize) -> Result<Vec<ReplayedRow<()>>, StoreError> {
        let sql = "SELECT row, seq, account FROM account_entries WHERE row > ?1 ORDER BY row LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query(params![row, limit])?;
        let mut entries = Vec::new();
        while let Some(row) = found.next()? {
            let (seq, account): (u64, String) = (row.get(1)?, row.get(2)?);
            let at = RowSubject::Key(join_key_parts(&[&account, &seq.to_string()]));
            entries.push(ReplayedRow { row_id: row.get(0)?, subject: at, value: (), written_seq: seq });
        }
        Ok(entries)
    }

    pub fn link(
        &mut self,
        target: RecordId,
        name: &str,
        source: RecordId,
    ) -> Result<Option<ReplayedRow<()>>, StoreError> {
        let (Some(to), Some(from)) = (self.replayed_record(target)?, self.replayed_record(source)?) else {
            return Ok(None);
        };
        let sql = "SELECT row, written_seq FROM links WHERE target = ?1 AND name = ?2 AND source = ?3";
        let mut statement = self.connection.prepare_cached(sql)?;
        let found = statement.query_row(params![to.row_id, name, from.row_id], |row| Ok((row.get(0)?, row.get(1)?)));
        let at = RowSubject::Link { target, name: name.to_owned(), source };
        Ok(found.optional()?.map(|(row, written_seq)| ReplayedRow { row_id: row, subject: at, value: (), written_seq }))
    }

    /// Returns the links after a row.
    pub fn links_after(&mut self, row: u64, limit: usize) -> Result<Vec<ReplayedRow<()>>, StoreError> {
        self.flush()?;
        let sql = "SELECT row, written_seq, target, name, source FROM links WHERE row > ?1 ORDER BY row LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query(params![row, limit])?;
        let mut links = Vec::new();
        while let Some(row) = found.next()? {
            let at = RowSubject::Link {
                target: self.record_id(row.get(2)?)?,
                name: row.get(3)?,
                source: self.record_id(row.get(4)?)?,
            };
            links.push(ReplayedRow { row_id: row.get(0)?, subject: at, value: (), written_seq: row.get(1)? });
        }
        Ok(links)
    }
}

fn read_row(row: &Row) -> Result<ReplayedRow<Option<String>>, StoreError> {
    let value = match row.get::<_, Sql>(2)? {
        Sql::Integer(number) => Some(number.to_string()),
        Sql::Text(text) => Some(text),
        _ => None,
    };
    Ok(ReplayedRow { row_id: row.get(0)?, subject: RowSubject::Key(row.get(1)?), value, written_seq: row.get(3)? })
}

fn read_execution(row: &Row, id: RecordId) -> Result<ReplayedRow<Execution>, StoreError> {
    let value = serde_json::from_str(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?).map_err(corrupt_row)?;
    Ok(ReplayedRow {
        row_id: row.get(0)?,
        subject: RowSubject::Execution(id, row.get(3)?),
        value,
        written_seq: row.get(2)?,
    })
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes it by value")]
pub(super) fn corrupt_row(error: serde_json::Error) -> StoreError {
    StoreError::corrupt(format!("the replay database has an unreadable row: {error}"))
}

/// Converts a token to an SQL integer.
pub(super) fn token_number(token: FencingToken) -> i64 {
    i64::try_from(token.0).unwrap_or(i64::MAX)
}
