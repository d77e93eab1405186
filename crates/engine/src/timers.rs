//! What is due is done when it is due: timers, leases that ran out before the commit (lost) or after it (finished). The first
//! look at start finds what fell due while nobody was there; so reconciling needs no way of its own.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward_core::decide::Call;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{Store, StoreError};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::complaint::Complaint;
use crate::error::EngineError;
use crate::queue::{Reply, Submission, seed};
use crate::shared::{Shared, due};
use crate::signals::length;

pub(crate) async fn run<S: Store>(shared: Arc<Shared<S>>) {
    let (mut ended, mut place, mut complaint) = (false, Place::First, Complaint::default());
    while !shared.queue.is_closed() {
        shared.signals.looking();
        if !ended {
            match end_left_behind(&shared).await {
                Ok(()) => ended = true,
                Err(error) => tell(&mut complaint, &error),
            }
        }
        // Where the store fails, or nothing gets on, there is no hurry.
        let looked = round(&shared, &mut place).await;
        if looked.is_ok() && ended {
            complaint.is_over();
        }
        match looked {
            Ok(Look::Again) => {}
            Ok(Look::At(next, now)) => {
                shared.signals.due_before(next, length(now, next).min(shared.config.poll)).await;
            }
            Ok(Look::Behind) => sleep(behind()).await,
            Ok(Look::Later) => shared.signals.due_before(Time::MIN, shared.config.poll).await,
            Err(error) => {
                tell(&mut complaint, &error);
                shared.signals.due_before(Time::MIN, shared.config.poll).await;
            }
        }
    }
}

fn tell(complaint: &mut Complaint, error: &EngineError) {
    if !error.is_the_end() && complaint.is_new(error.code()) {
        warn!(code = error.code(), "the timers cannot look: nothing that is due is done");
    }
}

/// Many processes see the same records fall due at the same time, and only one of them can do each. Whoever was the first the last time
/// goes at once; the others come a moment later, and take what is left.
enum Place {
    First,
    /// What was due when it looked last: who finds it again finds it left.
    Behind(HashSet<(Time, RecordId)>),
}

enum Look {
    Again,
    /// When the next is due, and what time it is now.
    At(Time, Time),
    /// Whoever is first gets a moment for these.
    Behind,
    Later,
}

/// How far behind the first the others come, at least: what it has in hand is done by then.
const BEHIND: Duration = Duration::from_millis(50);

/// So many windows of due records are looked through by those behind, where one is not enough for all that is due.
const WINDOWS: usize = 4;

/// Not all at once: the first of those behind takes the place of one that is gone.
fn behind() -> Duration {
    let chance = seed().map_or(0, |seed| u32::try_from(seed % 1_000).unwrap_or(0));
    BEHIND + BEHIND * 2 * chance / 1_000
}

async fn round<S: Store>(shared: &Shared<S>, place: &mut Place) -> Result<Look, EngineError> {
    let (now, window) = (shared.store.now().await?, shared.due_at_once());
    let most = if matches!(place, Place::First) { window } else { WINDOWS * window };
    let mut found = shared.set_aside.others(&shared.store, now, most).await?;
    if found.is_empty() {
        let next = shared.set_aside.others(&shared.store, Time::MAX, 1).await?.first().map_or(Time::MAX, |(at, _)| *at);
        return Ok(Look::At(next, now));
    }
    let helps = found.len() > window;
    if let Place::Behind(seen) = place {
        if helps {
            // The first works at the head: one of the windows after it.
            let windows = (found.len() - 1) / window;
            let chosen = 1 + seed().map_or(0, |seed| usize::try_from(seed % 1_000).unwrap_or(0)) % windows;
            found = found.split_off(chosen * window);
            found.truncate(window);
        } else {
            let before = std::mem::replace(seen, found.iter().copied().collect());
            found.retain(|due| before.contains(due));
            if found.is_empty() {
                return Ok(Look::Behind);
            }
        }
    }
    let all = found.len();
    let answers = shared.queue.enter_own(found.iter().map(|(_, record)| due(*record)).collect()).await?;
    let came = came_of(shared, found, answers).await;
    let is_behind = matches!(place, Place::Behind(_));
    // Where nobody else can write it was a reader of ours.
    if came.others * 2 > all && shared.store.news().is_some() {
        *place = Place::Behind(HashSet::new());
        return Ok(if came.got_on { Look::Behind } else { Look::Later });
    }
    if is_behind && !helps {
        *place = Place::First;
    }
    Ok(if came.got_on { Look::Again } else { Look::Later })
}

