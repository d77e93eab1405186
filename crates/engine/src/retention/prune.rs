//! Pruning: deletes records that ended before the retention cutoff, with all their log entries, in bounded
//! transactions.
//!
//! Records that must be deleted together form a reference group: a record that references another goes with it, and so
//! does a record whose lifecycle counts or reaches the records that reference it. A group is deleted as a whole, when
//! all of its records are past their cutoff.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::{link_changes, next_due};
use onceward_core::model::{ClockSource, LinkSource};
use onceward_core::record::Record;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::log::PrunedCount;
use onceward_store::{
    Catalog, ExpiredKeysQuery, PrunableQuery, PruneBlocked, PrunePlan, PruneRequest, PruneResult, PrunedRecord,
    RecordWithReferrers, Store, StoreError,
};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::error::EngineError;
use crate::objects::collect_orphans;
use crate::retention::RetentionPolicy;
use crate::shared::Shared;
use crate::verify::ProgressObserver;
use crate::worker_registry;

/// Records in one scanned page.
pub(super) const SCAN_PAGE_RECORDS: usize = 1_000;

/// Keeps transactions short. A single reference group may exceed it.
const MAX_TRANSACTION_ENTRIES: u64 = 20_000;

/// A larger group is kept: its transaction would be too long.
const MAX_GROUP_ENTRIES: u64 = 100_000;

/// Pruning by a wrong time cannot be undone. So the engine prunes only if the clock has run without a jump for this
/// long, and an operator could notice a wrong one.
const STABLE_CLOCK_TIME: Duration = Duration::from_hours(1);

/// Damaged records that the report names.
const MAX_REPORTED_DAMAGED: usize = 100;

/// Options of a prune pass.
#[derive(Clone, Debug, Default)]
pub struct PruneOptions {
    pub retention: RetentionPolicy,
    /// Stops after this many records, except that groups stay whole.
    pub max_records: Option<u64>,
    /// Reports what would be deleted, and deletes nothing.
    pub dry_run: bool,
}

/// The result of a prune pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneReport {
    pub records: u64,
    pub entries: u64,
    /// Deleted records by lifecycle, owner and final state.
    pub shares: Vec<PrunedCount>,
    /// Deleted idempotency keys.
    pub idempotency_keys: u64,
    /// Records past their cutoff that stay because another record of their group does.
    pub held_back: u64,
    /// Records that stay because they or their referrers changed, or another process pruned. The next pass retries
    /// them.
    pub changed: u64,
    /// Records whose log does not match their stored state. They stay as evidence.
    pub damaged: Vec<PruneBlocked>,
    /// Seq of the last checkpoint.
    pub checkpoint_seq: Option<u64>,
}

/// Prunes periodically, in short transactions.
pub(crate) async fn run<S: Store>(shared: Arc<Shared<S>>) {
    let options = PruneOptions { retention: shared.config.retention.clone(), ..PruneOptions::default() };
    let interval = options.retention.prune_interval.max(Duration::from_millis(1));
    let mut delay = interval.min(STABLE_CLOCK_TIME);
    while !shared.queue.is_closed() {
        sleep(delay).await;
        delay = interval;
        let clock = shared.store.clock_status();
        if clock.hold.is_some() || clock.since_jump.is_some_and(|since| since < STABLE_CLOCK_TIME) {
            continue;
        }
        // If another process ran a pass recently, this one skips its own; but each process collects garbage in its own
        // object storage.
        if !claim_turn(&shared.store, interval).await {
            let _ = collect_garbage(&shared).await;
            continue;
        }
        // On an error it waits for the next interval: pruning is not urgent.
        match prune(&shared.store, &options).await {
            Ok(pruned) => {
                report_pruned(&shared, &pruned);
                if let Err(error) = collect_garbage(&shared).await {
                    warn!(code = error.code(), "garbage collection in object storage failed");
                }
            }
            Err(error) => warn!(code = error.code(), "prune failed"),
        }
    }
}

/// Slightly less than the interval: otherwise the process that ran the last pass would come a moment too early for the
/// next.
async fn claim_turn<S: Store>(store: &S, interval: Duration) -> bool {
    store.claim_prune_turn(interval * 9 / 10).await.unwrap_or(true)
}

/// Logs the report, and announces the checkpoint to log streams.
pub(crate) fn report_pruned<S: Store>(shared: &Shared<S>, report: &PruneReport) {
    let PruneReport { records, entries, idempotency_keys, held_back, .. } = report;
    if report.checkpoint_seq.is_some() || *idempotency_keys > 0 {
        info!(records, entries, idempotency_keys, held_back, "prune finished");
    }
    if !report.damaged.is_empty() {
        warn!(records = report.damaged.len(), "prune skipped damaged records; run onceward verify");
    }
    if let Some(checkpoint_seq) = report.checkpoint_seq {
        shared.notifier.advance_log(checkpoint_seq);
    }
}

