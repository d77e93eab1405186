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

use crate::error::EngineError;
use crate::log_on_change::LogOnChange;
use crate::notifier::duration_between;
use crate::queue::{Reply, Submission, random_seed};
use crate::shared::{Shared, due_submission};

pub(crate) async fn run<S: Store>(shared: Arc<Shared<S>>) {
    let (mut orphans_expired, mut mode, mut error_log) = (false, PollMode::Eager, LogOnChange::default());
    while !shared.queue.is_closed() {
        shared.notifier.begin_poll();
        if !orphans_expired {
            match expire_orphaned_leases(&shared).await {
                Ok(()) => orphans_expired = true,
                Err(error) => log_error(&mut error_log, &error),
            }
        }
        // Where the store fails, or nothing gets on, there is no hurry.
        let outcome = poll_due(&shared, &mut mode).await;
        if outcome.is_ok() && orphans_expired {
            error_log.reset();
        }
        match outcome {
            Ok(PollOutcome::PollAgain) => {}
            Ok(PollOutcome::NextDue(next, now)) => {
                shared
                    .notifier
                    .wait_due_before(next, duration_between(now, next).min(shared.config.poll_interval))
                    .await;
            }
            Ok(PollOutcome::DeferToEager) => sleep(deferred_delay()).await,
            Ok(PollOutcome::WaitForWakeup) => {
                shared.notifier.wait_due_before(Time::MIN, shared.config.poll_interval).await;
            }
            Err(error) => {
                log_error(&mut error_log, &error);
                shared.notifier.wait_due_before(Time::MIN, shared.config.poll_interval).await;
            }
        }
    }
}

fn log_error(error_log: &mut LogOnChange, error: &EngineError) {
    if !error.is_engine_closed() && error_log.should_log(error.code()) {
        warn!(code = error.code(), "the timers cannot look: nothing that is due is done");
    }
}

/// Many processes see the same records fall due at the same time, and only one of them can do each. Whoever was the first the last time
/// goes at once; the others come a moment later, and take what is left.
enum PollMode {
    Eager,
    /// What was due when it looked last: who finds it again finds it left.
    Deferred(HashSet<(Time, RecordId)>),
}

enum PollOutcome {
    PollAgain,
    /// When the next is due, and what time it is now.
    NextDue(Time, Time),
    /// Whoever is first gets a moment for these.
    DeferToEager,
    WaitForWakeup,
}

/// How far behind the first the others come, at least: what it has in hand is done by then.
const DEFERRED_DELAY: Duration = Duration::from_millis(50);

/// So many windows of due records are looked through by those behind, where one is not enough for all that is due.
const MAX_DEFERRED_WINDOWS: usize = 4;

/// Not all at once: the first of those behind takes the place of one that is gone.
fn deferred_delay() -> Duration {
    let random = random_seed().map_or(0, |seed| u32::try_from(seed % 1_000).unwrap_or(0));
    DEFERRED_DELAY + DEFERRED_DELAY * 2 * random / 1_000
}

async fn poll_due<S: Store>(shared: &Shared<S>, mode: &mut PollMode) -> Result<PollOutcome, EngineError> {
    let (now, window) = (shared.store.now().await?, shared.max_due_per_poll());
    let max_records = if matches!(mode, PollMode::Eager) { window } else { MAX_DEFERRED_WINDOWS * window };
    let mut found = shared.blocked_records.due_unblocked(&shared.store, now, max_records).await?;
    if found.is_empty() {
        let next = shared
            .blocked_records
            .due_unblocked(&shared.store, Time::MAX, 1)
            .await?
            .first()
            .map_or(Time::MAX, |(at, _)| *at);
        return Ok(PollOutcome::NextDue(next, now));
    }
    let is_backlog = found.len() > window;
    if let PollMode::Deferred(seen) = mode {
        if is_backlog {
            // The first works at the head: one of the windows after it.
            let windows = (found.len() - 1) / window;
            let window_index = 1 + random_seed().map_or(0, |seed| usize::try_from(seed % 1_000).unwrap_or(0)) % windows;
            found = found.split_off(window_index * window);
            found.truncate(window);
        } else {
            let before = std::mem::replace(seen, found.iter().copied().collect());
            found.retain(|due| before.contains(due));
            if found.is_empty() {
                return Ok(PollOutcome::DeferToEager);
            }
        }
    }
    let total = found.len();
    let receivers =
        shared.queue.submit_internal(found.iter().map(|(_, record)| due_submission(*record)).collect()).await?;
    let result = await_due(shared, found, receivers).await;
    let is_deferred = matches!(mode, PollMode::Deferred(_));
    // Where nobody else can write it was a reader of ours.
    if result.already_done * 2 > total && shared.store.change_notifications().is_some() {
        *mode = PollMode::Deferred(HashSet::new());
        return Ok(if result.made_progress { PollOutcome::DeferToEager } else { PollOutcome::WaitForWakeup });
    }
    if is_deferred && !is_backlog {
        *mode = PollMode::Eager;
    }
    Ok(if result.made_progress { PollOutcome::PollAgain } else { PollOutcome::WaitForWakeup })
}

