//! Loads read keys from the replay database, to re-decide old entries.

use std::collections::BTreeSet;

use onceward_core::decide::{Account, ConcurrencyKey, CounterKey, LinkKey, ReadKey, Snapshot, UniqueKey};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use rusqlite::params;
use uuid::Uuid;

use super::rows::{queue_name, token_number};
use super::{ReplayDatabase, ReplayTable};
use crate::StoreError;
use crate::scan::{counter_key_text, join_key_parts, unique_key_text};

impl ReplayDatabase {
    pub fn load(&mut self, snapshot: &mut Snapshot, keys: &[ReadKey]) -> Result<(), StoreError> {
        for key in keys {
            match key {
                ReadKey::Record(id) => {
                    let replayed = self.replayed_record(*id)?;
                    snapshot.records.insert(*id, replayed.map(|replayed| replayed.record));
                }
                ReadKey::Unique(key) => {
                    let holder = self.find_row(ReplayTable::Unique, &unique_key_text(key))?.and_then(|row| row.value);
                    let holder = holder.and_then(|id| Uuid::parse_str(&id).ok()).map(RecordId);
                    snapshot.unique_holders.insert(key.clone(), holder);
                }
                ReadKey::Counter(key) => {
                    let count = self.read_number(ReplayTable::Count, &counter_key_text(key))?;
                    snapshot.counters.insert(key.clone(), u64::try_from(count).unwrap_or(0));
                }
                ReadKey::Account(account) => {
                    let balance = match account {
                        Account::Named { asset, name } => {
                            self.read_number(ReplayTable::Account, &join_key_parts(&[asset, name]))?
                        }
                        Account::Hold { record, .. } => {
                            self.replayed_record(*record)?.map_or(0, |replayed| replayed.record.hold)
                        }
                    };
                    snapshot.accounts.insert(account.clone(), balance);
                }
                ReadKey::Links(key) => {
                    let linked = self.linked_records(key)?;
                    snapshot.links.insert(key.clone(), linked);
                }
                ReadKey::Execution(id, token) => {
                    let execution = match self.replayed_record(*id)? {
                        Some(replayed) => {
                            self.execution(replayed.row_id, *id, token_number(*token))?.map(|row| row.value)
                        }
                        None => None,
                    };
                    snapshot.executions.insert((*id, *token), execution);
                }
                ReadKey::ConcurrencyQueue(key) => {
                    let first = self.queue_front(key)?;
                    snapshot.concurrency_queues.insert(key.clone(), first);
                }
            }
        }
        Ok(())
    }

    fn read_number(&self, table: ReplayTable, key: &str) -> Result<i64, StoreError> {
        Ok(self.find_row(table, key)?.and_then(|row| row.value?.parse().ok()).unwrap_or(0))
    }

    /// Returns the value of a counter.
    pub fn read_counter(&self, key: &CounterKey) -> Result<i64, StoreError> {
        self.read_number(ReplayTable::Count, &counter_key_text(key))
    }

    /// Adds one to the recount of a counter, which is computed from the current records.
    pub fn add_recounted(&mut self, key: &CounterKey) -> Result<(), StoreError> {
        self.add_delta(ReplayTable::RecountedCounter, &counter_key_text(key), 1)
    }

    /// Returns the record that holds a unique key.
    pub fn unique_holder(&self, key: &UniqueKey) -> Result<Option<String>, StoreError> {
        Ok(self.find_row(ReplayTable::Unique, &unique_key_text(key))?.and_then(|row| row.value))
    }

    /// Returns the linked records, oldest first.
    fn linked_records(&mut self, key: &LinkKey) -> Result<Vec<RecordId>, StoreError> {
        let Some(target) = self.replayed_record(key.target)? else { return Ok(Vec::new()) };
        let sql = "SELECT source_id FROM links WHERE target = ?1 AND name = ?2 ORDER BY source";
        let mut statement = self.connection.prepare_cached(sql)?;
        let name = join_key_parts(&[&key.lifecycle, &key.field]);
        let found = statement.query_map(params![target.row_id, name], |row| row.get::<_, [u8; 16]>(0))?;
        found.map(|id| Ok(RecordId(Uuid::from_bytes(id?)))).collect()
    }

    /// Returns only the first job of an ordered queue. `decide` needs no more.
    pub fn queue_front(&self, key: &ConcurrencyKey) -> Result<BTreeSet<(Time, RecordId)>, StoreError> {
        let sql = "SELECT created_at, id FROM queues WHERE name = ?1 ORDER BY created_at, id LIMIT 1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let found = statement.query_map([queue_name(key)], |row| Ok((row.get(0)?, row.get::<_, [u8; 16]>(1)?)))?;
        found
            .map(|row| {
                let (created_at, id) = row?;
                Ok((Time::from_micros(created_at), RecordId(Uuid::from_bytes(id))))
            })
            .collect()
    }

    /// Returns the hash of the record's last entry.
    pub fn head_hash(&mut self, id: RecordId) -> Result<crate::log::Sha256Hash, StoreError> {
        Ok(self.replayed_record(id)?.map_or(crate::log::ZERO_HASH, |replayed| replayed.head_hash))
    }
}
