//! Who came for jobs lately, in the reference model.

use std::collections::BTreeMap;

use onceward_core::decide::next_due;
use onceward_core::time::Time;

use super::kept::Kept;
use crate::workers::{Holding, WorkerName, WorkerSeen};

impl Kept {
    pub(super) fn note_workers(&mut self, seen: &[WorkerSeen]) {
        for worker in seen {
            let known = self.workers.entry(worker.name.clone()).or_insert_with(|| worker.clone());
            if known.seen <= worker.seen {
                known.clone_from(worker);
            }
        }
    }

    pub(super) fn workers(&self, limit: usize) -> Vec<WorkerSeen> {
        let mut all: Vec<&WorkerSeen> = self.workers.values().collect();
        all.sort_by_key(|worker| (std::cmp::Reverse(worker.seen), worker.name.digest()));
        all.into_iter().take(limit).cloned().collect()
    }

    pub(super) fn holding(&self, limit: usize) -> Holding {
        let mut due: Vec<_> =
            self.records().filter_map(|(row, record)| Some((next_due(record)?, row, record))).collect();
        due.sort_unstable_by_key(|(due, row, _)| (*due, *row));
        let mut workers: BTreeMap<WorkerName, u64> = BTreeMap::new();
        for (_, _, record) in due.iter().take(limit) {
            if let Some(execution) = record.live_execution() {
                let (holder, worker) = (execution.holder.clone(), execution.worker.clone());
                *workers.entry(WorkerName { holder, worker }).or_default() += 1;
            }
        }
        Holding { workers: workers.into_iter().collect(), is_whole: due.len() <= limit }
    }

    pub(super) fn forget_workers(&mut self, before: Time, most: usize) -> u64 {
        let had = self.workers.len();
        let young: Vec<WorkerSeen> = self.workers(most).into_iter().filter(|worker| worker.seen > before).collect();
        self.workers = young.into_iter().map(|worker| (worker.name.clone(), worker)).collect();
        u64::try_from(had - self.workers.len()).unwrap_or(u64::MAX)
    }
}
