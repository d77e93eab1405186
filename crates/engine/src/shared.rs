//! What all parts of one engine share.

use std::sync::Arc;

use onceward_core::decide::Call;
use onceward_core::record::{Actor, Payload};
use onceward_core::value::RecordId;
use onceward_store::{Most, Store};

use crate::checks::Unheard;
use crate::config::Config;
use crate::counted::Counted;
use crate::error::EngineError;
use crate::keys::KeyDesk;
use crate::leasing::Desk;
use crate::objects::{LARGE, PayloadReader};
use crate::queue::{Queue, Submission};
use crate::roll::Roll;
use crate::signals::Signals;
use crate::timers::SetAside;
use crate::trail::Trail;
use crate::turns::Turns;

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
    pub(crate) roll: Roll,
    pub(crate) keys: KeyDesk,
    /// Questions that may be with the outside at once.
    pub(crate) asking: Turns,
    /// Those that had no answer.
    pub(crate) unheard: Unheard,
    /// Streams that may read the store at once.
    pub(crate) following: Turns,
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

    /// The same, where they may be large.
    pub(crate) fn most(&self, limit: usize) -> Most {
        Most { count: self.page(limit), bytes: self.config.page_bytes }
    }
}

impl<S: Store> Shared<S> {
    /// The bytes of a payload, from wherever they are.
    pub(crate) async fn payload(&self, payload: Payload) -> Result<Option<PayloadReader>, EngineError> {
        let is_large = usize::try_from(payload.bytes).is_ok_and(|bytes| bytes > LARGE);
        if let (Some(objects), true) = (&self.config.objects, is_large)
            && let Some(found) = objects.get(&payload).await?
        {
            return Ok(Some(found));
        }
        let found = self.store.content(&payload.sha256).await?;
        Ok(found.map(|bytes| PayloadReader::of_bytes(bytes, payload)))
    }

    /// All of them at once.
    pub(crate) async fn content(&self, payload: Payload) -> Result<Option<Arc<[u8]>>, EngineError> {
        match self.payload(payload).await? {
            Some(found) => Ok(found.whole(u64::MAX).await?),
            None => Ok(None),
        }
    }
}

/// The engine's own operation: whatever is due on a record.
pub(crate) fn due(record: RecordId) -> Submission {
    Submission::new(&Actor::engine(), Call::Due { record })
}
