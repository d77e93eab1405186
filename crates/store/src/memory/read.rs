//! Looking things up, by looking through everything.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use onceward_core::decide::{CountKey, Key, LinkKey, QueueKey, next_due, readiness};
use onceward_core::record::{Execution, Record, Token};
use onceward_core::time::Time;
use onceward_core::value::RecordId;

use super::kept::{Beside, Kept};
use crate::base::{Base, Stored};
use crate::columns::{weight, write_fields};
use crate::glance::{COUNTED, Glance, Ready, TIMERS};
use crate::query::{Candidate, Filling, LeaseQuery, ListQuery, Most, Page, StateCount, looked_at, rank, running};
use crate::relation::{LinkPage, LinkQuery};

impl Kept {
    pub(super) fn load(&self, base: &mut Base, keys: &[Key]) {
        for key in keys {
            if !base.lacks(key) {
                continue;
            }
            match key {
                Key::Record(id) => base.put_record(*id, self.stored(*id)),
                Key::Unique(key) => base.put_unique(key.clone(), self.world.uniques.get(key).copied().flatten()),
                Key::Count(key) => base.put_count(key.clone(), self.count(key)),
                Key::Account(account) => {
                    base.put_account(account.clone(), self.world.accounts.get(account).copied().unwrap_or(0));
                }
                Key::Links(key) => {
                    let mut linked = self.world.links.get(key).cloned().unwrap_or_default();
                    linked.sort_by_key(|id| self.beside.get(id).map(|beside| beside.row));
                    base.put_links(key.clone(), linked, self.beside.get(&key.target).map_or(0, |beside| beside.links));
                }
                Key::Execution(record, token) => {
                    base.put_execution(
                        *record,
                        *token,
                        self.world.executions.get(&(*record, *token)).cloned().flatten(),
                    );
                }
                Key::Queue(key) => {
                    let depth = base.queue_depth(key);
                    let first = self.world.queues.get(key).into_iter().flatten().take(depth).copied().collect();
                    base.put_queue(key.clone(), first);
                }
            }
        }
    }

    pub(super) fn stored(&self, id: RecordId) -> Option<(Stored, Arc<Record>)> {
        let (record, beside) = (self.world.record(id)?, self.beside.get(&id)?);
        let expires_at = record.execution.as_ref().map(|execution| execution.expires_at);
        let Beside { row, head, entry, .. } = *beside;
        let stored = Stored { row, version: record.version, expires_at, head, entry };
        Some((stored, Arc::clone(record)))
    }

    fn count(&self, key: &CountKey) -> u64 {
        self.world.counts.get(key).copied().unwrap_or(0)
    }

    /// In the order of creation.
    pub(super) fn records(&self) -> impl Iterator<Item = (u64, &Arc<Record>)> {
        self.rows.iter().filter_map(|(row, id)| self.world.record(*id).map(|record| (*row, record)))
    }

    pub(super) fn leasable(&self, query: &LeaseQuery) -> Vec<Candidate> {
        let mut waiting: Vec<_> = self
            .records()
            .filter(|(_, record)| query.lifecycles.contains(&record.lifecycle.name))
            .filter_map(|(row, record)| readiness(record).map(|waiting| (row, record, waiting)))
            .filter(|(_, _, waiting)| waiting.from <= query.now)
            .collect();
        waiting.sort_by_key(|(row, _, waiting)| (rank(waiting.priority, waiting.from), *row));
        let mut free: HashMap<QueueKey, u64> = HashMap::new();
        let mut found = Vec::new();
        for (_, record, waiting) in waiting {
            if found.len() == query.limit {
                break;
            }
            if let Some(key) = &waiting.key {
                let free = free.entry(key.clone()).or_insert_with(|| self.free(record, key));
                if *free == 0 || !self.is_next(record, key) {
                    continue;
                }
                *free -= 1;
            }
            let lifecycle = Arc::clone(&record.lifecycle.name);
            found.push(Candidate { record: record.id, lifecycle });
        }
        found
    }

    /// How many more jobs of a key may run.
    fn free(&self, record: &Record, key: &QueueKey) -> u64 {
        let Some(limit) = record.lifecycle.work.as_ref().and_then(|work| work.key.as_ref()?.limit) else {
            return u64::MAX;
        };
        u64::from(limit).saturating_sub(self.count(&running(key)))
    }

