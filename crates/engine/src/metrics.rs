//! What an engine has done, counted as it goes. Batches are looked through once they are saved, and added with one lock each:
//! an operation itself costs two additions.

mod batch_summary;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward_core::decide::Call;
use onceward_store::{
    BATCH_SIZE_BUCKETS, DecidedOperation, Histogram, HistogramSnapshot, LATENCY_BUCKETS_MICROS, ReadSet,
};

use crate::error::EngineError;

pub(crate) use batch_summary::BatchSummary;

/// Kinds of refusal that are counted apart. Codes are the lifecycles' own and core's, so there are never near so many.
const MAX_REFUSAL_KEYS: usize = 1_000;

/// What an engine has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Transactions that were saved.
    pub batches: u64,
    /// Operations in them, those of the engine's own too.
    pub operations: u64,
    /// Saves that found something changed, and were decided again.
    pub conflicts: u64,
    /// Denials and audited refusals that were not logged, because their owner had too many.
    pub unlogged_refusals: u64,
    /// Calls that were turned away because too much was on its way.
    pub overloaded: u64,
}

/// What became of the records of one lifecycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifecycleCounters {
    pub created: u64,
    pub leased: u64,
    /// Leases of jobs that had been leased before.
    pub redelivered: u64,
    pub started: u64,
    /// Effects that landed.
    pub committed: u64,
    /// Executions that ended as they should.
    pub done: u64,
    /// Executions that ended otherwise: by a failure that was reported or met, by a lease that ran out or whose worker was gone,
    /// given back, or because the record moved away.
    pub failed: u64,
    pub lost: u64,
    pub yielded: u64,
    pub left_state: u64,
    /// Executions that ended otherwise, and whose job waits for another.
    pub retried: u64,
    /// Reports that had been made before.
    pub repeated: u64,
    /// Creations that were answered with the record that holds their key.
    pub existing_returned: u64,
    /// Calls that were answered again, by the caller's own key.
    pub replayed: u64,
    /// Records that were set aside.
    pub stuck: u64,
}

/// All that an engine counts, at one time.
#[derive(Clone, Debug, Default)]
pub struct MetricsSnapshot {
    pub counters: EngineCounters,
    /// By lifecycle.
    pub lifecycles: BTreeMap<Arc<str>, LifecycleCounters>,
    /// Records that came to their end, by lifecycle and final state.
    pub ended_records: BTreeMap<(Arc<str>, Arc<str>), u64>,
    /// By lifecycle, empty where none is known, and code.
    pub refusals: BTreeMap<(Arc<str>, Arc<str>), u64>,
    /// Operations that came to nothing for a reason of the engine's or the store's, by its code.
    pub failures: BTreeMap<Arc<str>, u64>,
    /// From the call to its answer, in microseconds, by kind of call.
    pub latency: Vec<(&'static str, HistogramSnapshot)>,
    /// Operations in a batch.
    pub batch_sizes: Option<HistogramSnapshot>,
    /// Whole saves, in microseconds.
    pub save_times: Option<HistogramSnapshot>,
    /// The commit alone, where the store can tell.
    pub commit_times: Option<HistogramSnapshot>,
    /// Operations on their way, how many there may be, and the bytes that they keep in memory.
    pub queued_operations: usize,
    pub queue_capacity: usize,
    pub queued_bytes: usize,
    /// Calls that have found no job and wait for one.
    pub parked_pollers: usize,
    /// Records that are due and cannot be moved.
    pub blocked_records: usize,
}

/// Kinds of calls, as they are counted.
pub(crate) const CALL_KINDS: [&str; 12] =
    ["create", "fire", "lease", "start", "heartbeat", "commit", "finish", "fail", "yield", "due", "lost", "move"];

/// The place of leases.
const LEASE_KIND_INDEX: usize = 2;

/// A call's place in [`CALL_KINDS`].
pub(crate) const fn call_kind_index(call: &Call) -> usize {
    match call {
        Call::Create(_) => 0,
        Call::Fire { .. } => 1,
        Call::Lease { .. } => LEASE_KIND_INDEX,
        Call::Start { .. } => 3,
        Call::Heartbeat { .. } => 4,
        Call::Commit { .. } => 5,
        Call::Finish { .. } => 6,
        Call::Fail { .. } => 7,
        Call::Yield { .. } => 8,
        Call::FireDue { .. } => 9,
        Call::LoseLease { .. } => 10,
        Call::MigrateVersion(_) => 11,
    }
}

#[derive(Debug)]
pub(crate) struct EngineMetrics {
    batches: AtomicU64,
    operations: AtomicU64,
    conflicts: AtomicU64,
    unlogged_refusals: AtomicU64,
    latency: [Histogram; CALL_KINDS.len()],
    batch_sizes: Histogram,
    save_times: Histogram,
    totals: Mutex<MetricTotals>,
}

#[derive(Debug, Default)]
struct MetricTotals {
    by_lifecycle: BTreeMap<Arc<str>, LifecycleCounters>,
    ended_records: BTreeMap<(Arc<str>, Arc<str>), u64>,
    refusals: BTreeMap<(Arc<str>, Arc<str>), u64>,
    failures: BTreeMap<Arc<str>, u64>,
}

impl Default for EngineMetrics {
    fn default() -> Self {
        Self {
            batches: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            unlogged_refusals: AtomicU64::new(0),
            latency: std::array::from_fn(|_| Histogram::new(LATENCY_BUCKETS_MICROS)),
            batch_sizes: Histogram::new(BATCH_SIZE_BUCKETS),
            save_times: Histogram::new(LATENCY_BUCKETS_MICROS),
            totals: Mutex::default(),
        }
    }
}

impl EngineMetrics {
    /// A batch was saved, which took so long.
    pub(crate) fn record_batch(&self, operations: usize, elapsed: Duration) {
        let operations = u64::try_from(operations).unwrap_or(u64::MAX);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.operations.fetch_add(operations, Ordering::Relaxed);
        self.batch_sizes.record(operations);
        self.save_times.record_duration(elapsed);
    }

