//! What all parts of one engine share.

use onceward_core::decide::Call;
use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use tokio::sync::Semaphore;

use crate::config::Config;
use crate::counted::Counted;
use crate::keys::KeyDesk;
use crate::leasing::Desk;
use crate::queue::{Queue, Submission};
use crate::signals::Signals;
use crate::timers::SetAside;
use crate::trail::Trail;

#[derive(Debug)]
pub(crate) struct Shared<S> {
    pub(crate) store: S,
    pub(crate) config: Config,
    pub(crate) queue: Queue,
    pub(crate) signals: Signals,
    pub(crate) desk: Desk,
    pub(crate) counted: Counted,
    pub(crate) trail: Trail,
    pub(crate) set_aside: SetAside,
    pub(crate) keys: KeyDesk,
    /// Questions that may be with the outside at once.
    pub(crate) asking: Semaphore,
}

/// Due records in one go.
const DUE_AT_ONCE: usize = 500;

impl<S> Shared<S> {
    pub(crate) fn due_at_once(&self) -> usize {
        DUE_AT_ONCE.min(self.config.batch).min(self.config.queue)
    }

    /// How many of what was asked for come in one answer.
    pub(crate) fn page(&self, limit: usize) -> usize {
        limit.clamp(1, self.config.page.max(1))
    }
}

/// The engine's own operation: whatever is due on a record.
pub(crate) fn due(record: RecordId) -> Submission {
    Submission::new(&Actor::engine(), Call::Due { record })
}