/// Deletes objects that no record references.
pub(crate) async fn collect_garbage<S: Store>(shared: &Shared<S>) -> Result<(), EngineError> {
    if let Some(objects) = &shared.config.object_storage {
        collect_orphans(&shared.store, objects, shared.config.orphan_ttl).await?;
    }
    Ok(())
}

/// Prunes a store by its own clock. An engine may be writing to it.
pub async fn prune<S: Store>(store: &S, options: &PruneOptions) -> Result<PruneReport, StoreError> {
    run_pass(store, options, None).await
}

/// Like [`prune`], but reports progress.
pub async fn prune_with_progress<S: Store>(
    store: &S,
    options: &PruneOptions,
    observer: &mut dyn ProgressObserver,
) -> Result<PruneReport, StoreError> {
    let counts = store.counts_by_version().await?;
    let total = counts.iter().map(|count| count.count).sum();
    run_pass(store, options, Some(ProgressTracker { observer, total })).await
}

struct ProgressTracker<'a> {
    observer: &'a mut dyn ProgressObserver,
    /// Number of records at the start.
    total: u64,
}

async fn run_pass<S: Store>(
    store: &S,
    options: &PruneOptions,
    progress: Option<ProgressTracker<'_>>,
) -> Result<PruneReport, StoreError> {
    let now = store.now().await?;
    if !options.dry_run && store.clock_status().hold.is_some() {
        return Err(StoreError::ClockHeld);
    }
    let retention =
        RetentionPolicy { max_batch_records: options.retention.max_batch_records.max(1), ..options.retention.clone() };
    let catalog = store.catalog().await?;
    let mut pass = PrunePass {
        store,
        now,
        retention: &retention,
        dry_run: options.dry_run,
        declared_links: declared_links(&catalog),
        lookup_targets: lookup_targets(&catalog),
        catalog,
        loaded: HashMap::new(),
        decided: HashSet::new(),
        damaged: HashSet::new(),
        selected: Vec::new(),
        shares: BTreeMap::new(),
        report: PruneReport::default(),
        progress,
    };
    if let Some(cutoff) = retention.latest_cutoff(now) {
        pass.prune_records(cutoff, options.max_records.unwrap_or(u64::MAX)).await?;
    }
    if let (Some(cutoff), false) = (retention.idempotency_keys_cutoff(now), options.dry_run) {
        pass.prune_idempotency_keys(cutoff).await?;
        super::housekeeping::delete_answered_calls(store, cutoff).await?;
    }
    if !options.dry_run {
        super::housekeeping::delete_expired_counters(store, &pass.catalog, retention.idempotency_keys_cutoff(now))
            .await?;
    }
    if let (Some(cutoff), false) = (now.checked_sub(worker_registry::WORKER_TTL), options.dry_run) {
        store.delete_stale_workers(cutoff, worker_registry::MAX_WORKERS).await?;
    }
    Ok(pass.into_report())
}

/// Returns the links that a lifecycle declares, in any version: its transitions count or reach the linked records.
fn declared_links(catalog: &Catalog) -> HashSet<LinkSource> {
    let lifecycles = catalog.lifecycles();
    lifecycles.values().flat_map(|lifecycle| &lifecycle.links).flat_map(|link| link.sources.iter().cloned()).collect()
}

/// Returns the lifecycles whose records are looked up by key, without a reference.
fn lookup_targets(catalog: &Catalog) -> HashSet<Arc<str>> {
    let lifecycles = catalog.lifecycles();
    lifecycles.values().flat_map(|lifecycle| &lifecycle.lookups).map(|lookup| Arc::clone(&lookup.lifecycle)).collect()
}

/// Lifecycle, owner and state.
type ShareGroup = (Arc<str>, Arc<str>, Arc<str>);

/// One pass over the records of a store.
struct PrunePass<'a, 'w, S> {
    store: &'a S,
    now: Time,
    retention: &'a RetentionPolicy,
    dry_run: bool,
    declared_links: HashSet<LinkSource>,
    lookup_targets: HashSet<Arc<str>>,
    catalog: Arc<Catalog>,
    /// Records loaded since the last transaction.
    loaded: HashMap<RecordId, RecordWithReferrers>,
    /// Records of this page that are decided.
    decided: HashSet<RecordId>,
    damaged: HashSet<RecordId>,
    /// Records of the next transaction.
    selected: Vec<RecordWithReferrers>,
    shares: BTreeMap<ShareGroup, u64>,
    report: PruneReport,
    progress: Option<ProgressTracker<'w>>,
}

