//! Who comes for jobs. Every call for a lease is noted here, in memory; now and then what is new is written down, so that other
//! processes know it too. A worker that keeps asking costs a write in half a minute, not one for each lease.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward_core::decide::sees_all;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_store::{Store, WorkerName, WorkerSeen};
use tokio::time::{Instant, sleep};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::shared::Shared;

/// How often to look whether there is something to write down.
const LOOK: Duration = Duration::from_secs(2);

/// A worker that was written down is not written down again before.
const AGAIN: Duration = Duration::from_secs(30);

/// Names that are remembered, here and in the store. A caller may make up as many as it likes.
pub(crate) const MOST: usize = 10_000;

/// How long a worker that is gone is remembered.
pub(crate) const REMEMBERED: onceward_core::time::Duration = onceward_core::time::Duration::from_secs(24 * 3600);

/// Bytes of a name, and lifecycles of one worker, that are remembered.
const LONGEST: usize = 1_000;
const LIFECYCLES: usize = 100;

/// Timers that are looked at to count leases.
const TIMERS: usize = 20_000;

/// A worker, and what it does now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerNow {
    pub name: WorkerName,
    /// The lifecycles that it asked for, the last time.
    pub lifecycles: Vec<Arc<str>>,
    /// When it last asked for jobs; `None` where only its leases tell of it.
    pub seen: Option<Time>,
    /// Live leases.
    pub holds: u64,
}

/// Who came lately, the last first, and whoever holds a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workers {
    pub workers: Vec<WorkerNow>,
    /// Their leases are all counted. Where very many timers run, only those that run out first are looked at.
    pub is_whole: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Roll(Mutex<HashMap<WorkerName, Seen>>);

#[derive(Clone, Debug)]
struct Seen {
    lifecycles: Vec<Arc<str>>,
    at: Instant,
    /// When it was last written down as it is, but for the time.
    written: Option<Instant>,
}

impl Seen {
    fn is_news(&self, now: Instant) -> bool {
        self.written.is_none_or(|written| self.at > written && now.duration_since(written) >= AGAIN)
    }
}

impl Roll {
    fn all(&self) -> MutexGuard<'_, HashMap<WorkerName, Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody asks for jobs.
    pub(crate) fn note(&self, actor: &Actor, worker: &Arc<str>, lifecycles: &[Arc<str>]) {
        // What nobody could be leased to, or asks for more than anybody has, is not worth a line.
        if !is_plain(worker) || lifecycles.len() > LIFECYCLES || !lifecycles.iter().all(|name| is_plain(name)) {
            return;
        }
        let name = WorkerName { holder: Arc::clone(&actor.id), worker: Arc::clone(worker) };
        let at = Instant::now();
        let mut all = self.all();
        if let Some(seen) = all.get_mut(&name) {
            seen.at = at;
            if seen.lifecycles != lifecycles {
                (seen.lifecycles, seen.written) = (lifecycles.to_vec(), None);
            }
            return;
        }
        if all.len() >= MOST {
            all.retain(|_, seen| at.duration_since(seen.at) < AGAIN || seen.written.is_none());
        }
        if all.len() < MOST {
            all.insert(name, Seen { lifecycles: lifecycles.to_vec(), at, written: None });
        }
    }

    /// Those that fit, as of now by the store's clock.
    fn seen(&self, now: Time, fits: impl Fn(&Seen) -> bool) -> Vec<WorkerSeen> {
        let ago = |seen: &Seen| i64::try_from(seen.at.elapsed().as_micros()).unwrap_or(i64::MAX);
        let all = self.all();
        let chosen = all.iter().filter(|(_, seen)| fits(seen));
        let shown = chosen.map(|(name, seen)| WorkerSeen {
            name: name.clone(),
            lifecycles: seen.lifecycles.clone(),
            seen: Time::from_micros(now.micros().saturating_sub(ago(seen))),
        });
        shown.collect()
    }

    fn written(&self, names: &[WorkerSeen], at: Instant) {
        let mut all = self.all();
        for worker in names {
            if let Some(seen) = all.get_mut(&worker.name).filter(|seen| seen.lifecycles == worker.lifecycles) {
                seen.written = Some(at);
            }
        }
    }
}

/// Short enough to keep, and what every database takes.
fn is_plain(text: &str) -> bool {
    text.len() <= LONGEST && !text.contains('\0')
}

/// The engine's own duty.
pub(crate) async fn run<S: Store>(shared: Arc<Shared<S>>) {
    while !shared.queue.is_closed() {
        sleep(LOOK).await;
        // Where the store fails there is no hurry: it is tried again.
        let _ = write_down(&shared).await;
    }
}

/// Write down what is new.
async fn write_down<S: Store>(shared: &Shared<S>) -> Result<(), EngineError> {
    let at = Instant::now();
    let news = shared.roll.seen(shared.store.now().await?, |seen| seen.is_news(at));
    if !news.is_empty() {
        shared.store.note_workers(&news).await?;
        shared.roll.written(&news, at);
    }
    Ok(())
}

impl<S: Store + 'static> Engine<S> {
    /// Who came for jobs in the last day, of all processes on the store: an operator sees all workers, anybody else its own.
    pub async fn workers(&self, actor: &Actor, limit: usize) -> Result<Workers, EngineError> {
        let shared = &self.shared;
        let now = shared.store.now().await?;
        let mut known: BTreeMap<WorkerName, WorkerNow> = BTreeMap::new();
        let own = shared.roll.seen(now, |_| true);
        for WorkerSeen { name, lifecycles, seen } in shared.store.workers(MOST).await?.into_iter().chain(own) {
            let is_newer = known.get(&name).is_none_or(|known| known.seen <= Some(seen));
            if is_newer {
                known.insert(name.clone(), WorkerNow { name, lifecycles, seen: Some(seen), holds: 0 });
            }
        }
        let over = now.checked_sub(REMEMBERED);
        known.retain(|_, worker| worker.seen > over);
        let holding = shared.store.holding(TIMERS).await?;
        for (name, holds) in holding.workers {
            let unseen = || WorkerNow { name: name.clone(), lifecycles: Vec::new(), seen: None, holds };
            known.entry(name.clone()).or_insert_with(unseen).holds = holds;
        }
        let may = |worker: &WorkerNow| sees_all(actor) || worker.name.holder == actor.id;
        let mut workers: Vec<WorkerNow> = known.into_values().filter(may).collect();
        workers.sort_by(|one, other| other.seen.cmp(&one.seen).then_with(|| one.name.cmp(&other.name)));
        workers.truncate(shared.page(limit));
        Ok(Workers { workers, is_whole: holding.is_whole })
    }
}
