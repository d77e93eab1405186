//! Queries in the reference model. Each scans all data.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use onceward_core::decide::{ConcurrencyKey, CounterKey, LinkKey, ReadKey, next_due, readiness};
use onceward_core::record::{Execution, FencingToken, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;

use super::state::{MemoryRecordMeta, MemoryState};
use crate::columns::{execution_text_bytes, write_fields};
use crate::links::{LinkPage, LinkQuery};
use crate::query::{
    LeaseCandidate, LeaseQuery, ListQuery, PageBudget, PageLimit, RecordPage, StateCount, max_scanned_records,
    priority_rank, running_counter_key,
};
use crate::read_set::{ReadSet, RecordMeta};
use crate::stats::{MAX_COUNTED_READY, MAX_SCANNED_TIMERS, ReadyCount, StoreStats};

impl MemoryState {
    pub(super) fn load(&self, read_set: &mut ReadSet, keys: &[ReadKey]) {
        for key in keys {
            if !read_set.needs_load(key) {
                continue;
            }
            match key {
                ReadKey::Record(id) => read_set.put_record(*id, self.find_record(*id)),
                ReadKey::Unique(key) => {
                    read_set.put_unique(key.clone(), self.snapshot.unique_holders.get(key).copied().flatten());
                }
                ReadKey::Counter(key) => read_set.put_count(key.clone(), self.count(key)),
                ReadKey::Account(account) => {
                    read_set.put_account(account.clone(), self.snapshot.accounts.get(account).copied().unwrap_or(0));
                }
                ReadKey::Links(key) => {
                    let mut linked = self.snapshot.links.get(key).cloned().unwrap_or_default();
                    linked.sort_by_key(|id| self.record_meta.get(id).map(|beside| beside.row_id));
                    read_set.put_links(
                        key.clone(),
                        linked,
                        self.record_meta.get(&key.target).map_or(0, |beside| beside.link_version),
                    );
                }
                ReadKey::Execution(record, token) => {
                    read_set.put_execution(
                        *record,
                        *token,
                        self.snapshot.executions.get(&(*record, *token)).cloned().flatten(),
                    );
                }
                ReadKey::ConcurrencyQueue(key) => {
                    let depth = read_set.queue_depth(key);
                    let first =
                        self.snapshot.concurrency_queues.get(key).into_iter().flatten().take(depth).copied().collect();
                    read_set.put_queue(key.clone(), first);
                }
            }
        }
    }

    pub(super) fn find_record(&self, id: RecordId) -> Option<(RecordMeta, Arc<Record>)> {
        let (record, beside) = (self.snapshot.record(id)?, self.record_meta.get(&id)?);
        let expires_at = record.execution.as_ref().map(|execution| execution.expires_at);
        let MemoryRecordMeta { row_id: row, head_hash: head, head_seq: entry, .. } = *beside;
        let stored =
            RecordMeta { row_id: row, version: record.version, expires_at, head_hash: head, head_entry_id: entry };
        Some((stored, Arc::clone(record)))
    }

    fn count(&self, key: &CounterKey) -> u64 {
        self.snapshot.counters.get(key).copied().unwrap_or(0)
    }

    /// Returns records in the order of creation.
    pub(super) fn records(&self) -> impl Iterator<Item = (u64, &Arc<Record>)> {
        self.ids_by_row.iter().filter_map(|(row, id)| self.snapshot.record(*id).map(|record| (*row, record)))
    }

    pub(super) fn lease_candidates(&self, query: &LeaseQuery) -> Vec<LeaseCandidate> {
        let mut waiting: Vec<_> = self
            .records()
            .filter(|(_, record)| query.lifecycles.contains(&record.lifecycle.name))
            .filter_map(|(row, record)| readiness(record).map(|waiting| (row, record, waiting)))
            .filter(|(_, _, waiting)| waiting.ready_at <= query.now)
            .collect();
        waiting.sort_by_key(|(row, _, waiting)| (priority_rank(waiting.priority, waiting.ready_at), *row));
        let mut free: HashMap<ConcurrencyKey, u64> = HashMap::new();
        let mut found = Vec::new();
        for (_, record, waiting) in waiting {
            if found.len() == query.limit {
                break;
            }
            if let Some(key) = &waiting.concurrency_key {
                let free = free.entry(key.clone()).or_insert_with(|| self.free_slots(record, key));
                if *free == 0 || !self.is_first_in_queue(record, key) {
                    continue;
                }
                *free -= 1;
            }
            let lifecycle = Arc::clone(&record.lifecycle.name);
            found.push(LeaseCandidate { record: record.id, lifecycle });
        }
        found
    }

    /// Returns how many more jobs with this concurrency key can run.
    fn free_slots(&self, record: &Record, key: &ConcurrencyKey) -> u64 {
        let Some(limit) = record.lifecycle.work.as_ref().and_then(|work| work.concurrency.as_ref()?.limit) else {
            return u64::MAX;
        };
        u64::from(limit).saturating_sub(self.count(&running_counter_key(key)))
    }

    /// Returns whether the job is the oldest unfinished one of an ordered queue, or its key is not ordered.
    fn is_first_in_queue(&self, record: &Record, key: &ConcurrencyKey) -> bool {
        let ordered =
            record.lifecycle.work.as_ref().and_then(|work| work.concurrency.as_ref()).is_some_and(|key| key.ordered);
        !ordered
            || self
                .snapshot
                .concurrency_queues
                .get(key)
                .and_then(|queue| queue.first())
                .is_none_or(|first| first.1 == record.id)
    }

    pub(super) fn due_records(&self, due_by: Time, limit: usize) -> Vec<(Time, RecordId)> {
        let due = self.records().filter_map(|(row, record)| next_due(record).map(|due| (due, row, record.id)));
        let mut due: Vec<_> = due.filter(|(due, ..)| *due <= due_by).collect();
        due.sort_unstable();
        due.into_iter().take(limit).map(|(due, _, id)| (due, id)).collect()
    }

    pub(super) fn list(&self, query: &ListQuery) -> RecordPage {
        let fits = |record: &Record| {
            query.lifecycle.as_ref().is_none_or(|name| *name == record.lifecycle.name)
                && query.state.as_ref().is_none_or(|state| *state == *record.state_name())
                && query.owner.as_ref().is_none_or(|owner| *owner == record.owner)
        };
        let after = query.after.unwrap_or(0);
        let mut page = RecordPage::default();
        let mut last = None;
        let (max_scanned, mut budget) = (max_scanned_records(query.limit), PageBudget::new(query.page_limit()));
        // Measuring a record is costly, so do it only for queries with a byte limit.
        let bytes = |record: &Record| query.max_bytes.map_or(0, |_| write_fields(record).map_or(0, |text| text.len()));
        for (number, (row, record)) in self.records().filter(|(row, _)| *row > after).enumerate() {
            if number == max_scanned {
                page.next = last;
                break;
            }
            if fits(record) {
                if !budget.try_take(bytes(record)) {
                    page.next = last;
                    break;
                }
                page.records.push(Arc::clone(record));
                page.row_ids.push(row);
            }
            last = Some(row);
        }
        page
    }

    pub(super) fn counts_by_state(&self, owner: Option<&str>) -> Vec<StateCount> {
        let mut counts = std::collections::BTreeMap::<_, u64>::new();
        for (_, record) in self.records().filter(|(_, record)| owner.is_none_or(|owner| *record.owner == *owner)) {
            *counts.entry((Arc::clone(&record.lifecycle.name), Arc::clone(record.state_name()))).or_default() += 1;
        }
        counts.into_iter().map(|((lifecycle, state), count)| StateCount { lifecycle, state, count }).collect()
    }

    pub(super) fn stats(&self, now: Time) -> StoreStats {
        let mut stats = StoreStats { state_counts: self.counts_by_state(None), ..StoreStats::default() };
        let lifecycles: BTreeSet<&Arc<str>> = self.records().map(|(_, record)| &record.lifecycle.name).collect();
        for name in lifecycles {
            let query = LeaseQuery { lifecycles: vec![Arc::clone(name)], now, limit: MAX_COUNTED_READY };
            let candidates = self.lease_candidates(&query);
            if !candidates.is_empty() {
                let jobs = u64::try_from(candidates.len()).unwrap_or(u64::MAX);
                stats.ready_counts.push(ReadyCount { lifecycle: Arc::clone(name), jobs });
            }
            for candidate in candidates {
                if let Some(record) = self.snapshot.record(candidate.record)
                    && let Some(waiting) = readiness(record)
                {
                    stats.note_oldest_ready(name, record.state_name(), waiting.ready_at);
                }
            }
        }
        stats.oldest_ready.sort_unstable();
        let is_live = |record: &Record| record.live_execution().is_some() && next_due(record).is_some();
        let live = self.records().filter(|(_, record)| is_live(record)).count().min(MAX_SCANNED_TIMERS);
        let due = self.due_records(now, MAX_SCANNED_TIMERS);
        stats.live_leases = u64::try_from(live).unwrap_or(u64::MAX);
        stats.overdue_records = u64::try_from(due.len()).unwrap_or(u64::MAX);
        stats.overdue_since = due.first().map(|(at, _)| *at);
        stats
    }

    pub(super) fn linked_records(&self, query: &LinkQuery) -> LinkPage {
        let fits = |key: &LinkKey| {
            key.target == query.target
                && query.from.iter().any(|from| (&from.lifecycle, &from.field) == (&key.lifecycle, &key.field))
        };
        let sources = self.snapshot.links.iter().filter(|(key, _)| fits(key)).flat_map(|(_, sources)| sources);
        let rows = sources.filter_map(|id| Some((self.record_meta.get(id)?.row_id, *id)));
        LinkPage::from_found(rows.filter(|(row, _)| *row > query.after.unwrap_or(0)).collect(), query.limit)
    }

    pub(super) fn executions_page(
        &self,
        record: RecordId,
        after_token: FencingToken,
        page_limit: PageLimit,
    ) -> Vec<Execution> {
        let own = self.snapshot.executions.iter().filter(|((id, token), _)| *id == record && *token > after_token);
        let mut executions: Vec<Execution> = own.filter_map(|(_, execution)| execution.clone()).collect();
        executions.sort_by_key(|execution| execution.token);
        let mut budget = PageBudget::new(page_limit);
        executions.into_iter().take_while(|execution| budget.try_take(execution_text_bytes(execution))).collect()
    }
}
