//! The scheduler: fires due timers, and ends leases that expired before their commit (lost) or after it (finished). The
//! first poll after a start finds everything that became due while no engine was running.

mod blocked;
mod fire;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::Call;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::Store;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::error::EngineError;
use crate::log_on_change::LogOnChange;
use crate::notifier::duration_between;
use crate::shared::Shared;
use crate::submission::queue::{Submission, random_seed};

pub(crate) use blocked::BlockedRecords;
use fire::{await_due, due_submission};
pub(crate) use fire::{fire_all_due, fire_due};

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
        // If the store fails, or no record makes progress, it waits before the next poll.
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
            Ok(PollOutcome::WaitForEager) => sleep(deferred_delay()).await,
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
        warn!(code = error.code(), "scheduler query failed; due timers are delayed");
    }
}

/// Several processes see the same due records, and only one can fire each. The process that won the last time polls at
/// once (eager); the others poll a moment later and take the rest (deferred).
enum PollMode {
    Eager,
    /// What was due in the last poll. A record that is still due was left by the eager process.
    Deferred(HashSet<(Time, RecordId)>),
}

enum PollOutcome {
    PollAgain,
    /// The next due time, and the current time.
    NextDue(Time, Time),
    /// Gives the eager process time to fire them.
    WaitForEager,
    WaitForWakeup,
}

/// Shortest delay behind the eager process; it finishes its records in this time.
const DEFERRED_DELAY: Duration = Duration::from_millis(50);

/// Due windows that deferred processes share if more is due than one window.
const MAX_DEFERRED_WINDOWS: usize = 4;

/// Random, so that deferred processes do not poll at once. The first one replaces an eager process that is gone.
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
            // The eager process works on the first window: take one of the others.
            let windows = (found.len() - 1) / window;
            let window_index = 1 + random_seed().map_or(0, |seed| usize::try_from(seed % 1_000).unwrap_or(0)) % windows;
            found = found.split_off(window_index * window);
            found.truncate(window);
        } else {
            let before = std::mem::replace(seen, found.iter().copied().collect());
            found.retain(|due| before.contains(due));
            if found.is_empty() {
                return Ok(PollOutcome::WaitForEager);
            }
        }
    }
    let total = found.len();
    let receivers =
        shared.queue.submit_internal(found.iter().map(|(_, record)| due_submission(*record)).collect()).await?;
    let result = await_due(shared, found, receivers).await;
    let is_deferred = matches!(mode, PollMode::Deferred(_));
    // If no other process can write, a local reader fired them, so no process competes.
    if result.already_done * 2 > total && shared.store.change_notifications().is_some() {
        *mode = PollMode::Deferred(HashSet::new());
        return Ok(if result.made_progress { PollOutcome::WaitForEager } else { PollOutcome::WaitForWakeup });
    }
    if is_deferred && !is_backlog {
        *mode = PollMode::Eager;
    }
    Ok(if result.made_progress { PollOutcome::PollAgain } else { PollOutcome::WaitForWakeup })
}

/// Ends leases of in-process workers of earlier instances, so that their jobs do not wait for the expiry.
async fn expire_orphaned_leases<S: Store>(shared: &Shared<S>) -> Result<(), EngineError> {
    let mut previous = Vec::new();
    loop {
        let leases = shared.store.orphaned_leases(shared.max_due_per_poll()).await?;
        // The same leases again: they cannot be ended this way and must expire.
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
        info!(leases = leases.len(), "orphaned leases of an earlier process ended");
        previous = leases;
    }
}
