//! The log as it grows: every entry after a place, in order, once.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use onceward_core::decide::sees_all;
use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_store::{Entry, Most, Store};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::error::EngineError;
use crate::reading::Reader;
use crate::shared::Shared;

/// Entries read in one go: of long ones no more than a megabyte, so that a thousand readers who are slow cost no more than a gigabyte.
const PAGE: Most = Most { count: 500, bytes: 1 << 20 };

/// Streams that read the store at once, one for each actor: of the three readers of an embedded database one is always left to
/// whoever saves, and of PostgreSQL's connections most.
pub(crate) const AT_ONCE: usize = 2;

/// Follows the log. Keeps no more than a page, however far behind its reader is.
#[derive(Debug)]
pub struct LogStream<S> {
    shared: Arc<Shared<S>>,
    actor: Actor,
    news: watch::Receiver<u64>,
    /// How far was read; what the actor may not see is read past.
    after: u64,
    read: VecDeque<Entry>,
}

impl<S: Store> LogStream<S> {
    pub(crate) fn new(shared: Arc<Shared<S>>, actor: Actor, after: u64) -> Self {
        let news = shared.signals.log();
        Self { shared, actor, news, after, read: VecDeque::new() }
    }

    /// The next entry; waits for it to be written. `None` when the engine is closed and all was read.
    ///
    /// May be given up while it waits, and called again: nothing is left out.
    pub async fn next(&mut self) -> Result<Option<Entry>, EngineError> {
        match self.next_by(None).await {
            Err(EngineError::Closed) => Ok(None),
            next => next,
        }
    }

    /// The same, and `None` where all that is there was read and by this time nothing more has come. Closed is an error here.
    pub async fn next_by(&mut self, until: Option<Instant>) -> Result<Option<Entry>, EngineError> {
        loop {
            if let Some(entry) = self.read.pop_front() {
                return Ok(Some(entry));
            }
            // Before reading: what is written after it is news.
            let closed = self.shared.queue.is_drained();
            self.news.borrow_and_update();
            let turn = self.shared.following.turn(&self.actor.id).await;
            let page = self.shared.store.log(self.after, PAGE).await?;
            if let Some(last) = page.last().map(|entry| entry.seq) {
                let seen = self.seen(page).await?;
                drop(turn);
                // Together, after the last wait: given up before, the page is read again.
                self.after = last;
                self.read.extend(seen);
                continue;
            }
            drop(turn);
            if closed {
                return Err(EngineError::Closed);
            }
            let poll = Instant::now() + self.shared.config.poll;
            let news = timeout_at(until.map_or(poll, |until| until.min(poll)), self.news.changed()).await;
            if news.is_err() && until.is_some_and(|until| until <= Instant::now()) {
                return Ok(None);
            }
        }
    }

    /// How far the log was read and handed out, with what the actor may not see: from here on a reader goes on without a gap.
    pub fn place(&self) -> u64 {
        self.read.front().map_or(self.after, |next| next.seq.saturating_sub(1))
    }

    /// The next entry where it was read already.
    pub fn at_hand(&mut self) -> Option<Entry> {
        self.read.pop_front()
    }

    /// Those of a page that the actor may see, as the records are now.
    async fn seen(&self, mut page: Vec<Entry>) -> Result<Vec<Entry>, EngineError> {
        if sees_all(&self.actor) {
            return Ok(page);
        }
        let reader = Reader::new(&self.shared, &self.actor).await?;
        let records: BTreeSet<RecordId> = page.iter().filter_map(|entry| entry.record).collect();
        let seen = reader.sees(&records.into_iter().collect::<Vec<_>>()).await?;
        page.retain(|entry| entry.record.is_some_and(|record| seen.contains(&record)));
        Ok(page)
    }
}
