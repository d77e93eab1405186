//! What is written into the scratch, and looked up in it.

use std::sync::Arc;

use onceward_core::decide::QueueKey;
use onceward_core::record::{Execution, Token};
use onceward_core::value::RecordId;
use rusqlite::types::Value as Sql;
use rusqlite::{OptionalExtension as _, Row, params};
use uuid::Uuid;

use super::{RECENT, Recent, Scratch, text};
use crate::StoreError;
use crate::log::EffectMark;
use crate::scan::{At, Known, SEPARATOR, joined};

/// Rows that have a key and one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The record that holds it, or nobody.
    Unique = 1,
    Count = 2,
    /// A named account's balance.
    Account = 3,
    Tally = 4,
    /// Bytes that an operation itself made, by their hash.
    Content = 5,
    /// Counted anew from the records.
    Recount = 6,
    /// How many records have bytes as payload, by their hash.
    Reference = 7,
    /// An API key as the log tells it, as JSON.
    ApiKey = 8,
    /// The id of the key that a secret is known by, by the mark of the secret.
    KeyMark = 9,
}

/// What is known of a record, in short.
#[derive(Clone, Debug)]
pub struct Brief {
    pub row: u64,
    /// Its log is damaged.
    pub lost: bool,
    pub effect: Option<EffectMark>,
}

/// One of them, or of the executions or links.
#[derive(Clone, Debug)]
pub struct Keyed<V> {
    /// Its number in the scratch, dense enough to count by.
    pub row: u64,
    pub at: At,
    pub value: V,
    /// The place of the entry that wrote it last.
    pub born: u64,
}

pub(super) fn queue_name(key: &QueueKey) -> String {
    let parts: Vec<&str> = key.parts.iter().map(|part| &**part).collect();
    joined(&[&key.lifecycle, &joined(&parts)])
}

impl Scratch {
    /// A record as the log tells it.
    pub fn known(&mut self, id: RecordId) -> Result<Option<Known>, StoreError> {
        if let Some(recent) = self.recent.get(&id) {
            return Ok(Some(recent.known.clone()));
        }
        self.tidy()?;
        let sql = "SELECT row, text, head, entry, effect, linked, raised, ledger, lost, id, vouched FROM records WHERE id = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query([id.0.as_bytes()])?;
        let Some(row) = found.next()? else { return Ok(None) };
        let known = self.read_known(row)?;
        self.recent.insert(id, Recent { known: known.clone(), is_new: false, is_changed: false });
        Ok(Some(known))
    }

    fn read_known(&self, row: &Row) -> Result<Known, StoreError> {
        let id = RecordId(Uuid::from_bytes(row.get(9)?));
        let effect: Option<String> = row.get(4)?;
        Ok(Known {
            row: row.get(0)?,
            record: Arc::new(text::read(id, row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?, &self.catalog)?),
            head: row.get(2)?,
            entry: row.get(3)?,
            effect: effect.map(|effect| serde_json::from_str(&effect)).transpose().map_err(unreadable)?,
            linked: row.get(5)?,
            raised: row.get(6)?,
            ledger: row.get(7)?,
            lost: row.get(8)?,
            vouched: row.get(10)?,
        })
    }

    /// The same, as far as rows beside the record need it: its text is not read.
    pub fn brief(&self, id: RecordId) -> Result<Option<Brief>, StoreError> {
        if let Some(Recent { known, .. }) = self.recent.get(&id) {
            return Ok(Some(Brief { row: known.row, lost: known.lost, effect: known.effect.clone() }));
        }
        let mut statement = self.connection.prepare_cached("SELECT row, lost, effect FROM records WHERE id = ?1")?;
        let mut found = statement.query([id.0.as_bytes()])?;
        let Some(row) = found.next()? else { return Ok(None) };
        let effect: Option<String> = row.get(2)?;
        let effect = effect.map(|effect| serde_json::from_str(&effect)).transpose().map_err(unreadable)?;
        Ok(Some(Brief { row: row.get(0)?, lost: row.get(1)?, effect }))
    }

    /// The records after a number, in the order of their creation.
    pub fn records_after(&mut self, row: u64, limit: usize) -> Result<Vec<Known>, StoreError> {
        self.flush()?;
        let sql = "SELECT row, text, head, entry, effect, linked, raised, ledger, lost, id, vouched FROM records \
                   WHERE row > ?1 ORDER BY row LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query(params![row, limit])?;
        let mut records = Vec::new();
        while let Some(row) = found.next()? {
            records.push(self.read_known(row)?);
        }
        Ok(records)
    }

