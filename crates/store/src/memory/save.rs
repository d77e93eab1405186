//! Saves in the reference model. Everything is validated before anything changes.

use std::sync::Arc;

use onceward_core::decide::Account;
use onceward_core::time::Time;

use super::state::{MemoryRecordMeta, MemoryState};
use crate::batch::{Batch, OperationOutcome, SaveConflict, SaveResult};
use crate::error::StoreError;
use crate::read_set::ReadSet;
use crate::write_set::WriteSet;

impl MemoryState {
    pub(super) fn save(&mut self, read_set: &ReadSet, batch: &Batch) -> Result<SaveResult, StoreError> {
        let write_set = WriteSet::build(read_set, batch)?;
        if write_set.has_new_records() && batch.catalog_revision < self.catalog.revision() {
            return Ok(SaveResult::Conflict(SaveConflict::default()));
        }
        let conflict = self.find_conflict(read_set, &write_set);
        if !conflict.is_empty() {
            return Ok(SaveResult::Conflict(conflict));
        }
        self.enforce_constraints(&write_set)?;
        for write in &batch.operations {
            if let OperationOutcome::Changes(changes) = &write.outcome {
                self.snapshot.apply(changes);
            }
        }
        self.update_metadata(&write_set, batch.decided_at);
        let first = self.last_seq() + 1;
        let mut last = first - 1;
        for entry in write_set.entries.into_owned() {
            last += 1;
            if let Some(beside) = entry.record.and_then(|id| self.record_meta.get_mut(&id)) {
                beside.head_seq = last;
            }
            self.log.push(entry.with_seq(last));
        }
        self.generation += 1;
        Ok(SaveResult::Saved { first_seq: first, last_seq: last })
    }

    fn find_conflict(&self, read_set: &ReadSet, write_set: &WriteSet) -> SaveConflict {
        let mut fresh = read_set.new_probe();
        self.load(&mut fresh, &write_set.keys_to_validate(read_set));
        let mut answered_ids = write_set.duplicate_ids.clone();
        let used =
            write_set.idempotency_records.iter().filter(|request| self.idempotency_records.contains_key(&request.id));
        answered_ids.extend(used.map(|request| request.id.clone()));
        SaveConflict { changed_keys: read_set.changed_keys(&fresh), answered_ids }
    }

    /// Checks the constraints that a database enforces by its schema.
    fn enforce_constraints(&self, write_set: &WriteSet) -> Result<(), StoreError> {
        let reject = |why: String| Err(StoreError::Rejected(why));
        for record in &write_set.records {
            let after = &record.after;
            self.catalog.version_number(&after.lifecycle)?;
            if record.before.is_none() && self.snapshot.record(after.id).is_some() {
                return reject(format!("record {} already exists", after.id));
            }
            if after.hold < 0 {
                return reject(format!("the hold of {} would become negative", after.id));
            }
        }
        for (number, effect) in write_set.effects.iter().enumerate() {
            let again = write_set.effects[..number].iter().any(|other| other.record == effect.record);
            if again || self.effects.contains_key(&effect.record) {
                return reject(format!("{} would have a second effect", effect.record));
            }
        }
        for (account, delta) in &write_set.accounts {
            let Account::Named { asset, name } = account else { continue };
            let balance = self.snapshot.accounts.get(*account).copied().unwrap_or(0);
            let Some(balance) = balance.checked_add(*delta) else {
                return reject(format!("the balance of `{name}` would overflow"));
            };
            if balance < 0 && !self.catalog.definitions.is_outside_account(asset, name) {
                return reject(format!("the balance of `{name}` would become negative"));
            }
        }
        for (key, delta) in &write_set.counts {
            let count = self.snapshot.counters.get(*key).copied().unwrap_or(0);
            if count.checked_add_signed(*delta).is_none() {
                return reject(format!("the counter {key:?} would become negative"));
            }
        }
        Ok(())
    }

    fn update_metadata(&mut self, write_set: &WriteSet, now: Time) {
        for record in &write_set.records {
            let id = record.after.id;
            let new_row = self.ids_by_row.last_key_value().map_or(0, |(row, _)| *row) + 1;
            let beside = self.record_meta.entry(id).or_insert_with(|| {
                self.ids_by_row.insert(new_row, id);
                MemoryRecordMeta { row_id: new_row, head_hash: record.head_hash, head_seq: 0, link_version: 0 }
            });
            beside.head_hash = record.head_hash;
        }
        for (link, _) in write_set.records.iter().flat_map(crate::write_set::RecordWrite::changed_links) {
            if let Some(target) = self.record_meta.get_mut(&link.target) {
                target.link_version += 1;
            }
        }
        self.effects.extend(write_set.effects.iter().map(|effect| (effect.record, (*effect).clone())));
        self.payloads.extend(write_set.payloads.iter().map(|(payload, bytes)| (payload.sha256, Arc::from(*bytes))));
        self.idempotency_records.extend(
            write_set.idempotency_records.iter().map(|request| (request.id.clone(), ((*request).clone(), now))),
        );
    }
}
