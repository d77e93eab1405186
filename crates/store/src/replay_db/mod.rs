//! The replay database: the state rebuilt from the log, on disk, so that memory use does not grow with the log.
//!
//! It is a private, temporary SQLite database. [`LogReplay`](crate::LogReplay) does the same in memory. This module
//! shares no code with the stores' writes, so that an error there does not repeat here.

mod api_keys;
mod checkpoints;
mod load;
mod record_text;
mod rows;

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::decide::{Account, link_changes, ordered_queue_key};
use onceward_core::model::Lifecycle;
use onceward_core::record::Record;
use onceward_core::value::RecordId;
use rusqlite::{Connection, params};

use crate::StoreError;
use crate::catalog::Catalog;
use crate::log::{LogEntry, LogEntryBody};
use crate::scan::{ReplayedRecord, counter_key_text, unique_key_text};

pub use checkpoints::PrunedRows;
pub use rows::{RecordSummary, ReplayTable, ReplayedRow};

/// Most records change again soon or never, so a small cache is enough.
const MAX_CACHED_RECORDS: usize = 10_000;

/// 64 MB. The other pages stay on disk.
const PAGE_CACHE_KIB: i64 = 65_536;

const REPLAY_SCHEMA_SQL: &str = "
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    PRAGMA temp_store = FILE;
    CREATE TABLE records (
        row INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, text TEXT NOT NULL, head BLOB NOT NULL, entry INTEGER NOT NULL,
        effect TEXT, incoming_links INTEGER NOT NULL, link_version INTEGER NOT NULL, ledger_balance INTEGER NOT NULL,
        is_log_damaged INTEGER NOT NULL, has_verified_entry INTEGER NOT NULL
    );
    CREATE TABLE executions (
        row INTEGER PRIMARY KEY, record INTEGER NOT NULL, token INTEGER NOT NULL, text TEXT NOT NULL,
        written_seq INTEGER NOT NULL, UNIQUE (record, token)
    );
    CREATE TABLE keyed_rows (
        row INTEGER PRIMARY KEY, kind INTEGER NOT NULL, key TEXT NOT NULL, value, written_seq INTEGER NOT NULL,
        UNIQUE (kind, key)
    );
    CREATE TABLE links (
        row INTEGER PRIMARY KEY, target INTEGER NOT NULL, name TEXT NOT NULL, source INTEGER NOT NULL, source_id BLOB NOT NULL,
        written_seq INTEGER NOT NULL, UNIQUE (target, name, source)
    );
    CREATE TABLE account_entries (
        row INTEGER PRIMARY KEY, seq INTEGER NOT NULL, account TEXT NOT NULL, UNIQUE (seq, account)
    );
    CREATE TABLE queues (
        name TEXT NOT NULL, created_at INTEGER NOT NULL, id BLOB NOT NULL, PRIMARY KEY (name, created_at, id)
    ) WITHOUT ROWID;
    BEGIN;
";

/// The state after the entries replayed so far.
pub struct ReplayDatabase {
    connection: Connection,
    catalog: Arc<Catalog>,
    lifecycles: HashMap<Arc<str>, Arc<Lifecycle>>,
    cached: HashMap<RecordId, CachedRecord>,
    /// Seq of the last entry replayed.
    pub seq: u64,
    pub created_records: u64,
    /// How many of the created records a checkpoint has removed.
    pub pruned_records: u64,
    /// How many rows were written to the other tables.
    pub written_rows: u64,
    prune_progress: checkpoints::PruneProgress,
    pub api_keys_revision: u64,
}

struct CachedRecord {
    record: ReplayedRecord,
    is_new: bool,
    is_changed: bool,
}

/// Why an entry cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("the entry names an unknown lifecycle version: {0}")]
    UnknownVersion(Arc<str>),
    #[error("the entry creates a record that already exists")]
    RecordExists,
    #[error("the entry changes a record that does not exist")]
    RecordMissing,
    #[error("the entry would make version {found}, but the record is at version {known}")]
    VersionMismatch { known: u64, found: u64 },
    #[error("the entry's change does not match the record's lifecycle")]
    DiffMismatch,
    #[error("the entry refers to record {0}, which does not exist")]
    DanglingLink(RecordId),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A record before and after an entry.
#[derive(Clone, Debug)]
pub struct AppliedEntry {
    pub before: Option<ReplayedRecord>,
    pub after: ReplayedRecord,
}

