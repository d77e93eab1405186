//! What an engine has done, counted as it goes. Batches are looked through once they are saved, and added with one lock each:
//! an operation itself costs two additions.

mod round;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward_core::decide::Call;
use onceward_store::{Base, Distribution, Histogram, SIZES, TIMES, Write};

use crate::error::EngineError;

pub(crate) use round::Round;

/// Kinds of refusal that are counted apart. Codes are the lifecycles' own and core's, so there are never near so many.
const REFUSALS: usize = 1_000;

/// What an engine has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Transactions that were saved.
    pub batches: u64,
    /// Operations in them, those of the engine's own too.
    pub operations: u64,
    /// Saves that found something changed, and were decided again.
    pub conflicts: u64,
    /// Denials and audited refusals that were not logged, because their owner had too many.
    pub untold: u64,
    /// Calls that were turned away because too much was on its way.
    pub overloaded: u64,
}

/// What became of the records of one lifecycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lived {
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
    pub left: u64,
    /// Executions that ended otherwise, and whose job waits for another.
    pub retried: u64,
    /// Reports that had been made before.
    pub repeated: u64,
    /// Creations that were answered with the record that holds their key.
    pub returned: u64,
    /// Calls that were answered again, by the caller's own key.
    pub replayed: u64,
    /// Records that were set aside.
    pub stuck: u64,
}

/// All that an engine counts, at one time.
#[derive(Clone, Debug, Default)]
pub struct Measures {
    pub tally: Tally,
    /// By lifecycle.
    pub lives: BTreeMap<Arc<str>, Lived>,
    /// Records that came to their end, by lifecycle and final state.
    pub ended: BTreeMap<(Arc<str>, Arc<str>), u64>,
    /// By lifecycle, empty where none is known, and code.
    pub refused: BTreeMap<(Arc<str>, Arc<str>), u64>,
    /// Operations that came to nothing for a reason of the engine's or the store's, by its code.
    pub failed: BTreeMap<Arc<str>, u64>,
    /// From the call to its answer, in microseconds, by kind of call.
    pub latency: Vec<(&'static str, Distribution)>,
    /// Operations in a batch.
    pub sizes: Option<Distribution>,
    /// Whole saves, in microseconds.
    pub saves: Option<Distribution>,
    /// The commit alone, where the store can tell.
    pub commits: Option<Distribution>,
    /// Operations on their way, how many there may be, and the bytes that they keep in memory.
    pub waiting: usize,
    pub room: usize,
    pub waiting_bytes: usize,
    /// Calls that have found no job and wait for one.
    pub idle: usize,
    /// Records that are due and cannot be moved.
    pub set_aside: usize,
}

/// Kinds of calls, as they are counted.
pub(crate) const KINDS: [&str; 12] =
    ["create", "fire", "lease", "start", "heartbeat", "commit", "finish", "fail", "yield", "due", "lost", "move"];

/// The place of leases.
const LEASE: usize = 2;

/// A call's place in [`KINDS`].
pub(crate) const fn kind(call: &Call) -> usize {
    match call {
        Call::Create(_) => 0,
        Call::Fire { .. } => 1,
        Call::Lease { .. } => LEASE,
        Call::Start { .. } => 3,
        Call::Heartbeat { .. } => 4,
        Call::Commit { .. } => 5,
        Call::Finish { .. } => 6,
        Call::Fail { .. } => 7,
        Call::Yield { .. } => 8,
        Call::Due { .. } => 9,
        Call::Lost { .. } => 10,
        Call::Move(_) => 11,
    }
}

#[derive(Debug)]
pub(crate) struct Counted {
    batches: AtomicU64,
    operations: AtomicU64,
    conflicts: AtomicU64,
    untold: AtomicU64,
    latency: [Histogram; KINDS.len()],
    sizes: Histogram,
    saves: Histogram,
    sums: Mutex<Sums>,
}

#[derive(Debug, Default)]
struct Sums {
    by_lifecycle: BTreeMap<Arc<str>, Lived>,
    ended: BTreeMap<(Arc<str>, Arc<str>), u64>,
    refused: BTreeMap<(Arc<str>, Arc<str>), u64>,
    failed: BTreeMap<Arc<str>, u64>,
}

impl Default for Counted {
    fn default() -> Self {
        Self {
            batches: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            untold: AtomicU64::new(0),
            latency: std::array::from_fn(|_| Histogram::new(TIMES)),
            sizes: Histogram::new(SIZES),
            saves: Histogram::new(TIMES),
            sums: Mutex::default(),
        }
    }
}

impl Counted {
    /// A batch was saved, which took so long.
    pub(crate) fn saved(&self, operations: usize, took: Duration) {
        let operations = u64::try_from(operations).unwrap_or(u64::MAX);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.operations.fetch_add(operations, Ordering::Relaxed);
        self.sizes.add(operations);
        self.saves.add_time(took);
    }

