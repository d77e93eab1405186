//! Pruning in the reference model.

use std::collections::BTreeSet;

use onceward_core::value::RecordId;

use super::state::MemoryState;
use crate::error::StoreError;
use crate::prune::{
    ExpiredCountersPage, ExpiredCountersQuery, ExpiredKeysPage, ExpiredKeysQuery, PrunablePage, PrunableQuery,
    PruneRequest, PruneResult, PruneState, RecordWithReferrers,
};

impl MemoryState {
    pub(super) fn prunable(&self, query: &PrunableQuery) -> PrunablePage {
        let mut page = PrunablePage::default();
        let mut all_newer = true;
        let mut scanned = 0;
        for (row, record) in self.records().filter(|(row, _)| *row > query.after_row).take(query.limit) {
            scanned += 1;
            page.next = Some(row);
            all_newer &= record.created_at > query.cutoff;
            let ended = record.is_final() && record.finished_at.is_some_and(|at| at <= query.cutoff);
            if ended && record.updated_at <= query.cutoff {
                page.records.push(record.id);
            }
        }
        if all_newer || scanned < query.limit {
            page.next = None;
        }
        page
    }

    pub(super) fn with_referrers(&self, ids: &[RecordId]) -> Vec<RecordWithReferrers> {
        let kin = |id: &RecordId| {
            let (stored, record) = self.find_record(*id)?;
            let pointing = self.snapshot.links.iter().filter(|(key, _)| key.target == *id);
            let sources: BTreeSet<RecordId> = pointing.flat_map(|(_, sources)| sources).copied().collect();
            let links = self.record_meta.get(id).map_or(0, |beside| beside.link_version);
            Some(RecordWithReferrers {
                meta: stored,
                record,
                link_version: links,
                referrers: sources.into_iter().collect(),
            })
        };
        ids.iter().filter_map(kin).collect()
    }

    pub(super) fn prune(&mut self, prune: &PruneRequest) -> Result<PruneResult, StoreError> {
        let plan = &prune.plan;
        for one in &plan.pruned {
            let meta = self.record_meta.get(&one.record.id);
            let same = self.snapshot.record(one.record.id).is_some_and(|stored| stored.version == one.record.version);
            if !same || meta.is_none_or(|beside| beside.link_version != one.link_version) {
                return Ok(PruneResult::Conflict);
            }
        }
        let (entry, next_state) = plan.next_checkpoint_entry(&self.prune_state, prune.now)?;
        let pruned_ids: BTreeSet<RecordId> = plan.pruned.iter().map(|one| one.record.id).collect();
        let world = &mut self.snapshot;
        world.records.retain(|id, _| !pruned_ids.contains(id));
        world.executions.retain(|(id, _), _| !pruned_ids.contains(id));
        world.accounts.retain(|account, _| match account {
            onceward_core::decide::Account::Hold { record, .. } => !pruned_ids.contains(record),
            onceward_core::decide::Account::Named { .. } => true,
        });
        world.links.retain(|key, sources| {
            sources.retain(|source| !pruned_ids.contains(source));
            !pruned_ids.contains(&key.target)
        });
        for key in &plan.checkpoint.released.uniques {
            world.unique_holders.remove(key);
        }
        for (key, delta) in &plan.checkpoint.released.counts {
            let count = world.counters.entry(key.clone()).or_default();
            *count = count
                .checked_add_signed(*delta)
                .ok_or_else(|| StoreError::corrupt("a counter would become negative"))?;
        }
        for (key, _) in &plan.removed_links {
            if let Some(target) = self.record_meta.get_mut(&key.target) {
                target.link_version += 1;
            }
        }
        self.ids_by_row.retain(|_, id| !pruned_ids.contains(id));
        self.record_meta.retain(|id, _| !pruned_ids.contains(id));
        self.effects.retain(|id, _| !pruned_ids.contains(id));
        for sha256 in plan.payload_references().into_keys() {
            let mut left = self.snapshot.records.values().flatten().filter_map(|record| record.payload);
            if !left.any(|payload| payload.sha256 == sha256) {
                self.payloads.remove(&sha256);
            }
        }
        let seq = self.last_seq() + 1;
        self.log.retain(|entry| entry.record.is_none_or(|id| !pruned_ids.contains(&id)));
        self.log.push(entry.with_seq(seq));
        self.prune_state = PruneState { checkpoint_seq: seq, ..next_state };
        self.generation += 1;
        Ok(PruneResult::Saved(seq))
    }

    /// Deletes all expired counters at once; in memory there is no need for pages.
    pub(super) fn delete_expired_counters(&mut self, query: &ExpiredCountersQuery) -> ExpiredCountersPage {
        let before = self.snapshot.counters.len();
        self.snapshot.counters.retain(|key, count| !query.is_expired(*count, key.window_start));
        let counts = before - self.snapshot.counters.len();
        ExpiredCountersPage { deleted: counts as u64, next: None }
    }

    pub(super) fn delete_expired_keys(&mut self, query: &ExpiredKeysQuery) -> ExpiredKeysPage {
        let after = |name: &&_| query.after.as_ref().is_none_or(|after| *name > after);
        let scanned: Vec<_> = self.idempotency_records.keys().filter(after).take(query.limit).cloned().collect();
        let mut page = ExpiredKeysPage::default();
        for name in &scanned {
            if self.idempotency_records.get(name).is_some_and(|(_, at)| *at <= query.cutoff) {
                self.idempotency_records.remove(name);
                page.deleted += 1;
            }
        }
        page.next = if scanned.len() < query.limit { None } else { scanned.last().cloned() };
        page
    }
}
