//! What is due is done when it is due: timers, leases that ran out before the commit (lost) or after it (finished). The first
//! look at start finds what fell due while nobody was there; so reconciling needs no way of its own.

use std::sync::Arc;

use onceward_core::decide::Call;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_store::Store;

use crate::error::EngineError;
use crate::queue::Submission;
use crate::shared::{Shared, due};
use crate::signals::length;

pub(crate) async fn run<S: Store>(shared: Arc<Shared<S>>) {
    let mut ended = false;
    while !shared.queue.is_closed() {
        shared.signals.looking();
        ended = ended || end_left_behind(&shared).await.is_ok();
        // Where the store fails, or nothing gets on, there is no hurry.
        match round(&shared).await {
            Ok(Look::Again) => {}
            Ok(Look::At(next, now)) => {
                shared.signals.due_before(next, length(now, next).min(shared.config.poll)).await;
            }
            Ok(Look::Later) | Err(_) => shared.signals.due_before(Time::MIN, shared.config.poll).await,
        }
    }
}

enum Look {
    Again,
    /// When the next is due, and what time it is now.
    At(Time, Time),
    Later,
}

async fn round<S: Store>(shared: &Shared<S>) -> Result<Look, EngineError> {
    let now = shared.store.now().await?;
    let found = shared.store.due(now, shared.due_at_once()).await?;
    if found.is_empty() {
        let next = shared.store.due(Time::MAX, 1).await?.first().map_or(Time::MAX, |(at, _)| *at);
        return Ok(Look::At(next, now));
    }
    let operations = found.into_iter().map(|(_, record)| due(record)).collect();
    let mut moved = false;
    for answer in shared.queue.enter_own(operations).await? {
        // Nothing to be done is progress too: a reader was quicker.
        moved |= matches!(answer.await, Ok(Ok(_)));
    }
    Ok(if moved { Look::Again } else { Look::Later })
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
            answer.await.unwrap_or(Err(EngineError::Closed))?;
        }
        before = held;
    }
}
