//! Streams the log: every entry after a seq, in order, once.

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

/// One page per stream is buffered: a thousand slow readers need at most a gigabyte.
const LOG_PAGE_LIMIT: PageLimit = PageLimit { max_items: 500, max_bytes: 1 << 20 };

/// One per actor. SQLite has three readers, so that one is always free for the group commit; PostgreSQL keeps most of
/// its connections free.
pub(crate) const MAX_CONCURRENT_READS: usize = 2;

/// Follows the log. Buffers at most one page, however slow its reader is.
#[derive(Debug)]
pub struct LogStream<S> {
    shared: Arc<Shared<S>>,
    actor: Actor,
    last_seq: watch::Receiver<u64>,
    /// Seq up to which the log was read, including entries that the actor may not see.
    after_seq: u64,
    buffer: VecDeque<LogEntry>,
}

impl<S: Store> LogStream<S> {
    pub(crate) fn new(shared: Arc<Shared<S>>, actor: Actor, after_seq: u64) -> Self {
        let last_seq = shared.notifier.subscribe_log();
        Self { shared, actor, last_seq, after_seq, buffer: VecDeque::new() }
    }

    /// Returns the next entry, and waits for it if necessary. `None` when the engine is closed and all entries were
    /// read.
    ///
    /// Cancel safe: no entry is lost.
    pub async fn next(&mut self) -> Result<Option<LogEntry>, EngineError> {
        match self.next_until(None).await {
            Err(EngineError::Closed) => Ok(None),
            next => next,
        }
    }

    /// Like [`next`](Self::next), but returns `None` if none arrives before the deadline, and
    /// [`EngineError::Closed`] if the engine is closed.
    pub async fn next_until(&mut self, deadline: Option<Instant>) -> Result<Option<LogEntry>, EngineError> {
        loop {
            if let Some(entry) = self.buffer.pop_front() {
                return Ok(Some(entry));
            }
            // Before the read, so that a later write wakes this stream.
            let closed = self.shared.queue.is_drained();
            self.last_seq.borrow_and_update();
            let permit = self.shared.stream_read_permits.acquire(&self.actor.id).await;
            let page = self.shared.store.log(self.after_seq, LOG_PAGE_LIMIT).await?;
            if let Some(page_end_seq) = page.last().map(|entry| entry.seq) {
                let visible = self.visible_entries(page).await?;
                drop(permit);
                // Set together, after the last await: if canceled before, the page is read again.
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

    /// Returns the seq up to which entries were returned or skipped. A new stream can continue after it without a gap.
    pub fn seq(&self) -> u64 {
        self.buffer.front().map_or(self.after_seq, |next| next.seq.saturating_sub(1))
    }

    /// Returns the next entry if it is already buffered.
    pub fn next_buffered(&mut self) -> Option<LogEntry> {
        self.buffer.pop_front()
    }

    /// Returns the entries of a page that the actor may see, by the records' current state. Fires the due timers that
    /// this depends on: an entry that is left out is never sent.
    async fn visible_entries(&self, mut page: Vec<LogEntry>) -> Result<Vec<LogEntry>, EngineError> {
        if reads_everything(&self.actor) {
            return Ok(page);
        }
        let mut reader = AuthorizedReader::new(&self.shared, &self.actor).await?;
        let records: BTreeSet<RecordId> = page.iter().filter_map(|entry| entry.record).collect();
        let visible = reader.visible_records(&records.into_iter().collect::<Vec<_>>()).await?;
        page.retain(|entry| entry.record.is_some_and(|record| visible.contains(&record)));
        Ok(page)
    }
}