impl<S: Store> PrunePass<'_, '_, S> {
    async fn prune_records(&mut self, cutoff: Time, max_records: u64) -> Result<(), StoreError> {
        let (mut after, mut scanned) = (0, 0);
        loop {
            let prunable_page =
                self.store.prunable(&PrunableQuery { after_row: after, cutoff, limit: SCAN_PAGE_RECORDS }).await?;
            self.decided.clear();
            self.loaded.clear();
            for (index, id) in prunable_page.records.iter().enumerate() {
                if self.decided.contains(id) {
                    continue;
                }
                if self.report.records + record_count(&self.selected) >= max_records {
                    return self.flush().await;
                }
                if self.loaded.is_empty() {
                    self.load_records(&prunable_page.records[index..]).await?;
                }
                self.select_group(*id).await?;
                self.report_progress(scanned + index);
                let entries: u64 = self.selected.iter().map(|candidate| candidate.record.version).sum();
                if self.selected.len() >= self.retention.max_batch_records || entries >= MAX_TRANSACTION_ENTRIES {
                    self.flush().await?;
                }
            }
            self.flush().await?;
            scanned += SCAN_PAGE_RECORDS;
            self.report_progress(scanned);
            match prunable_page.next {
                Some(next) => after = next,
                None => return Ok(()),
            }
        }
    }

    fn report_progress(&mut self, scanned: usize) {
        if let Some(ProgressTracker { observer: watch, total: all }) = &mut self.progress {
            watch.on_progress("records", u64::try_from(scanned).unwrap_or(u64::MAX).min(*all), *all);
        }
    }

    /// Selects a record with its reference group, or keeps it.
    async fn select_group(&mut self, id: RecordId) -> Result<(), StoreError> {
        match self.reference_group(id).await? {
            Some(group) => {
                self.decided.extend(group.iter().map(|kin| kin.record.id));
                self.selected.extend(group);
            }
            // The report lists the record as damaged.
            None if self.damaged.contains(&id) => {}
            // The record is not past the cutoff of its own lifecycle.
            None if self.loaded.get(&id).is_some_and(|kin| !self.is_past_cutoff(kin)) => {}
            None => self.report.held_back += 1,
        }
        Ok(())
    }

    /// Loads records that are not loaded yet.
    async fn load_records(&mut self, record_ids: &[RecordId]) -> Result<(), StoreError> {
        let missing: Vec<RecordId> = record_ids.iter().filter(|id| !self.loaded.contains_key(id)).copied().collect();
        if !missing.is_empty() {
            let found = self.store.with_referrers(&missing).await?;
            self.loaded.extend(found.into_iter().map(|kin| (kin.record.id, kin)));
        }
        Ok(())
    }

    /// Returns the reference group of a record; `None` if one of its records cannot be pruned, or the group is too
    /// large.
    async fn reference_group(&mut self, first: RecordId) -> Result<Option<Vec<RecordWithReferrers>>, StoreError> {
        let mut group: Vec<RecordWithReferrers> = Vec::new();
        // Records selected for the same transaction need no check.
        let mut group_ids: BTreeSet<RecordId> = self.selected.iter().map(|member| member.record.id).collect();
        let before = group_ids.len();
        group_ids.insert(first);
        let mut next = vec![first];
        let mut entries = 0;
        while !next.is_empty() {
            self.load_records(&next).await?;
            let mut found = Vec::new();
            for id in std::mem::take(&mut next) {
                // A record that was deleted in the meantime needs nothing.
                let Some(kin) = self.loaded.get(&id) else { continue };
                if !self.is_prunable(kin) {
                    return Ok(None);
                }
                entries += kin.record.version;
                found.extend(kin.referrers.iter().copied());
                found.extend(self.link_targets(kin));
                group.push(kin.clone());
            }
            next.extend(found.into_iter().filter(|id| group_ids.insert(*id)));
            if group_ids.len() - before > self.retention.max_batch_records || entries > MAX_GROUP_ENTRIES {
                return Ok(None);
            }
        }
        Ok(Some(group))
    }

    /// Returns the records whose lifecycles may count or reach this one.
    fn link_targets(&self, kin: &RecordWithReferrers) -> Vec<RecordId> {
        let links = link_changes(None, &kin.record).into_iter().map(|link| link.key);
        let source = |lifecycle: &Arc<str>, field: &Arc<str>| LinkSource {
            lifecycle: Arc::clone(lifecycle),
            field: Arc::clone(field),
        };
        links
            .filter(|key| self.declared_links.contains(&source(&key.lifecycle, &key.field)))
            .map(|key| key.target)
            .collect()
    }