    /// Where jobs of a key go in order: whether none before it is unfinished.
    fn is_next(&self, record: &Record, key: &QueueKey) -> bool {
        let ordered = record.lifecycle.work.as_ref().and_then(|work| work.key.as_ref()).is_some_and(|key| key.ordered);
        !ordered || self.world.queues.get(key).and_then(|queue| queue.first()).is_none_or(|first| first.1 == record.id)
    }

    pub(super) fn due(&self, until: Time, limit: usize) -> Vec<(Time, RecordId)> {
        let due = self.records().filter_map(|(row, record)| next_due(record).map(|due| (due, row, record.id)));
        let mut due: Vec<_> = due.filter(|(due, ..)| *due <= until).collect();
        due.sort_unstable();
        due.into_iter().take(limit).map(|(due, _, id)| (due, id)).collect()
    }

    pub(super) fn list(&self, query: &ListQuery) -> Page {
        let fits = |record: &Record| {
            query.lifecycle.as_ref().is_none_or(|name| *name == record.lifecycle.name)
                && query.state.as_ref().is_none_or(|state| *state == *record.state_name())
                && query.owner.as_ref().is_none_or(|owner| *owner == record.owner)
        };
        let after = query.after.unwrap_or(0);
        let mut page = Page::default();
        let mut last = None;
        let (looked_at, mut filling) = (looked_at(query.limit), Filling::new(query.most()));
        // Everything is in memory here anyway: only who asks for it has them counted.
        let bytes = |record: &Record| query.bytes.map_or(0, |_| write_fields(record).map_or(0, |text| text.len()));
        for (number, (row, record)) in self.records().filter(|(row, _)| *row > after).enumerate() {
            if number == looked_at {
                page.next = last;
                break;
            }
            if fits(record) {
                if !filling.takes(bytes(record)) {
                    page.next = last;
                    break;
                }
                page.records.push(Arc::clone(record));
                page.places.push(row);
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

    pub(super) fn glance(&self, now: Time) -> Glance {
        let mut glance = Glance { counts: self.counts_by_state(None), ..Glance::default() };
        let lifecycles: BTreeSet<&Arc<str>> = self.records().map(|(_, record)| &record.lifecycle.name).collect();
        for name in lifecycles {
            let query = LeaseQuery { lifecycles: vec![Arc::clone(name)], now, limit: COUNTED };
            let line = self.leasable(&query);
            if !line.is_empty() {
                let jobs = u64::try_from(line.len()).unwrap_or(u64::MAX);
                glance.ready.push(Ready { lifecycle: Arc::clone(name), jobs });
            }
            for candidate in line {
                if let Some(record) = self.world.record(candidate.record)
                    && let Some(waiting) = readiness(record)
                {
                    glance.waits(name, record.state_name(), waiting.from);
                }
            }
        }
        glance.oldest.sort_unstable();
        let is_live = |record: &Record| record.live_execution().is_some() && next_due(record).is_some();
        let live = self.records().filter(|(_, record)| is_live(record)).count().min(TIMERS);
        let due = self.due(now, TIMERS);
        glance.leases = u64::try_from(live).unwrap_or(u64::MAX);
        glance.overdue = u64::try_from(due.len()).unwrap_or(u64::MAX);
        glance.overdue_since = due.first().map(|(at, _)| *at);
        glance
    }

    pub(super) fn linked(&self, query: &LinkQuery) -> LinkPage {
        let fits = |key: &LinkKey| {
            key.target == query.target
                && query.from.iter().any(|from| (&from.lifecycle, &from.field) == (&key.lifecycle, &key.field))
        };
        let sources = self.world.links.iter().filter(|(key, _)| fits(key)).flat_map(|(_, sources)| sources);
        let rows = sources.filter_map(|id| Some((self.beside.get(id)?.row, *id)));
        LinkPage::of(rows.filter(|(row, _)| *row > query.after.unwrap_or(0)).collect(), query.limit)
    }

    pub(super) fn attempts(&self, record: RecordId, after: Token, most: Most) -> Vec<Execution> {
        let own = self.world.executions.iter().filter(|((id, token), _)| *id == record && *token > after);
        let mut executions: Vec<Execution> = own.filter_map(|(_, execution)| execution.clone()).collect();
        executions.sort_by_key(|execution| execution.token);
        let mut filling = Filling::new(most);
        executions.into_iter().take_while(|execution| filling.takes(weight(execution))).collect()
    }
}
