//! The world as the log tells it, built on the disk: a replay whose memory does not grow with the log.
//!
//! It lives in a temporary SQLite database of its own that nobody else sees and nothing outlives. [`Replay`](crate::Replay)
//! is its sibling in memory. Nothing of the code that writes stores is used here: what it got wrong, this must not get wrong too.

mod kept;
mod keys;
mod load;
mod pruned;
mod text;

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::decide::{Account, in_order, link_changes};
use onceward_core::model::Lifecycle;
use onceward_core::record::Record;
use onceward_core::value::RecordId;
use rusqlite::{Connection, params};

use crate::StoreError;
use crate::catalog::Catalog;
use crate::log::{Body, Entry};
use crate::scan::{Known, key_of_count, key_of_unique};

pub use kept::{Brief, Keyed, Kind};
pub use pruned::Removed;

/// So many records are kept at hand. Most records change again soon or never.
const RECENT: usize = 10_000;

/// 64 MB of pages; the rest is on the disk.
const CACHE_KIB: i64 = 65_536;

const SCHEMA: &str = "
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    PRAGMA temp_store = FILE;
    CREATE TABLE records (
        row INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, text TEXT NOT NULL, head BLOB NOT NULL, entry INTEGER NOT NULL,
        effect TEXT, linked INTEGER NOT NULL, raised INTEGER NOT NULL, ledger INTEGER NOT NULL, lost INTEGER NOT NULL,
        vouched INTEGER NOT NULL
    );
    CREATE TABLE executions (
        row INTEGER PRIMARY KEY, record INTEGER NOT NULL, token INTEGER NOT NULL, text TEXT NOT NULL, born INTEGER NOT NULL,
        UNIQUE (record, token)
    );
    CREATE TABLE keyed (
        row INTEGER PRIMARY KEY, kind INTEGER NOT NULL, key TEXT NOT NULL, value, born INTEGER NOT NULL, UNIQUE (kind, key)
    );
    CREATE TABLE links (
        row INTEGER PRIMARY KEY, target INTEGER NOT NULL, name TEXT NOT NULL, source INTEGER NOT NULL, source_id BLOB NOT NULL,
        born INTEGER NOT NULL, UNIQUE (target, name, source)
    );
    CREATE TABLE moved (row INTEGER PRIMARY KEY, seq INTEGER NOT NULL, account TEXT NOT NULL, UNIQUE (seq, account));
    CREATE TABLE queues (
        name TEXT NOT NULL, created_at INTEGER NOT NULL, id BLOB NOT NULL, PRIMARY KEY (name, created_at, id)
    ) WITHOUT ROWID;
    BEGIN;
";

/// What the entries so far have made of an empty world.
pub struct Scratch {
    connection: Connection,
    catalog: Arc<Catalog>,
    lifecycles: HashMap<Arc<str>, Arc<Lifecycle>>,
    recent: HashMap<RecordId, Recent>,
    /// The place of the last entry that was looked at.
    pub seq: u64,
    /// How many records were made.
    pub records: u64,
    /// How many of them a checkpoint has taken out again.
    pub gone: u64,
    /// How many rows the other tables have had.
    pub rows: u64,
    pruning: pruned::Pruning,
    /// How often the API keys were changed.
    pub key_changes: u64,
}

struct Recent {
    known: Known,
    is_new: bool,
    is_changed: bool,
}

/// Why an entry cannot be carried over.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    #[error("it names a version of a lifecycle that is not known: {0}")]
    Definition(Arc<str>),
    #[error("it makes a record that is there")]
    Twice,
    #[error("it changes a record that is not there")]
    Absent,
    #[error("it leads to version {found} of a record whose version is {known}")]
    Version { known: u64, found: u64 },
    #[error("what it changes does not fit the record's lifecycle")]
    Shape,
    #[error("it points to {0}, which is not there")]
    Dangling(RecordId),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A record before and after an entry.
#[derive(Clone, Debug)]
pub struct Applied {
    pub before: Option<Known>,
    pub after: Known,
}