    /// Returns whether the record is past the cutoff of its lifecycle, and its state has no `keep`.
    fn is_past_cutoff(&self, kin: &RecordWithReferrers) -> bool {
        let record = &*kin.record;
        let cutoff = self.retention.cutoff(&record.lifecycle, self.now).filter(|_| !self.catalog.is_kept(record));
        cutoff.is_some_and(|before| record.finished_at.is_some_and(|at| at <= before) && record.updated_at <= before)
    }

    /// Returns whether the record is past its cutoff and can no longer change.
    fn is_prunable(&self, kin: &RecordWithReferrers) -> bool {
        let record = &*kin.record;
        self.is_past_cutoff(kin)
            && record.is_final()
            && !self.damaged.contains(&record.id)
            && record.hold == 0
            && record.stuck_reason.is_none()
            && record.live_execution().is_none()
            && next_due(record).is_none()
            // A record that follows a signed log is folded from it, and the log may change its history.
            && record.lifecycle.clock == ClockSource::Engine
            && !self.lookup_targets.contains(&record.lifecycle.name)
    }

    /// Deletes the selected records. A damaged record stays with its group; on a conflict all stay.
    async fn flush(&mut self) -> Result<(), StoreError> {
        let started_at = Instant::now();
        while !self.selected.is_empty() {
            let mut pruned_records = Vec::new();
            for kin in &self.selected {
                let entries = self.store.history(kin.record.id, 0, usize::MAX >> 1).await?;
                let RecordWithReferrers { meta: stored, record, link_version: links, referrers: sources } = kin.clone();
                pruned_records.push(PrunedRecord {
                    meta: stored,
                    record,
                    link_version: links,
                    referrers: sources,
                    entries,
                });
            }
            let finished_until =
                self.selected.iter().filter_map(|kin| kin.record.finished_at).max().unwrap_or(self.now);
            let plan = match PrunePlan::build(pruned_records, finished_until, &self.catalog) {
                Ok(plan) => plan,
                Err(blocked) => {
                    self.keep_damaged(blocked).await?;
                    continue;
                }
            };
            let selected = std::mem::take(&mut self.selected);
            if self.dry_run {
                for kin in selected {
                    self.count_pruned(&kin.record);
                }
                break;
            }
            match self.store.request(&Arc::new(PruneRequest { plan, now: self.store.now().await? })).await? {
                PruneResult::Saved(checkpoint_seq) => {
                    self.report.checkpoint_seq = Some(checkpoint_seq);
                    for kin in selected {
                        self.count_pruned(&kin.record);
                    }
                }
                PruneResult::Conflict => self.report.changed += record_count(&selected),
            }
            // The transaction changed the loaded records.
            self.loaded.clear();
            // Sleeps as long as the transaction took: callers have priority.
            sleep(started_at.elapsed()).await;
        }
        Ok(())
    }

    /// Keeps a damaged record, and selects the other records again without it.
    async fn keep_damaged(&mut self, blocked: PruneBlocked) -> Result<(), StoreError> {
        self.damaged.insert(blocked.record);
        if self.report.damaged.len() < MAX_REPORTED_DAMAGED {
            self.report.damaged.push(blocked);
        }
        for kin in std::mem::take(&mut self.selected) {
            if !self.selected.iter().any(|chosen| chosen.record.id == kin.record.id) {
                self.select_group(kin.record.id).await?;
            }
        }
        Ok(())
    }

    fn count_pruned(&mut self, record: &Record) {
        self.report.records += 1;
        self.report.entries += record.version;
        let share = (Arc::clone(&record.lifecycle.name), Arc::clone(&record.owner), Arc::clone(record.state_name()));
        *self.shares.entry(share).or_default() += 1;
    }

    async fn prune_idempotency_keys(&mut self, cutoff: Time) -> Result<(), StoreError> {
        let mut query = ExpiredKeysQuery { after: None, cutoff, limit: SCAN_PAGE_RECORDS };
        loop {
            let started_at = Instant::now();
            let page = self.store.delete_expired_keys(&query).await?;
            self.report.idempotency_keys += page.deleted;
            if page.next.is_none() {
                return Ok(());
            }
            query.after = page.next;
            sleep(started_at.elapsed()).await;
        }
    }

    fn into_report(mut self) -> PruneReport {
        let share = |((lifecycle, owner, state), records)| PrunedCount { lifecycle, owner, state, records };
        self.report.shares = self.shares.into_iter().map(share).collect();
        self.report
    }
}

fn record_count(records: &[RecordWithReferrers]) -> u64 {
    u64::try_from(records.len()).unwrap_or(u64::MAX)
}
