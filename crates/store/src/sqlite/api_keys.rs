//! API keys in SQLite. They are few and change rarely, so they are read as a whole.

use onceward_core::time::Time;
use rusqlite::{Connection, Row, Transaction, TransactionBehavior, params};

use super::save::SqliteWriter;
use crate::api_keys::{ApiKey, ApiKeyEdit, ApiKeySaveResult, ApiKeySet, read_names, write_names};
use crate::error::StoreError;

pub(super) fn revision(connection: &Connection) -> Result<u64, StoreError> {
    Ok(connection.prepare_cached("SELECT revision FROM api_keys_revision")?.query_row([], |row| row.get(0))?)
}

pub(super) fn api_keys(connection: &Connection) -> Result<ApiKeySet, StoreError> {
    let mut key_set = ApiKeySet { revision: revision(connection)?, keys: Vec::new() };
    let sql = "SELECT id, hash, owner, roles, lifecycles, name, created_at, expires_at, revoked_at FROM api_keys \
               ORDER BY created_at, id";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        key_set.keys.push(read_api_key(row)?);
    }
    Ok(key_set)
}

fn read_api_key(row: &Row) -> Result<ApiKey, StoreError> {
    let lifecycles: Option<String> = row.get(4)?;
    let time = |at| row.get::<_, Option<i64>>(at).map(|time| time.map(Time::from_micros));
    Ok(ApiKey {
        id: row.get(0)?,
        hash: row.get(1)?,
        owner: row.get(2)?,
        roles: read_names(&row.get::<_, String>(3)?)?,
        lifecycles: lifecycles.map(|names| read_names(&names)).transpose()?,
        name: row.get(5)?,
        created_at: Time::from_micros(row.get(6)?),
        expires_at: time(7)?,
        revoked_at: time(8)?,
    })
}

impl SqliteWriter {
    pub(super) fn edit_api_keys(&mut self, edit: &ApiKeyEdit) -> Result<ApiKeySaveResult, StoreError> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if revision(&transaction)? != edit.expected_revision {
            return Ok(ApiKeySaveResult::Conflict);
        }
        let seq = write_edit(&transaction, edit)?;
        transaction.commit()?;
        self.add_written_pages(4);
        Ok(ApiKeySaveResult::Saved(seq))
    }
}

/// Writes the edit and returns the seq of its log entry.
fn write_edit(transaction: &Transaction, edit: &ApiKeyEdit) -> Result<u64, StoreError> {
    for id in &edit.deleted {
        transaction.execute("DELETE FROM api_keys WHERE id = ?1", [id])?;
    }
    if let Some(id) = &edit.revoked {
        let sql = "UPDATE api_keys SET revoked_at = ?2 WHERE id = ?1";
        transaction.execute(sql, params![id, edit.now.micros()])?;
    }
    if let Some(key) = &edit.created {
        let sql = "INSERT INTO api_keys (id, hash, owner, roles, lifecycles, name, created_at, expires_at) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let lifecycles = key.lifecycles.as_deref().map(write_names).transpose()?;
        let (created_at, expires_at) = (key.created_at.micros(), key.expires_at.map(Time::micros));
        let values = params![
            key.id,
            key.hash,
            key.owner,
            write_names(&key.roles)?,
            lifecycles,
            key.name,
            created_at,
            expires_at
        ];
        transaction.execute(sql, values)?;
    }
    transaction.execute("UPDATE api_keys_revision SET revision = revision + 1", [])?;
    let entry = edit.log_entry()?;
    let seq: u64 = transaction.query_row("SELECT seq + 1 FROM log_seq", [], |row| row.get(0))?;
    let sql =
        "INSERT INTO history (seq, record, version, at, previous, text, hash) VALUES (?1, NULL, ?2, ?3, NULL, ?4, ?5)";
    transaction.execute(sql, params![seq, entry.version, entry.at.micros(), &*entry.text, entry.hash])?;
    transaction.execute("UPDATE log_seq SET seq = ?1", [seq])?;
    Ok(seq)
}
