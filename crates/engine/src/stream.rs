//! The log as it grows: every entry after a place, in order, once.

use std::collections::VecDeque;
use std::sync::Arc;

use onceward_store::{Entry, Store};
use tokio::sync::watch;

use crate::error::EngineError;
use crate::shared::Shared;

/// Entries read in one go.
const PAGE: usize = 500;

/// Follows the log. Keeps no more than a page, however far behind its reader is.
#[derive(Debug)]
pub struct LogStream<S> {
    shared: Arc<Shared<S>>,
    news: watch::Receiver<u64>,
    after: u64,
    read: VecDeque<Entry>,
}

impl<S: Store> LogStream<S> {
    pub(crate) fn new(shared: Arc<Shared<S>>, after: u64) -> Self {
        let news = shared.signals.log();
        Self { shared, news, after, read: VecDeque::new() }
    }

    /// The next entry; waits for it to be written. `None` when the engine is closed and all was read.
    ///
    /// May be given up while it waits, and called again: nothing is left out.
    pub async fn next(&mut self) -> Result<Option<Entry>, EngineError> {
        loop {
            if let Some(entry) = self.read.pop_front() {
                self.after = entry.seq;
                return Ok(Some(entry));
            }
            // Before reading: what is written after it is news.
            let closed = self.shared.queue.is_drained();
            self.news.borrow_and_update();
            self.read.extend(self.shared.store.log(self.after, PAGE).await?);
            if !self.read.is_empty() {
                continue;
            }
            if closed {
                return Ok(None);
            }
            let _ = tokio::time::timeout(self.shared.config.poll, self.news.changed()).await;
        }
    }
}
