//! Metrics of the engine. Each saved batch is summarized and added under one lock; an operation costs two atomic
//! additions.

mod batch_summary;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward_core::decide::Call;
use onceward_store::{
    BATCH_SIZE_BUCKETS, ClockStatus, DecidedOperation, Histogram, HistogramSnapshot, LATENCY_BUCKETS_MICROS, ReadSet,
};

use crate::error::EngineError;

pub(crate) use batch_summary::BatchSummary;

/// Bounds memory. Codes come from lifecycles and core, so there are far fewer.
const MAX_REFUSAL_KEYS: usize = 1_000;

/// Counters since the engine was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Saved transactions.
    pub batches: u64,
    /// Operations in them, including the engine's own.
    pub operations: u64,
    /// Saves that found a changed read and were decided again.
    pub conflicts: u64,
    /// Denials and audited refusals that were not logged because of the owner's limit.
    pub unlogged_refusals: u64,
    /// Calls rejected as overloaded.
    pub overloaded: u64,
    /// Panics while a batch was decided or saved.
    pub panics: u64,
}

/// Counters of one lifecycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifecycleCounters {
    pub created: u64,
    pub leased: u64,
    /// Leases of jobs that were leased before.
    pub redelivered: u64,
    pub started: u64,
    /// Committed effects.
    pub committed: u64,
    /// Executions that finished normally.
    pub done: u64,
    /// Executions that were aborted: failed, lost (the lease expired or the worker was gone), yielded, or left because
    /// the record changed state.
    pub failed: u64,
    pub lost: u64,
    pub yielded: u64,
    pub left_state: u64,
    /// How often a job became leasable again after an aborted execution.
    pub retried: u64,
    /// Reports that were made before.
    pub repeated: u64,
    /// Create calls that returned an existing record with the same unique key.
    pub existing_returned: u64,
    /// Calls that got a stored reply by idempotency key.
    pub replayed: u64,
    /// Records that became stuck.
    pub stuck: u64,
}

/// All metrics of an engine at one time.
#[derive(Clone, Debug, Default)]
pub struct MetricsSnapshot {
    pub counters: EngineCounters,
    pub lifecycles: BTreeMap<Arc<str>, LifecycleCounters>,
    /// Ended records, by lifecycle and final state.
    pub ended_records: BTreeMap<(Arc<str>, Arc<str>), u64>,
    /// By lifecycle (empty if unknown) and code.
    pub refusals: BTreeMap<(Arc<str>, Arc<str>), u64>,
    /// Operations that failed with an error of the engine or the store, by code.
    pub failures: BTreeMap<Arc<str>, u64>,
    /// Latency from call to reply in microseconds, by kind of call.
    pub latency: Vec<(&'static str, HistogramSnapshot)>,
    /// Operations per batch.
    pub batch_sizes: Option<HistogramSnapshot>,
    /// Duration of saves in microseconds.
    pub save_times: Option<HistogramSnapshot>,
    /// Duration of commits, if the store measures it.
    pub commit_times: Option<HistogramSnapshot>,
    /// Queued operations, the queue's capacity, and the bytes of queued operations.
    pub queued_operations: usize,
    pub queue_capacity: usize,
    pub queued_bytes: usize,
    /// Lease calls that wait for a job.
    pub parked_pollers: usize,
    /// Due records that cannot be fired.
    pub blocked_records: usize,
    pub clock_status: ClockStatus,
}

/// Labels of the kinds of calls.
pub(crate) const CALL_KINDS: [&str; 12] =
    ["create", "fire", "lease", "start", "heartbeat", "commit", "finish", "fail", "yield", "due", "lost", "move"];

/// Index of `lease` in [`CALL_KINDS`].
const LEASE_KIND_INDEX: usize = 2;

/// Returns the index of a call in [`CALL_KINDS`].
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
    panics: AtomicU64,
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
            panics: AtomicU64::new(0),
            latency: std::array::from_fn(|_| Histogram::new(LATENCY_BUCKETS_MICROS)),
            batch_sizes: Histogram::new(BATCH_SIZE_BUCKETS),
            save_times: Histogram::new(LATENCY_BUCKETS_MICROS),
            totals: Mutex::default(),
        }
    }
}

impl EngineMetrics {
    /// Records a saved batch.
    pub(crate) fn record_batch(&self, operations: usize, elapsed: Duration) {
        let operations = u64::try_from(operations).unwrap_or(u64::MAX);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.operations.fetch_add(operations, Ordering::Relaxed);
        self.batch_sizes.record(operations);
        self.save_times.record_duration(elapsed);
    }

    /// Records the decisions of a saved batch.
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

    /// Records a refusal outside of a batch.
    pub(crate) fn record_refusal(&self, lifecycle: Option<&Arc<str>>, code: &Arc<str>) {
        self.lock_totals().record_refusal(lifecycle, code);
    }

    /// Records the latency of a call.
    pub(crate) fn record_latency(&self, call: &Call, elapsed: Duration) {
        self.latency[call_kind_index(call)].record_duration(elapsed);
    }

    /// Records the latency of a sync match.
    pub(crate) fn record_sync_match(&self, elapsed: Duration) {
        self.latency[LEASE_KIND_INDEX].record_duration(elapsed);
    }

    /// Records replayed replies of a lifecycle.
    pub(crate) fn record_replays(&self, lifecycle: &Arc<str>, times: u64) {
        self.lock_totals().lifecycle_counters(lifecycle).replayed += times;
    }

    /// Records operations that failed without a refusal.
    pub(crate) fn record_failures(&self, error: &EngineError, operations: usize) {
        let operations = u64::try_from(operations).unwrap_or(u64::MAX);
        *self.lock_totals().failures.entry(error.code().into()).or_default() += operations;
    }

    pub(crate) fn record_conflict(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn record_panic(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
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
            panics: self.panics.load(Ordering::Relaxed),
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
