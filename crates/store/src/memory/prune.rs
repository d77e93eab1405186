//! Taking records out of the reference model.

use std::collections::BTreeSet;

use onceward_core::value::RecordId;

use super::kept::Kept;
use crate::error::StoreError;
use crate::prune::{
    Forgotten, ForgottenCounts, Kin, OldCounts, OldPage, OldQuery, OldRequests, Prune, PruneSave, Standing,
};

impl Kept {
    pub(super) fn old(&self, query: &OldQuery) -> OldPage {
        let mut page = OldPage::default();
        let mut young = true;
        let mut looked = 0;
        for (row, record) in self.records().filter(|(row, _)| *row > query.after).take(query.limit) {
            looked += 1;
            page.next = Some(row);
            young &= record.created_at > query.before;
            let ended = record.is_final() && record.finished_at.is_some_and(|at| at <= query.before);
            if ended && record.updated_at <= query.before {
                page.records.push(record.id);
            }
        }
        if young || looked < query.limit {
            page.next = None;
        }
        page
    }

    pub(super) fn kin(&self, ids: &[RecordId]) -> Vec<Kin> {
        let kin = |id: &RecordId| {
            let (stored, record) = self.stored(*id)?;
            let pointing = self.world.links.iter().filter(|(key, _)| key.target == *id);
            let sources: BTreeSet<RecordId> = pointing.flat_map(|(_, sources)| sources).copied().collect();
            let links = self.beside.get(id).map_or(0, |beside| beside.links);
            Some(Kin { stored, record, links, sources: sources.into_iter().collect() })
        };
        ids.iter().filter_map(kin).collect()
    }

    pub(super) fn prune(&mut self, prune: &Prune) -> Result<PruneSave, StoreError> {
        let carry = &prune.carry;
        for one in &carry.taken {
            let beside = self.beside.get(&one.record.id);
            let same = self.world.record(one.record.id).is_some_and(|kept| kept.version == one.record.version);
            if !same || beside.is_none_or(|beside| beside.links != one.links) {
                return Ok(PruneSave::Conflict);
            }
        }
        let (entry, standing) = carry.entry(&self.pruned, prune.now)?;
        let gone: BTreeSet<RecordId> = carry.taken.iter().map(|one| one.record.id).collect();
        let world = &mut self.world;
        world.records.retain(|id, _| !gone.contains(id));
        world.executions.retain(|(id, _), _| !gone.contains(id));
        world.accounts.retain(|account, _| match account {
            onceward_core::decide::Account::Hold { record, .. } => !gone.contains(record),
            onceward_core::decide::Account::Named { .. } => true,
        });
        world.links.retain(|key, sources| {
            sources.retain(|source| !gone.contains(source));
            !gone.contains(&key.target)
        });
        for key in &carry.checkpoint.freed.uniques {
            world.uniques.remove(key);
        }
        for (key, delta) in &carry.checkpoint.freed.counts {
            let count = world.counts.entry(key.clone()).or_default();
            *count =
                count.checked_add_signed(*delta).ok_or_else(|| StoreError::corrupt("fewer than none would count"))?;
        }
        for (key, _) in &carry.unlinked {
            if let Some(target) = self.beside.get_mut(&key.target) {
                target.links += 1;
            }
        }
        self.rows.retain(|_, id| !gone.contains(id));
        self.beside.retain(|id, _| !gone.contains(id));
        self.effects.retain(|id, _| !gone.contains(id));
        for sha256 in carry.contents().into_keys() {
            let mut left = self.world.records.values().flatten().filter_map(|record| record.payload);
            if !left.any(|payload| payload.sha256 == sha256) {
                self.contents.remove(&sha256);
            }
        }
        let seq = self.last() + 1;
        self.log.retain(|entry| entry.record.is_none_or(|id| !gone.contains(&id)));
        self.log.push(entry.at(seq));
        self.pruned = Standing { checkpoint: seq, ..standing };
        self.generation += 1;
        Ok(PruneSave::Saved(seq))
    }

    /// All of them at once: nobody waits for a world in memory.
    pub(super) fn forget_counts(&mut self, old: &OldCounts) -> ForgottenCounts {
        let before = self.world.counts.len();
        self.world.counts.retain(|key, count| !old.are_over(*count, key.window));
        let counts = before - self.world.counts.len();
        ForgottenCounts { counts: counts as u64, next: None }
    }

    pub(super) fn forget(&mut self, old: &OldRequests) -> Forgotten {
        let after = |name: &&_| old.after.as_ref().is_none_or(|after| *name > after);
        let looked: Vec<_> = self.requests.keys().filter(after).take(old.limit).cloned().collect();
        let mut forgotten = Forgotten::default();
        for name in &looked {
            if self.requests.get(name).is_some_and(|(_, at)| *at <= old.before) {
                self.requests.remove(name);
                forgotten.requests += 1;
            }
        }
        forgotten.next = if looked.len() < old.limit { None } else { looked.last().cloned() };
        forgotten
    }
}
