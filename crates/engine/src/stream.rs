//! The log as it grows: every entry after a place, in order, once.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use onceward_core::decide::reads_everything;
use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_store::{LogEntry, PageLimit, Store};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::error::EngineError;
use crate::queries::AuthorizedReader;
use crate::shared::Shared;

/// Entries read in one go: of long ones no more than a megabyte, so that a thousand readers who are slow cost no more than a gigabyte.
const LOG_PAGE_LIMIT: PageLimit = PageLimit { max_items: 500, max_bytes: 1 << 20 };

/// Streams that read the store at once, one for each actor: of the three readers of an embedded database one is always left to
/// whoever saves, and of PostgreSQL's connections most.
pub(crate) const MAX_CONCURRENT_READS: usize = 2;

/// Follows the log. Keeps no more than a page, however far behind its reader is.
#[derive(Debug)]
pub struct LogStream<S> {
    shared: Arc<Shared<S>>,
    actor: Actor,
    last_seq: watch::Receiver<u64>,
    /// How far was read; what the actor may not see is read past.
    after_seq: u64,
    buffer: VecDeque<LogEntry>,
}

impl<S: Store> LogStream<S> {
    pub(crate) fn new(shared: Arc<Shared<S>>, actor: Actor, after_seq: u64) -> Self {
        let last_seq = shared.notifier.subscribe_log();
        Self { shared, actor, last_seq, after_seq, buffer: VecDeque::new() }
    }

    /// The next entry; waits for it to be written. `None` when the engine is closed and all was read.
    ///
    /// May be given up while it waits, and called again: nothing is left out.
    pub async fn next(&mut self) -> Result<Option<LogEntry>, EngineError> {
        match self.next_until(None).await {
            Err(EngineError::Closed) => Ok(None),
            next => next,
        }
    }

    /// The same, and `None` where all that is there was read and by this time nothing more has come. Closed is an error here.
    pub async fn next_until(&mut self, deadline: Option<Instant>) -> Result<Option<LogEntry>, EngineError> {
        loop {
            if let Some(entry) = self.buffer.pop_front() {
                return Ok(Some(entry));
            }
            // Before reading: what is written after it is news.
            let closed = self.shared.queue.is_drained();
            self.last_seq.borrow_and_update();
            let permit = self.shared.stream_read_permits.acquire(&self.actor.id).await;
            let page = self.shared.store.log(self.after_seq, LOG_PAGE_LIMIT).await?;
            if let Some(page_end_seq) = page.last().map(|entry| entry.seq) {
                let visible = self.visible_entries(page).await?;
                drop(permit);
                // Together, after the last wait: given up before, the page is read again.
                self.after_seq = page_end_seq;
                self.buffer.extend(visible);
                continue;
            }
            drop(permit);
            if closed {
                return Err(EngineError::Closed);
            }
            let next_poll = Instant::now() + self.shared.config.poll_interval;
            let wakeup =
                timeout_at(deadline.map_or(next_poll, |until| until.min(next_poll)), self.last_seq.changed()).await;
            if wakeup.is_err() && deadline.is_some_and(|until| until <= Instant::now()) {
                return Ok(None);
            }
        }
    }

    /// How far the log was read and handed out, with what the actor may not see: from here on a reader goes on without a gap.
    pub fn seq(&self) -> u64 {
        self.buffer.front().map_or(self.after_seq, |next| next.seq.saturating_sub(1))
    }

    /// The next entry where it was read already.
    pub fn next_buffered(&mut self) -> Option<LogEntry> {
        self.buffer.pop_front()
    }

    /// Those of a page that the actor may see, as the records are now.
    async fn visible_entries(&self, mut page: Vec<LogEntry>) -> Result<Vec<LogEntry>, EngineError> {
        if reads_everything(&self.actor) {
            return Ok(page);
        }
        let reader = AuthorizedReader::new(&self.shared, &self.actor).await?;
        let records: BTreeSet<RecordId> = page.iter().filter_map(|entry| entry.record).collect();
        let visible = reader.visible_records(&records.into_iter().collect::<Vec<_>>()).await?;
        page.retain(|entry| entry.record.is_some_and(|record| visible.contains(&record)));
        Ok(page)
    }
}