/// What came of records that were due.
pub(crate) struct Came {
    /// Somebody got on, or is out of the way: it is worth looking again.
    pub(crate) got_on: bool,
    /// Those that somebody else had done already.
    others: usize,
    /// The last failure that lies in no single record.
    pub(crate) failed: Option<EngineError>,
}

/// Wait for these, and set aside those that cannot be moved.
pub(crate) async fn came_of<S: Store>(
    shared: &Shared<S>,
    found: Vec<(Time, RecordId)>,
    answers: Vec<oneshot::Receiver<Reply>>,
) -> Came {
    let mut came = Came { got_on: false, others: 0, failed: None };
    for ((_, record), answer) in found.into_iter().zip(answers) {
        match shared.queue.answered(answer).await {
            // Nothing to be done is progress too: a reader was quicker.
            Ok(answer) => {
                came.got_on = true;
                came.others += usize::from(answer.already.is_some());
            }
            Err(error) if error.may_be_of_one() || error.refusal().is_some() => {
                warn!(%record, code = error.code(), "a record is due and cannot be moved");
                came.got_on |= shared.set_aside.put(record);
            }
            Err(error) => came.failed = Some(error),
        }
    }
    came
}

/// Records that are set aside at most. Were there more, those due after them would have to wait.
const ASIDE: usize = 10_000;

/// How long. Somebody may have mended the database, or brought the version of a lifecycle that was lacking.
const AGAIN_AFTER: Duration = Duration::from_mins(1);

/// Records that are due and cannot be moved: a damaged one, say. They must not keep those behind them waiting.
#[derive(Debug, Default)]
pub(crate) struct SetAside(Mutex<Aside>);

#[derive(Debug, Default)]
struct Aside {
    records: HashSet<RecordId>,
    until: Option<Instant>,
}

impl SetAside {
    /// What is due until then, but for these.
    pub(crate) async fn others<S: Store>(
        &self,
        store: &S,
        until: Time,
        most: usize,
    ) -> Result<Vec<(Time, RecordId)>, StoreError> {
        let aside = self.aside().records.clone();
        let mut found = store.due(until, most + aside.len()).await?;
        found.retain(|(_, record)| !aside.contains(record));
        found.truncate(most);
        Ok(found)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.aside().records.len()
    }

    /// Whether there was room.
    fn put(&self, record: RecordId) -> bool {
        let mut aside = self.aside();
        if aside.records.len() >= ASIDE {
            return false;
        }
        aside.until.get_or_insert_with(|| Instant::now() + AGAIN_AFTER);
        aside.records.insert(record)
    }

    fn aside(&self) -> MutexGuard<'_, Aside> {
        let mut aside = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if aside.until.is_some_and(|until| until <= Instant::now()) {
            *aside = Aside::default();
        }
        aside
    }
}

/// Leases of workers that lived inside a process before this one: they are over, and their jobs need not wait until they run
/// out.
async fn end_left_behind<S: Store>(shared: &Shared<S>) -> Result<(), EngineError> {
    let mut before = Vec::new();
    loop {
        let held = shared.store.left_behind(shared.due_at_once()).await?;
        // The same again: one that cannot be ended so must run out.
        if held.is_empty() || held == before {
            return Ok(());
        }
        let lost = |&(record, token)| Submission::new(&Actor::engine(), Call::Lost { record, token });
        for answer in shared.queue.enter_own(held.iter().map(lost).collect()).await? {
            match shared.queue.answered(answer).await {
                Err(error) if !error.may_be_of_one() && error.refusal().is_none() => return Err(error),
                _ => {}
            }
        }
        info!(leases = held.len(), "leases of an earlier process recovered");
        before = held;
    }
}