impl ReplayDatabase {
    pub fn new(catalog: &Arc<Catalog>) -> Result<Self, StoreError> {
        // SQLite keeps a database without a name in a temporary file and deletes it on close.
        let connection = Connection::open("")?;
        connection.pragma_update(None, "cache_size", -PAGE_CACHE_KIB)?;
        connection.execute_batch(REPLAY_SCHEMA_SQL)?;
        connection.execute_batch(checkpoints::PRUNE_SCHEMA_SQL)?;
        connection.set_prepared_statement_cache_capacity(64);
        let mut database = Self {
            connection,
            catalog: Arc::clone(catalog),
            lifecycles: HashMap::new(),
            cached: HashMap::new(),
            seq: 0,
            created_records: 0,
            pruned_records: 0,
            written_rows: 0,
            prune_progress: checkpoints::PruneProgress::default(),
            api_keys_revision: 0,
        };
        database.set_catalog(catalog)?;
        Ok(database)
    }

    /// Replaces the catalog and adds the accounts of its outside-account declarations.
    pub fn set_catalog(&mut self, catalog: &Arc<Catalog>) -> Result<(), StoreError> {
        self.catalog = Arc::clone(catalog);
        self.lifecycles = catalog.lifecycles();
        for lifecycle in catalog.versions_since(0) {
            let Some(asset) = &lifecycle.asset else { continue };
            for account in &lifecycle.outside_accounts {
                self.add_delta(ReplayTable::Account, &crate::scan::join_key_parts(&[asset, account]), 0)?;
            }
        }
        Ok(())
    }

    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Applies one entry. The caller checks its seq and hash; `is_hash_valid` is the result.
    pub fn apply(
        &mut self,
        entry: &LogEntry,
        body: &LogEntryBody,
        is_hash_valid: bool,
    ) -> Result<Option<AppliedEntry>, ApplyError> {
        let (Some(id), Some(diff)) = (entry.record, &body.change) else { return Ok(None) };
        self.apply_key_writes_before(entry.seq)?;
        let before = self.replayed_record(id)?;
        let (start, mut replayed) = match (&before, &diff.created) {
            (Some(replayed), None) => (Record::clone(&replayed.record), replayed.clone()),
            (None, Some(created)) => {
                let lifecycle = self.lifecycles.get(&created.definition);
                let lifecycle = lifecycle.ok_or_else(|| ApplyError::UnknownVersion(Arc::clone(&created.definition)))?;
                let initial = created.initial_record(id, lifecycle, entry.at);
                (initial.clone(), self.new_record(initial)?)
            }
            (Some(_), Some(_)) => return Err(ApplyError::RecordExists),
            (None, None) => return Err(ApplyError::RecordMissing),
        };
        if entry.version != start.version + 1 {
            return Err(ApplyError::VersionMismatch { known: start.version, found: entry.version });
        }
        let after = diff.apply(start, entry.version, entry.at, &self.lifecycles).ok_or(ApplyError::DiffMismatch)?;
        replayed.record = Arc::new(after);
        replayed.head_hash = entry.hash;
        replayed.head_seq = entry.seq;
        replayed.has_verified_entry |= is_hash_valid;
        if replayed.effect.is_none() {
            replayed.effect.clone_from(&body.effect);
        }
        let old = before.as_ref().map(|replayed| &*replayed.record);
        if before.is_none() {
            self.created_records += 1;
            if let Some(payload) = replayed.record.payload {
                self.add_delta(ReplayTable::PayloadReference, &onceward_core::hex::encode(&payload.sha256), 1)?;
            }
        }
        let is_new = self.cached.get(&id).map_or(before.is_none(), |recent| recent.is_new);
        self.cached.insert(id, CachedRecord { record: replayed.clone(), is_new, is_changed: true });
        self.update_links(old, &replayed)?;
        self.update_queue(old, &replayed.record)?;
        if old.is_none_or(|old| diff.migrated_to.is_some() || old.state != replayed.record.state) {
            if let Some(old) = old {
                self.add_delta(ReplayTable::StateCount, &self.state_count_key(old)?, -1)?;
            }
            self.add_delta(ReplayTable::StateCount, &self.state_count_key(&replayed.record)?, 1)?;
        }
        if let Some(execution) = &diff.execution {
            self.put_execution(replayed.row_id, execution, entry.seq)?;
        }
        for (key, holder) in body.uniques.iter() {
            self.put_row(
                ReplayTable::Unique,
                &unique_key_text(key),
                holder.map(|holder| holder.to_string()).as_deref(),
            )?;
        }
        for (key, delta) in body.counts.iter() {
            self.add_delta(ReplayTable::Count, &counter_key_text(key), *delta)?;
        }
        for moved in &body.transfers {
            for (account, delta) in [(&moved.from, -moved.amount), (&moved.to, moved.amount)] {
                self.apply_transfer(account, delta, entry.seq)?;
            }
        }
        let after = self.replayed_record(id)?.unwrap_or(replayed);
        Ok(Some(AppliedEntry { before, after }))
    }