    fn id_of(&self, row: u64) -> Result<RecordId, StoreError> {
        let mut statement = self.connection.prepare_cached("SELECT id FROM records WHERE row = ?1")?;
        Ok(RecordId(Uuid::from_bytes(statement.query_row([row], |row| row.get(0))?)))
    }

    /// Forget records that were not asked for lately, once there are many at hand.
    pub(super) fn tidy(&mut self) -> Result<(), StoreError> {
        if self.recent.len() >= RECENT {
            self.flush()?;
            self.recent.clear();
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), StoreError> {
        // In order, so that neighbours are written together.
        let mut changed: Vec<&mut Recent> = self.recent.values_mut().filter(|recent| recent.is_changed).collect();
        changed.sort_unstable_by_key(|recent| recent.known.row);
        let insert = "INSERT INTO records (row, id, text, head, entry, effect, linked, raised, ledger, lost, vouched) \
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
        let update = "UPDATE records SET text = ?3, head = ?4, entry = ?5, effect = ?6, linked = ?7, raised = ?8, \
                      ledger = ?9, lost = ?10, vouched = ?11 WHERE row = ?1 AND id = ?2";
        for recent in changed {
            let known = &recent.known;
            let effect = known.effect.as_ref().map(serde_json::to_string).transpose().map_err(unreadable)?;
            self.connection.prepare_cached(if recent.is_new { insert } else { update })?.execute(params![
                known.row,
                known.record.id.0.as_bytes(),
                text::write(&known.record, &self.catalog)?,
                known.head,
                known.entry,
                effect,
                known.linked,
                known.raised,
                known.ledger,
                known.lost,
                known.vouched,
            ])?;
            (recent.is_new, recent.is_changed) = (false, false);
        }
        Ok(())
    }

    pub(super) fn put_execution(&mut self, record: u64, execution: &Execution, seq: u64) -> Result<(), StoreError> {
        self.rows += 1;
        let sql = "INSERT INTO executions (record, token, text, born) VALUES (?1, ?2, ?3, ?4) \
                   ON CONFLICT (record, token) DO UPDATE SET text = excluded.text, born = excluded.born";
        let text = serde_json::to_string(execution).map_err(unreadable)?;
        self.connection.prepare_cached(sql)?.execute(params![record, execution.token.0, text, seq])?;
        Ok(())
    }

    /// One attempt at the record with this number and this id.
    pub fn execution(&self, row: u64, id: RecordId, token: i64) -> Result<Option<Keyed<Execution>>, StoreError> {
        let sql = "SELECT row, text, born, token FROM executions WHERE record = ?1 AND token = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query(params![row, token])?;
        found.next()?.map(|row| read_execution(row, id)).transpose()
    }

    /// The executions after a number.
    pub fn executions_after(&mut self, row: u64, limit: usize) -> Result<Vec<Keyed<Execution>>, StoreError> {
        self.flush()?;
        let sql = "SELECT row, text, born, token, record FROM executions WHERE row > ?1 ORDER BY row LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query(params![row, limit])?;
        let mut executions = Vec::new();
        while let Some(row) = found.next()? {
            let id = self.id_of(row.get(4)?)?;
            executions.push(read_execution(row, id)?);
        }
        Ok(executions)
    }

    pub fn keyed(&self, kind: Kind, key: &str) -> Result<Option<Keyed<Option<String>>>, StoreError> {
        let sql = "SELECT row, key, value, born FROM keyed WHERE kind = ?1 AND key = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query(params![kind as u8, key])?;
        found.next()?.map(read_keyed).transpose()
    }

    /// The rows of a kind after a number.
    pub fn keyed_after(&self, kind: Kind, row: u64, limit: usize) -> Result<Vec<Keyed<Option<String>>>, StoreError> {
        // By their numbers, not by the index of kinds: that would go through all of a kind, and sort it, for each page.
        let sql = "SELECT row, key, value, born FROM keyed WHERE +kind = ?1 AND row > ?2 ORDER BY row LIMIT ?3";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query(params![kind as u8, row, limit])?;
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            rows.push(read_keyed(row)?);
        }
        Ok(rows)
    }