impl Scratch {
    pub fn new(catalog: &Arc<Catalog>) -> Result<Self, StoreError> {
        // A database without a name is a file that is deleted as soon as it is opened.
        let connection = Connection::open("")?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
        connection.execute_batch(SCHEMA)?;
        connection.execute_batch(pruned::SCHEMA)?;
        connection.set_prepared_statement_cache_capacity(64);
        let mut scratch = Self {
            connection,
            catalog: Arc::clone(catalog),
            lifecycles: HashMap::new(),
            recent: HashMap::new(),
            seq: 0,
            records: 0,
            gone: 0,
            rows: 0,
            pruning: pruned::Pruning::default(),
            key_changes: 0,
        };
        scratch.learn(catalog)?;
        Ok(scratch)
    }

    /// Definitions came since. The accounts that stand for the world come with them.
    pub fn learn(&mut self, catalog: &Arc<Catalog>) -> Result<(), StoreError> {
        self.catalog = Arc::clone(catalog);
        self.lifecycles = catalog.lifecycles();
        for lifecycle in catalog.since(0) {
            let Some(asset) = &lifecycle.asset else { continue };
            for account in &lifecycle.outside {
                self.add(Kind::Account, &crate::scan::joined(&[asset, account]), 0)?;
            }
        }
        Ok(())
    }

    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Carry one entry over. Its place and its hash are for the caller to judge: whether the hash `fits`.
    pub fn apply(&mut self, entry: &Entry, body: &Body, fits: bool) -> Result<Option<Applied>, Unfit> {
        let (Some(id), Some(diff)) = (entry.record, &body.change) else { return Ok(None) };
        self.words_before(entry.seq)?;
        let before = self.known(id)?;
        let (start, mut known) = match (&before, &diff.created) {
            (Some(known), None) => (Record::clone(&known.record), known.clone()),
            (None, Some(created)) => {
                let lifecycle = self.lifecycles.get(&created.definition);
                let lifecycle = lifecycle.ok_or_else(|| Unfit::Definition(Arc::clone(&created.definition)))?;
                let unborn = created.unborn(id, lifecycle, entry.at);
                (unborn.clone(), self.newborn(unborn)?)
            }
            (Some(_), Some(_)) => return Err(Unfit::Twice),
            (None, None) => return Err(Unfit::Absent),
        };
        if entry.version != start.version + 1 {
            return Err(Unfit::Version { known: start.version, found: entry.version });
        }
        let after = diff.apply(start, entry.version, entry.at, &self.lifecycles).ok_or(Unfit::Shape)?;
        known.record = Arc::new(after);
        known.head = entry.hash;
        known.entry = entry.seq;
        known.vouched |= fits;
        if known.effect.is_none() {
            known.effect.clone_from(&body.effect);
        }
        let old = before.as_ref().map(|known| &*known.record);
        if before.is_none() {
            self.records += 1;
            if let Some(payload) = known.record.payload {
                self.add(Kind::Reference, &onceward_core::hex::encode(&payload.sha256), 1)?;
            }
        }
        let is_new = self.recent.get(&id).map_or(before.is_none(), |recent| recent.is_new);
        self.recent.insert(id, Recent { known: known.clone(), is_new, is_changed: true });
        self.relink(old, &known)?;
        self.requeue(old, &known.record)?;
        if old.is_none_or(|old| diff.moved.is_some() || old.state != known.record.state) {
            if let Some(old) = old {
                self.add(Kind::Tally, &self.tally(old)?, -1)?;
            }
            self.add(Kind::Tally, &self.tally(&known.record)?, 1)?;
        }
        if let Some(execution) = &diff.execution {
            self.put_execution(known.row, execution, entry.seq)?;
        }
        for (key, holder) in body.uniques.iter() {
            self.put(Kind::Unique, &key_of_unique(key), holder.map(|holder| holder.to_string()).as_deref())?;
        }
        for (key, delta) in body.counts.iter() {
            self.add(Kind::Count, &key_of_count(key), *delta)?;
        }
        for moved in &body.moves {
            for (account, delta) in [(&moved.from, -moved.amount), (&moved.to, moved.amount)] {
                self.move_money(account, delta, entry.seq)?;
            }
        }
        let after = self.known(id)?.unwrap_or(known);
        Ok(Some(Applied { before, after }))
    }