    /// What was decided in a batch that stands.
    pub(crate) fn record_decisions(&self, writes: &[DecidedOperation], read_set: &ReadSet) {
        let summary = BatchSummary::from_writes(writes, read_set);
        summary.log();
        let mut totals = self.lock_totals();
        for (lifecycle, counters) in &summary.lifecycles {
            totals.lifecycle_counters(lifecycle).add(counters);
        }
        for ((lifecycle, state), count) in &summary.ended_records {
            *totals.ended_records.entry((Arc::clone(lifecycle), Arc::clone(state))).or_default() += count;
        }
        for (lifecycle, code) in &summary.refusals {
            totals.record_refusal(*lifecycle, code);
        }
    }

    /// Refused before anything was decided.
    pub(crate) fn record_refusal(&self, lifecycle: Option<&Arc<str>>, code: &Arc<str>) {
        self.lock_totals().record_refusal(lifecycle, code);
    }

    /// A call was answered, so long after it came.
    pub(crate) fn record_latency(&self, call: &Call, elapsed: Duration) {
        self.latency[call_kind_index(call)].record_duration(elapsed);
    }

    /// A job was leased in the batch that made it, which took so long.
    pub(crate) fn record_sync_match(&self, elapsed: Duration) {
        self.latency[LEASE_KIND_INDEX].record_duration(elapsed);
    }

    /// Calls of a lifecycle were answered again.
    pub(crate) fn record_replays(&self, lifecycle: &Arc<str>, times: u64) {
        self.lock_totals().lifecycle_counters(lifecycle).replayed += times;
    }

    /// Operations came to nothing, by no word of a lifecycle.
    pub(crate) fn record_failures(&self, error: &EngineError, operations: usize) {
        let operations = u64::try_from(operations).unwrap_or(u64::MAX);
        *self.lock_totals().failures.entry(error.code().into()).or_default() += operations;
    }

    pub(crate) fn record_conflict(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn record_unlogged_refusals(&self, refusals: u64) {
        self.unlogged_refusals.fetch_add(refusals, Ordering::Relaxed);
    }

    pub(crate) fn counters(&self) -> EngineCounters {
        EngineCounters {
            batches: self.batches.load(Ordering::Relaxed),
            operations: self.operations.load(Ordering::Relaxed),
            conflicts: self.conflicts.load(Ordering::Relaxed),
            unlogged_refusals: self.unlogged_refusals.load(Ordering::Relaxed),
            overloaded: 0,
        }
    }

    pub(crate) fn snapshot(&self) -> MetricsSnapshot {
        let MetricTotals { by_lifecycle, ended_records: ended, refusals: refused, failures: failed } =
            &*self.lock_totals();
        MetricsSnapshot {
            counters: self.counters(),
            lifecycles: by_lifecycle.clone(),
            ended_records: ended.clone(),
            refusals: refused.clone(),
            failures: failed.clone(),
            latency: CALL_KINDS.into_iter().zip(&self.latency).map(|(kind, times)| (kind, times.snapshot())).collect(),
            batch_sizes: Some(self.batch_sizes.snapshot()),
            save_times: Some(self.save_times.snapshot()),
            ..MetricsSnapshot::default()
        }
    }

    fn lock_totals(&self) -> MutexGuard<'_, MetricTotals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MetricTotals {
    fn lifecycle_counters(&mut self, lifecycle: &Arc<str>) -> &mut LifecycleCounters {
        self.by_lifecycle.entry(Arc::clone(lifecycle)).or_default()
    }

    fn record_refusal(&mut self, lifecycle: Option<&Arc<str>>, code: &Arc<str>) {
        let key = (lifecycle.map_or_else(Arc::default, Arc::clone), Arc::clone(code));
        let is_counted = self.refusals.len() < MAX_REFUSAL_KEYS || self.refusals.contains_key(&key);
        let key = if is_counted { key } else { (Arc::default(), "other".into()) };
        *self.refusals.entry(key).or_default() += 1;
    }
}