    fn state_count_key(&self, record: &Record) -> Result<String, StoreError> {
        let number = self.catalog.version_number(&record.lifecycle)?.to_string();
        Ok(crate::scan::join_key_parts(&[&record.lifecycle.name, &number, &record.owner, record.state_name()]))
    }

    fn new_record(&self, initial: Record) -> Result<ReplayedRecord, StoreError> {
        let (ledger_balance, link_version) = self.carried_forward(initial.id)?;
        Ok(ReplayedRecord {
            row_id: self.created_records + 1,
            record: Arc::new(initial),
            head_hash: crate::log::ZERO_HASH,
            head_seq: 0,
            effect: None,
            incoming_links: 0,
            link_version,
            ledger_balance,
            is_log_damaged: false,
            has_verified_entry: false,
        })
    }

    /// Marks a record whose log is damaged. Its expected state is then unknown, but its later entries are still
    /// attributed to it.
    pub fn mark_damaged(&mut self, id: RecordId, entry: &LogEntry) -> Result<(), StoreError> {
        self.update_record(id, |replayed| {
            replayed.is_log_damaged = true;
            (replayed.head_hash, replayed.head_seq) = (entry.hash, entry.seq);
        })
    }

    /// Advances past an entry without a record.
    pub const fn advance_to(&mut self, seq: u64) {
        self.seq = seq;
    }

    fn update_record(&mut self, id: RecordId, change: impl FnOnce(&mut ReplayedRecord)) -> Result<(), StoreError> {
        self.replayed_record(id)?;
        if let Some(recent) = self.cached.get_mut(&id) {
            change(&mut recent.record);
            recent.is_changed = true;
        }
        Ok(())
    }

    fn apply_transfer(&mut self, account: &Account, delta: i64, seq: u64) -> Result<(), StoreError> {
        match account {
            Account::Named { asset, name } => {
                let key = crate::scan::join_key_parts(&[asset, name]);
                self.written_rows += 1;
                let sql = "INSERT OR IGNORE INTO account_entries (seq, account) VALUES (?1, ?2)";
                self.connection.prepare_cached(sql)?.execute(params![seq, key])?;
                self.add_delta(ReplayTable::Account, &key, delta)
            }
            Account::Hold { record, .. } => self.update_record(*record, |replayed| {
                replayed.ledger_balance = replayed.ledger_balance.saturating_add(delta);
            }),
        }
    }

    fn update_links(&mut self, before: Option<&Record>, after: &ReplayedRecord) -> Result<(), ApplyError> {
        for link in link_changes(before, &after.record) {
            let target = match self.replayed_record(link.key.target)? {
                Some(target) => target.row_id,
                // The target existed then. It was pruned, so no record links to it any more.
                None if self.is_before_checkpoint(after.head_seq) => continue,
                None => return Err(ApplyError::DanglingLink(link.key.target)),
            };
            let name = crate::scan::join_key_parts(&[&link.key.lifecycle, &link.key.field]);
            let sql = if link.is_added {
                self.written_rows += 1;
                "INSERT OR IGNORE INTO links (target, name, source, source_id, written_seq) VALUES (?1, ?2, ?3, ?4, ?5)"
            } else {
                "DELETE FROM links WHERE target = ?1 AND name = ?2 AND source = ?3 AND source_id = ?4 AND ?5 > 0"
            };
            let at = params![target, name, after.row_id, after.record.id.0.as_bytes(), after.head_seq];
            self.connection.prepare_cached(sql).map_err(StoreError::from)?.execute(at).map_err(StoreError::from)?;
            self.update_record(link.key.target, |replayed| {
                replayed.link_version += 1;
                replayed.incoming_links =
                    if link.is_added { replayed.incoming_links + 1 } else { replayed.incoming_links.saturating_sub(1) };
            })?;
        }
        Ok(())
    }

    fn update_queue(&self, before: Option<&Record>, after: &Record) -> Result<(), StoreError> {
        let (old, new) = (before.and_then(ordered_queue_key), ordered_queue_key(after));
        if old == new {
            return Ok(());
        }
        for (key, sql) in [
            (old, "DELETE FROM queues WHERE name = ?1 AND created_at = ?2 AND id = ?3"),
            (new, "INSERT OR IGNORE INTO queues (name, created_at, id) VALUES (?1, ?2, ?3)"),
        ] {
            let Some(key) = key else { continue };
            let at = params![rows::queue_name(&key), after.created_at.micros(), after.id.0.as_bytes()];
            self.connection.prepare_cached(sql)?.execute(at)?;
        }
        Ok(())
    }
}