/// What came of records that were due.
pub(crate) struct DueResult {
    /// Somebody got on, or is out of the way: it is worth looking again.
    pub(crate) made_progress: bool,
    /// Those that somebody else had done already.
    already_done: usize,
    /// The last failure that lies in no single record.
    pub(crate) error: Option<EngineError>,
}

/// Wait for these, and set aside those that cannot be moved.
pub(crate) async fn await_due<S: Store>(
    shared: &Shared<S>,
    due_records: Vec<(Time, RecordId)>,
    receivers: Vec<oneshot::Receiver<Reply>>,
) -> DueResult {
    let mut result = DueResult { made_progress: false, already_done: 0, error: None };
    for ((_, record), receiver) in due_records.into_iter().zip(receivers) {
        match shared.queue.wait_reply(receiver).await {
            // Nothing to be done is progress too: a reader was quicker.
            Ok(answer) => {
                result.made_progress = true;
                result.already_done += usize::from(answer.no_op.is_some());
            }
            Err(error) if error.is_single_operation_fault() || error.refusal().is_some() => {
                warn!(%record, code = error.code(), "a record is due and cannot be moved");
                result.made_progress |= shared.blocked_records.block(record);
            }
            Err(error) => result.error = Some(error),
        }
    }
    result
}

/// Records that are set aside at most. Were there more, those due after them would have to wait.
const MAX_BLOCKED_RECORDS: usize = 10_000;

/// How long. Somebody may have mended the database, or brought the version of a lifecycle that was lacking.
const BLOCKED_RETRY_INTERVAL: Duration = Duration::from_mins(1);

/// Records that are due and cannot be moved: a damaged one, say. They must not keep those behind them waiting.
#[derive(Debug, Default)]
pub(crate) struct BlockedRecords(Mutex<BlockedState>);

#[derive(Debug, Default)]
struct BlockedState {
    records: HashSet<RecordId>,
    retry_at: Option<Instant>,
}

impl BlockedRecords {
    /// What is due until then, but for these.
    pub(crate) async fn due_unblocked<S: Store>(
        &self,
        store: &S,
        cutoff: Time,
        max_records: usize,
    ) -> Result<Vec<(Time, RecordId)>, StoreError> {
        let blocked = self.lock_state().records.clone();
        let mut found = store.due_records(cutoff, max_records + blocked.len()).await?;
        found.retain(|(_, record)| !blocked.contains(record));
        found.truncate(max_records);
        Ok(found)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.lock_state().records.len()
    }

    /// Whether there was room.
    fn block(&self, record: RecordId) -> bool {
        let mut state = self.lock_state();
        if state.records.len() >= MAX_BLOCKED_RECORDS {
            return false;
        }
        state.retry_at.get_or_insert_with(|| Instant::now() + BLOCKED_RETRY_INTERVAL);
        state.records.insert(record)
    }

    fn lock_state(&self) -> MutexGuard<'_, BlockedState> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.retry_at.is_some_and(|until| until <= Instant::now()) {
            *state = BlockedState::default();
        }
        state
    }
}

/// Leases of workers that lived inside a process before this one: they are over, and their jobs need not wait until they run
/// out.
async fn expire_orphaned_leases<S: Store>(shared: &Shared<S>) -> Result<(), EngineError> {
    let mut previous = Vec::new();
    loop {
        let leases = shared.store.orphaned_leases(shared.max_due_per_poll()).await?;
        // The same again: one that cannot be ended so must run out.
        if leases.is_empty() || leases == previous {
            return Ok(());
        }
        let lose_lease = |&(record, token)| Submission::new(&Actor::engine(), Call::LoseLease { record, token });
        for answer in shared.queue.submit_internal(leases.iter().map(lose_lease).collect()).await? {
            match shared.queue.wait_reply(answer).await {
                Err(error) if !error.is_single_operation_fault() && error.refusal().is_none() => return Err(error),
                _ => {}
            }
        }
        info!(leases = leases.len(), "leases of an earlier process recovered");
        previous = leases;
    }
}
