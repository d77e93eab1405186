//! Registry of workers. Every lease call is recorded in memory and written to the store periodically, so that other
//! processes see it. A polling worker costs one write per half minute, not one per lease.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward_core::decide::reads_everything;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_store::{Store, WorkerName, WorkerSighting};
use tokio::time::{Instant, sleep};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::shared::Shared;

/// How often new sightings are written.
const FLUSH_INTERVAL: Duration = Duration::from_secs(2);

/// A known worker is written at most this often.
const REWRITE_INTERVAL: Duration = Duration::from_secs(30);

/// Bounds memory and the table: callers choose the names.
pub(crate) const MAX_WORKERS: usize = 10_000;

/// How long a worker is listed after its last call.
pub(crate) const WORKER_TTL: onceward_core::time::Duration = onceward_core::time::Duration::from_secs(24 * 3600);

/// Longer names, and longer lists of lifecycles, are not recorded.
const MAX_NAME_BYTES: usize = 1_000;
const MAX_LIFECYCLES_PER_WORKER: usize = 100;

/// Bounds the scan that counts leases.
const MAX_SCANNED_TIMERS: usize = 20_000;

/// A worker with its live leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerStatus {
    pub name: WorkerName,
    /// The lifecycles of its last call.
    pub lifecycles: Vec<Arc<str>>,
    /// Its last lease call; `None` if only its leases are known.
    pub last_seen_at: Option<Time>,
    pub live_leases: u64,
}

/// Recent workers, newest first, and all workers with leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerList {
    pub workers: Vec<WorkerStatus>,
    /// Whether all leases were counted. With very many timers only the leases that expire first are.
    pub is_complete: bool,
}

#[derive(Debug, Default)]
pub(crate) struct WorkerRegistry(Mutex<HashMap<WorkerName, TrackedWorker>>);

#[derive(Clone, Debug)]
struct TrackedWorker {
    lifecycles: Vec<Arc<str>>,
    seen_at: Instant,
    /// When it was last written with these lifecycles.
    written_at: Option<Instant>,
}

impl TrackedWorker {
    fn needs_write(&self, now: Instant) -> bool {
        self.written_at.is_none_or(|written| self.seen_at > written && now.duration_since(written) >= REWRITE_INTERVAL)
    }
}

impl WorkerRegistry {
    fn lock_sightings(&self) -> MutexGuard<'_, HashMap<WorkerName, TrackedWorker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a lease call.
    pub(crate) fn record_sighting(&self, actor: &Actor, worker: &Arc<str>, lifecycles: &[Arc<str>]) {
        // Names that cannot be stored are not recorded.
        if !is_storable(worker)
            || lifecycles.len() > MAX_LIFECYCLES_PER_WORKER
            || !lifecycles.iter().all(|name| is_storable(name))
        {
            return;
        }
        let name = WorkerName { holder: Arc::clone(&actor.id), worker: Arc::clone(worker) };
        let now = Instant::now();
        let mut sightings = self.lock_sightings();
        if let Some(seen) = sightings.get_mut(&name) {
            seen.seen_at = now;
            if seen.lifecycles != lifecycles {
                (seen.lifecycles, seen.written_at) = (lifecycles.to_vec(), None);
            }
            return;
        }
        if sightings.len() >= MAX_WORKERS {
            sightings
                .retain(|_, seen| now.duration_since(seen.seen_at) < REWRITE_INTERVAL || seen.written_at.is_none());
        }
        if sightings.len() < MAX_WORKERS {
            sightings.insert(name, TrackedWorker { lifecycles: lifecycles.to_vec(), seen_at: now, written_at: None });
        }
    }

    /// Returns the selected sightings, with times of the store's clock.
    fn sightings(&self, now: Time, is_selected: impl Fn(&TrackedWorker) -> bool) -> Vec<WorkerSighting> {
        let micros_ago = |seen: &TrackedWorker| i64::try_from(seen.seen_at.elapsed().as_micros()).unwrap_or(i64::MAX);
        let locked = self.lock_sightings();
        let selected = locked.iter().filter(|(_, seen)| is_selected(seen));
        let shown = selected.map(|(name, seen)| WorkerSighting {
            name: name.clone(),
            lifecycles: seen.lifecycles.clone(),
            last_seen_at: Time::from_micros(now.micros().saturating_sub(micros_ago(seen))),
        });
        shown.collect()
    }

    fn mark_written(&self, sightings: &[WorkerSighting], at: Instant) {
        let mut locked = self.lock_sightings();
        for worker in sightings {
            if let Some(seen) = locked.get_mut(&worker.name).filter(|seen| seen.lifecycles == worker.lifecycles) {
                seen.written_at = Some(at);
            }
        }
    }
}

/// Returns whether the text is short enough, and valid in every database.
fn is_storable(text: &str) -> bool {
    text.len() <= MAX_NAME_BYTES && !text.contains('\0')
}

/// Writes sightings periodically.
pub(crate) async fn run<S: Store>(shared: Arc<Shared<S>>) {
    while !shared.queue.is_closed() {
        sleep(FLUSH_INTERVAL).await;
        // On an error the next flush retries.
        let _ = flush_sightings(&shared).await;
    }
}

/// Writes new sightings.
async fn flush_sightings<S: Store>(shared: &Shared<S>) -> Result<(), EngineError> {
    let now = Instant::now();
    let changed = shared.worker_registry.sightings(shared.store.now().await?, |seen| seen.needs_write(now));
    if !changed.is_empty() {
        shared.store.upsert_workers(&changed).await?;
        shared.worker_registry.mark_written(&changed, now);
    }
    Ok(())
}

impl<S: Store + 'static> Engine<S> {
    /// Lists the workers of the last day, of all processes. An operator sees all workers, other actors their own.
    pub async fn workers(&self, actor: &Actor, limit: usize) -> Result<WorkerList, EngineError> {
        let shared = &self.shared;
        let now = shared.store.now().await?;
        let mut workers_by_name: BTreeMap<WorkerName, WorkerStatus> = BTreeMap::new();
        let local = shared.worker_registry.sightings(now, |_| true);
        for WorkerSighting { name, lifecycles, last_seen_at: seen } in
            shared.store.workers(MAX_WORKERS).await?.into_iter().chain(local)
        {
            let is_newer = workers_by_name.get(&name).is_none_or(|newest| newest.last_seen_at <= Some(seen));
            if is_newer {
                workers_by_name
                    .insert(name.clone(), WorkerStatus { name, lifecycles, last_seen_at: Some(seen), live_leases: 0 });
            }
        }
        let cutoff = now.checked_sub(WORKER_TTL);
        workers_by_name.retain(|_, worker| worker.last_seen_at > cutoff);
        let lease_counts = shared.store.lease_counts(MAX_SCANNED_TIMERS).await?;
        for (name, holds) in lease_counts.workers {
            let unseen =
                || WorkerStatus { name: name.clone(), lifecycles: Vec::new(), last_seen_at: None, live_leases: holds };
            workers_by_name.entry(name.clone()).or_insert_with(unseen).live_leases = holds;
        }
        let is_visible = |worker: &WorkerStatus| reads_everything(actor) || worker.name.holder == actor.id;
        let mut workers: Vec<WorkerStatus> = workers_by_name.into_values().filter(is_visible).collect();
        workers.sort_by(|one, other| other.last_seen_at.cmp(&one.last_seen_at).then_with(|| one.name.cmp(&other.name)));
        workers.truncate(shared.clamp_page_items(limit));
        Ok(WorkerList { workers, is_complete: lease_counts.is_complete })
    }
}