    /// What was decided in a batch that stands.
    pub(crate) fn decided(&self, writes: &[Write], base: &Base) {
        let round = Round::of(writes, base);
        round.tell();
        let mut sums = self.sums();
        for (lifecycle, lived) in &round.lives {
            sums.life(lifecycle).add(lived);
        }
        for ((lifecycle, state), count) in &round.ended {
            *sums.ended.entry((Arc::clone(lifecycle), Arc::clone(state))).or_default() += count;
        }
        for (lifecycle, code) in &round.refused {
            sums.refused(*lifecycle, code);
        }
    }

    /// Refused before anything was decided.
    pub(crate) fn refused(&self, lifecycle: Option<&Arc<str>>, code: &Arc<str>) {
        self.sums().refused(lifecycle, code);
    }

    /// A call was answered, so long after it came.
    pub(crate) fn answered(&self, call: &Call, took: Duration) {
        self.latency[kind(call)].add_time(took);
    }

    /// A job was leased in the batch that made it, which took so long.
    pub(crate) fn leased(&self, took: Duration) {
        self.latency[LEASE].add_time(took);
    }

    /// Calls of a lifecycle were answered again.
    pub(crate) fn replayed(&self, lifecycle: &Arc<str>, times: u64) {
        self.sums().life(lifecycle).replayed += times;
    }

    /// Operations came to nothing, by no word of a lifecycle.
    pub(crate) fn failed(&self, error: &EngineError, operations: usize) {
        let operations = u64::try_from(operations).unwrap_or(u64::MAX);
        *self.sums().failed.entry(error.code().into()).or_default() += operations;
    }

    pub(crate) fn conflict(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn untold(&self, refusals: u64) {
        self.untold.fetch_add(refusals, Ordering::Relaxed);
    }

    pub(crate) fn tally(&self) -> Tally {
        Tally {
            batches: self.batches.load(Ordering::Relaxed),
            operations: self.operations.load(Ordering::Relaxed),
            conflicts: self.conflicts.load(Ordering::Relaxed),
            untold: self.untold.load(Ordering::Relaxed),
            overloaded: 0,
        }
    }

    pub(crate) fn measures(&self) -> Measures {
        let Sums { by_lifecycle, ended, refused, failed } = &*self.sums();
        Measures {
            tally: self.tally(),
            lives: by_lifecycle.clone(),
            ended: ended.clone(),
            refused: refused.clone(),
            failed: failed.clone(),
            latency: KINDS.into_iter().zip(&self.latency).map(|(kind, times)| (kind, times.counted())).collect(),
            sizes: Some(self.sizes.counted()),
            saves: Some(self.saves.counted()),
            ..Measures::default()
        }
    }

    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sums {
    fn life(&mut self, lifecycle: &Arc<str>) -> &mut Lived {
        self.by_lifecycle.entry(Arc::clone(lifecycle)).or_default()
    }

    fn refused(&mut self, lifecycle: Option<&Arc<str>>, code: &Arc<str>) {
        let key = (lifecycle.map_or_else(Arc::default, Arc::clone), Arc::clone(code));
        let known = self.refused.len() < REFUSALS || self.refused.contains_key(&key);
        let key = if known { key } else { (Arc::default(), "other".into()) };
        *self.refused.entry(key).or_default() += 1;
    }
}
