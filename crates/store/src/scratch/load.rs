//! Loading from the scratch what `decide` asks for: how an old entry is decided again.

use std::collections::BTreeSet;

use onceward_core::decide::{Account, CountKey, Key, LinkKey, QueueKey, Snapshot, UniqueKey};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use rusqlite::params;
use uuid::Uuid;

use super::kept::{queue_name, token_of};
use super::{Kind, Scratch};
use crate::StoreError;
use crate::scan::{joined, key_of_count, key_of_unique};

impl Scratch {
    pub fn load(&mut self, snapshot: &mut Snapshot, keys: &[Key]) -> Result<(), StoreError> {
        for key in keys {
            match key {
                Key::Record(id) => {
                    let known = self.known(*id)?;
                    snapshot.records.insert(*id, known.map(|known| known.record));
                }
                Key::Unique(key) => {
                    let holder = self.keyed(Kind::Unique, &key_of_unique(key))?.and_then(|kept| kept.value);
                    let holder = holder.and_then(|id| Uuid::parse_str(&id).ok()).map(RecordId);
                    snapshot.uniques.insert(key.clone(), holder);
                }
                Key::Count(key) => {
                    let count = self.number(Kind::Count, &key_of_count(key))?;
                    snapshot.counts.insert(key.clone(), u64::try_from(count).unwrap_or(0));
                }
                Key::Account(account) => {
                    let balance = match account {
                        Account::Named { asset, name } => self.number(Kind::Account, &joined(&[asset, name]))?,
                        Account::Hold { record, .. } => self.known(*record)?.map_or(0, |known| known.record.hold),
                    };
                    snapshot.accounts.insert(account.clone(), balance);
                }
                Key::Links(key) => {
                    let linked = self.linked(key)?;
                    snapshot.links.insert(key.clone(), linked);
                }
                Key::Execution(id, token) => {
                    let execution = match self.known(*id)? {
                        Some(known) => self.execution(known.row, *id, token_of(*token))?.map(|kept| kept.value),
                        None => None,
                    };
                    snapshot.executions.insert((*id, *token), execution);
                }
                Key::Queue(key) => {
                    let first = self.first_of(key)?;
                    snapshot.queues.insert(key.clone(), first);
                }
            }
        }
        Ok(())
    }

    fn number(&self, kind: Kind, key: &str) -> Result<i64, StoreError> {
        Ok(self.keyed(kind, key)?.and_then(|kept| kept.value?.parse().ok()).unwrap_or(0))
    }

    /// How many count under a key.
    pub fn count(&self, key: &CountKey) -> Result<i64, StoreError> {
        self.number(Kind::Count, &key_of_count(key))
    }

    /// One more counts under a key, by what its record is now.
    pub fn recount(&mut self, key: &CountKey) -> Result<(), StoreError> {
        self.add(Kind::Recount, &key_of_count(key), 1)
    }

    /// Who holds a key.
    pub fn holder(&self, key: &UniqueKey) -> Result<Option<String>, StoreError> {
        Ok(self.keyed(Kind::Unique, &key_of_unique(key))?.and_then(|kept| kept.value))
    }

    /// Oldest first.
    fn linked(&mut self, key: &LinkKey) -> Result<Vec<RecordId>, StoreError> {
        let Some(target) = self.known(key.target)? else { return Ok(Vec::new()) };
        let sql = "SELECT source_id FROM links WHERE target = ?1 AND name = ?2 ORDER BY source";
        let mut statement = self.connection.prepare_cached(sql)?;
        let name = joined(&[&key.lifecycle, &key.field]);
        let found = statement.query_map(params![target.row, name], |row| row.get::<_, [u8; 16]>(0))?;
        found.map(|id| Ok(RecordId(Uuid::from_bytes(id?)))).collect()
    }

    /// The first of an ordered queue, which is all that anybody asks for.
    pub fn first_of(&self, key: &QueueKey) -> Result<BTreeSet<(Time, RecordId)>, StoreError> {
        let sql = "SELECT created_at, id FROM queues WHERE name = ?1 ORDER BY created_at, id LIMIT 1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let found = statement.query_map([queue_name(key)], |row| Ok((row.get(0)?, row.get::<_, [u8; 16]>(1)?)))?;
        found
            .map(|place| {
                let (created_at, id) = place?;
                Ok((Time::from_micros(created_at), RecordId(Uuid::from_bytes(id))))
            })
            .collect()
    }

    /// The record's last entry: its hash.
    pub fn head(&mut self, id: RecordId) -> Result<crate::log::Hash, StoreError> {
        Ok(self.known(id)?.map_or(crate::log::NO_HASH, |known| known.head))
    }
}
