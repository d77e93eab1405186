//! Worker sightings in the reference model.

use std::collections::BTreeMap;

use onceward_core::decide::next_due;
use onceward_core::time::Time;

use super::state::MemoryState;
use crate::workers::{LeaseCounts, WorkerName, WorkerSighting};

impl MemoryState {
    pub(super) fn upsert_workers(&mut self, sightings: &[WorkerSighting]) {
        for worker in sightings {
            let stored = self.workers.entry(worker.name.clone()).or_insert_with(|| worker.clone());
            if stored.last_seen_at <= worker.last_seen_at {
                stored.clone_from(worker);
            }
        }
    }

    pub(super) fn workers(&self, limit: usize) -> Vec<WorkerSighting> {
        let mut all: Vec<&WorkerSighting> = self.workers.values().collect();
        all.sort_by_key(|worker| (std::cmp::Reverse(worker.last_seen_at), worker.name.digest()));
        all.into_iter().take(limit).cloned().collect()
    }

    pub(super) fn lease_counts(&self, max_timers: usize) -> LeaseCounts {
        let mut due: Vec<_> =
            self.records().filter_map(|(row, record)| Some((next_due(record)?, row, record))).collect();
        due.sort_unstable_by_key(|(due, row, _)| (*due, *row));
        let mut workers: BTreeMap<WorkerName, u64> = BTreeMap::new();
        for (_, _, record) in due.iter().take(max_timers) {
            if let Some(execution) = record.live_execution() {
                let (holder, worker) = (execution.holder.clone(), execution.worker.clone());
                *workers.entry(WorkerName { holder, worker }).or_default() += 1;
            }
        }
        LeaseCounts { workers: workers.into_iter().collect(), is_complete: due.len() <= max_timers }
    }

    pub(super) fn delete_stale_workers(&mut self, seen_before: Time, max_workers: usize) -> u64 {
        let had = self.workers.len();
        let recent: Vec<WorkerSighting> =
            self.workers(max_workers).into_iter().filter(|worker| worker.last_seen_at > seen_before).collect();
        self.workers = recent.into_iter().map(|worker| (worker.name.clone(), worker)).collect();
        u64::try_from(had - self.workers.len()).unwrap_or(u64::MAX)
    }
}