    pub(super) fn add(&mut self, kind: Kind, key: &str, delta: i64) -> Result<(), StoreError> {
        self.rows += 1;
        let sql = "INSERT INTO keyed (kind, key, value, born) VALUES (?1, ?2, ?3, ?4) \
                   ON CONFLICT (kind, key) DO UPDATE SET value = value + excluded.value, born = excluded.born";
        self.connection.prepare_cached(sql)?.execute(params![kind as u8, key, delta, self.seq])?;
        Ok(())
    }

    /// A key and what is known of it.
    pub fn put(&mut self, kind: Kind, key: &str, value: Option<&str>) -> Result<(), StoreError> {
        self.rows += 1;
        let sql = "INSERT INTO keyed (kind, key, value, born) VALUES (?1, ?2, ?3, ?4) \
                   ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, born = excluded.born";
        self.connection.prepare_cached(sql)?.execute(params![kind as u8, key, value, self.seq])?;
        Ok(())
    }

    /// Whether an entry moved something on an account, by both as one key.
    pub fn moved(&self, key: &str) -> Result<Option<Keyed<()>>, StoreError> {
        let Some((account, seq)) = key.rsplit_once(SEPARATOR) else { return Ok(None) };
        let Ok(seq) = seq.parse::<u64>() else { return Ok(None) };
        let sql = "SELECT row FROM moved WHERE seq = ?1 AND account = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let found: Option<u64> = statement.query_row(params![seq, account], |row| row.get(0)).optional()?;
        Ok(found.map(|row| Keyed { row, at: At::Key(key.to_owned()), value: (), born: seq }))
    }

    /// The same after a number.
    pub fn moved_after(&self, row: u64, limit: usize) -> Result<Vec<Keyed<()>>, StoreError> {
        let sql = "SELECT row, seq, account FROM moved WHERE row > ?1 ORDER BY row LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query(params![row, limit])?;
        let mut moved = Vec::new();
        while let Some(row) = found.next()? {
            let (born, account): (u64, String) = (row.get(1)?, row.get(2)?);
            let at = At::Key(joined(&[&account, &born.to_string()]));
            moved.push(Keyed { row: row.get(0)?, at, value: (), born });
        }
        Ok(moved)
    }

    pub fn link(&mut self, target: RecordId, name: &str, source: RecordId) -> Result<Option<Keyed<()>>, StoreError> {
        let (Some(to), Some(from)) = (self.known(target)?, self.known(source)?) else { return Ok(None) };
        let sql = "SELECT row, born FROM links WHERE target = ?1 AND name = ?2 AND source = ?3";
        let mut statement = self.connection.prepare_cached(sql)?;
        let found = statement.query_row(params![to.row, name, from.row], |row| Ok((row.get(0)?, row.get(1)?)));
        let at = At::Link { target, name: name.to_owned(), source };
        Ok(found.optional()?.map(|(row, born)| Keyed { row, at, value: (), born }))
    }

    /// The links after a number.
    pub fn links_after(&mut self, row: u64, limit: usize) -> Result<Vec<Keyed<()>>, StoreError> {
        self.flush()?;
        let sql = "SELECT row, born, target, name, source FROM links WHERE row > ?1 ORDER BY row LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = statement.query(params![row, limit])?;
        let mut links = Vec::new();
        while let Some(row) = found.next()? {
            let at = At::Link { target: self.id_of(row.get(2)?)?, name: row.get(3)?, source: self.id_of(row.get(4)?)? };
            links.push(Keyed { row: row.get(0)?, at, value: (), born: row.get(1)? });
        }
        Ok(links)
    }
}

fn read_keyed(row: &Row) -> Result<Keyed<Option<String>>, StoreError> {
    let value = match row.get::<_, Sql>(2)? {
        Sql::Integer(number) => Some(number.to_string()),
        Sql::Text(text) => Some(text),
        _ => None,
    };
    Ok(Keyed { row: row.get(0)?, at: At::Key(row.get(1)?), value, born: row.get(3)? })
}

fn read_execution(row: &Row, id: RecordId) -> Result<Keyed<Execution>, StoreError> {
    let value = serde_json::from_str(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?).map_err(unreadable)?;
    Ok(Keyed { row: row.get(0)?, at: At::Execution(id, row.get(3)?), value, born: row.get(2)? })
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
pub(super) fn unreadable(error: serde_json::Error) -> StoreError {
    StoreError::corrupt(format!("the scratch: {error}"))
}

/// An execution of a record that is not its newest, by its token.
pub(super) fn token_of(token: Token) -> i64 {
    i64::try_from(token.0).unwrap_or(i64::MAX)
}
