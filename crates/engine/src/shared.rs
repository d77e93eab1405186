//! What all parts of one engine share.

use onceward_core::decide::Call;
use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use tokio::sync::Semaphore;

use crate::config::Config;
use crate::leasing::Desk;
use crate::queue::{Queue, Submission};
use crate::signals::Signals;

#[derive(Debug)]
pub(crate) struct Shared<S> {
    pub(crate) store: S,
    pub(crate) config: Config,
    pub(crate) queue: Queue,
    pub(crate) signals: Signals,
    pub(crate) desk: Desk,
    /// Questions that may be with the outside at once.
    pub(crate) asking: Semaphore,
}

/// The engine's own operation: whatever is due on a record.
pub(crate) fn due(record: RecordId) -> Submission {
    Submission::new(&Actor::engine(), Call::Due { record })
}