    fn tally(&self, record: &Record) -> Result<String, StoreError> {
        let number = self.catalog.number_of(&record.lifecycle)?.to_string();
        Ok(crate::scan::joined(&[&record.lifecycle.name, &number, &record.owner, record.state_name()]))
    }

    fn newborn(&self, unborn: Record) -> Result<Known, StoreError> {
        let (ledger, raised) = self.carried(unborn.id)?;
        Ok(Known {
            row: self.records + 1,
            record: Arc::new(unborn),
            head: crate::log::NO_HASH,
            entry: 0,
            effect: None,
            linked: 0,
            raised,
            ledger,
            lost: false,
            vouched: false,
        })
    }

    /// What is wrong with a record's log makes what follows worthless; its later entries are still told apart.
    pub fn lose(&mut self, id: RecordId, entry: &Entry) -> Result<(), StoreError> {
        self.amend(id, |known| {
            known.lost = true;
            (known.head, known.entry) = (entry.hash, entry.seq);
        })
    }

    /// A place in the log without a record.
    pub const fn pass(&mut self, seq: u64) {
        self.seq = seq;
    }

    fn amend(&mut self, id: RecordId, change: impl FnOnce(&mut Known)) -> Result<(), StoreError> {
        self.known(id)?;
        if let Some(recent) = self.recent.get_mut(&id) {
            change(&mut recent.known);
            recent.is_changed = true;
        }
        Ok(())
    }

    fn move_money(&mut self, account: &Account, delta: i64, seq: u64) -> Result<(), StoreError> {
        match account {
            Account::Named { asset, name } => {
                let key = crate::scan::joined(&[asset, name]);
                self.rows += 1;
                let sql = "INSERT OR IGNORE INTO moved (seq, account) VALUES (?1, ?2)";
                self.connection.prepare_cached(sql)?.execute(params![seq, key])?;
                self.add(Kind::Account, &key, delta)
            }
            Account::Hold { record, .. } => {
                self.amend(*record, |known| known.ledger = known.ledger.saturating_add(delta))
            }
        }
    }

    fn relink(&mut self, before: Option<&Record>, after: &Known) -> Result<(), Unfit> {
        for link in link_changes(before, &after.record) {
            let target = match self.known(link.key.target)? {
                Some(target) => target.row,
                // It was there then, and nothing points to it any more.
                None if self.is_before_pruning(after.entry) => continue,
                None => return Err(Unfit::Dangling(link.key.target)),
            };
            let name = crate::scan::joined(&[&link.key.lifecycle, &link.key.field]);
            let sql = if link.added {
                self.rows += 1;
                "INSERT OR IGNORE INTO links (target, name, source, source_id, born) VALUES (?1, ?2, ?3, ?4, ?5)"
            } else {
                "DELETE FROM links WHERE target = ?1 AND name = ?2 AND source = ?3 AND source_id = ?4 AND ?5 > 0"
            };
            let at = params![target, name, after.row, after.record.id.0.as_bytes(), after.entry];
            self.connection.prepare_cached(sql).map_err(StoreError::from)?.execute(at).map_err(StoreError::from)?;
            self.amend(link.key.target, |known| {
                known.raised += 1;
                known.linked = if link.added { known.linked + 1 } else { known.linked.saturating_sub(1) };
            })?;
        }
        Ok(())
    }

    fn requeue(&self, before: Option<&Record>, after: &Record) -> Result<(), StoreError> {
        let (old, new) = (before.and_then(in_order), in_order(after));
        if old == new {
            return Ok(());
        }
        for (key, sql) in [
            (old, "DELETE FROM queues WHERE name = ?1 AND created_at = ?2 AND id = ?3"),
            (new, "INSERT OR IGNORE INTO queues (name, created_at, id) VALUES (?1, ?2, ?3)"),
        ] {
            let Some(key) = key else { continue };
            let at = params![kept::queue_name(&key), after.created_at.micros(), after.id.0.as_bytes()];
            self.connection.prepare_cached(sql)?.execute(at)?;
        }
        Ok(())
    }
}
