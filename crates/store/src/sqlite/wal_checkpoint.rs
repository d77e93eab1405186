//! Checkpoints the WAL in a separate thread.
//!
//! The thread copies most pages without blocking the writer. The writer itself then checkpoints the short rest that was
//! written meanwhile, so that the WAL can restart. Without that, a checkpoint beside a busy writer would never catch
//! up, and the file would grow without limit.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::open;
use crate::error::StoreError;
use crate::write_set::WriteSet;

/// 32 MB in pages of 4 KB, by estimate. A larger value saves work, because pages written several times are checkpointed
/// once. A smaller value shortens recovery after a crash.
const CHECKPOINT_AFTER_PAGES: usize = 8_000;

/// Pages that may be written during a checkpoint. Beyond that the writer waits for the thread, which bounds the WAL if
/// the disk is slow.
const MAX_PAGES_DURING_CHECKPOINT: usize = 24_000;

/// Pages that a transaction writes besides those of its rows: the upper levels of the tables.
const PAGES_PER_TRANSACTION: usize = 8;

/// The writer's handle of the checkpoint thread. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct WalCheckpointer {
    /// Estimated pages that are not checkpointed yet.
    pending_pages: usize,
    is_running: bool,
    wake: Option<SyncSender<()>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl WalCheckpointer {
    pub(super) fn start(path: &Path) -> Result<Self, StoreError> {
        let connection = open::open_checkpointer(path)?;
        let (wake, woken_receiver) = sync_channel(1);
        let (done_sender, done) = sync_channel(1);
        let work = move || run_checkpoints(&connection, &woken_receiver, &done_sender);
        let thread = std::thread::Builder::new().name("onceward-wal".to_owned()).spawn(work);
        let thread = thread.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Self { pending_pages: 0, is_running: false, wake: Some(wake), done, thread: Some(thread) })
    }

    /// Returns whether a checkpoint was started and the writer has not yet checkpointed the rest.
    pub(super) const fn is_running(&self) -> bool {
        self.is_running
    }

    /// Counts the pages of a committed batch.
    pub(super) fn add_batch(&mut self, connection: &Connection, write_set: &WriteSet) {
        let contents: usize = write_set.payloads.iter().map(|(_, bytes)| bytes.len()).sum();
        let entries: usize = write_set.entries.iter().map(|entry| entry.text.len()).sum();
        self.add_pages(connection, write_set.records.len() / 4 + (contents + 2 * entries) / 4_096);
    }

    /// Counts the estimated pages of a commit, and starts or finishes a checkpoint if needed.
    pub(super) fn add_pages(&mut self, connection: &Connection, pages: usize) {
        self.pending_pages += PAGES_PER_TRANSACTION + pages;
        if self.is_running {
            let bulk = if self.pending_pages < MAX_PAGES_DURING_CHECKPOINT {
                self.done.try_recv()
            } else {
                self.done.recv().map_err(|_| TryRecvError::Disconnected)
            };
            if bulk != Err(TryRecvError::Empty) {
                // After a failure, the next checkpoint tries again, and SQLite's own limit applies. Pages that a reader
                // keeps in the WAL count for the next checkpoint, up to half its limit, so that not every commit starts
                // one.
                if let Ok(remaining) = checkpoint_passive(connection) {
                    self.pending_pages = remaining.min(CHECKPOINT_AFTER_PAGES / 2);
                }
                self.is_running = false;
            }
        } else if self.pending_pages >= CHECKPOINT_AFTER_PAGES {
            self.pending_pages = 0;
            self.is_running = self.wake.as_ref().is_some_and(|wake| wake.try_send(()).is_ok());
        }
    }
}

impl Drop for WalCheckpointer {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run_checkpoints(connection: &Connection, woken_receiver: &Receiver<()>, done_sender: &SyncSender<()>) {
    while woken_receiver.recv().is_ok() {
        let _ = checkpoint_passive(connection);
        // The channel has room, because the writer reads this message before it starts the next checkpoint.
        let _ = done_sender.try_send(());
    }
}

/// Checkpoints as many pages as possible without waiting, and returns the number of remaining pages. A reader's
/// snapshot keeps later pages in the WAL.
fn checkpoint_passive(connection: &Connection) -> Result<usize, StoreError> {
    let (pages, checkpointed): (i64, i64) =
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| Ok((row.get(1)?, row.get(2)?)))?;
    Ok(usize::try_from(pages - checkpointed).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_runs_until_tail_is_checkpointed() {
        let folder = onceward_testkit::TempDir::new();
        let writer = Connection::open(folder.database_path()).expect("a new file");
        writer.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE a (x)").expect("a table");
        let mut checkpointer = WalCheckpointer::start(&folder.database_path()).expect("a thread");
        checkpointer.add_pages(&writer, CHECKPOINT_AFTER_PAGES - 2 * PAGES_PER_TRANSACTION);
        assert!(!checkpointer.is_running());
        checkpointer.add_pages(&writer, 0);
        assert!(checkpointer.is_running());
        // Enough pages to make the writer wait for the thread.
        checkpointer.add_pages(&writer, MAX_PAGES_DURING_CHECKPOINT);
        assert!(!checkpointer.is_running());
        assert_eq!(checkpointer.pending_pages, 0, "the checkpoint copied all pages");
    }

    #[test]
    fn passive_checkpoint_returns_pages_kept_by_reader() {
        let folder = onceward_testkit::TempDir::new();
        let writer = Connection::open(folder.database_path()).expect("a new file");
        writer.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE a (x)").expect("a table");
        let reader = Connection::open(folder.database_path()).expect("the file");
        reader.execute_batch("BEGIN; SELECT * FROM a").expect("a snapshot");
        for _ in 0..3 {
            writer.execute_batch("INSERT INTO a VALUES (1)").expect("a row");
        }
        assert_eq!(checkpoint_passive(&writer).expect("a partial checkpoint succeeds"), 3);
        reader.execute_batch("COMMIT").expect("the reader ends its transaction");
        assert_eq!(checkpoint_passive(&writer).expect("all"), 0);
    }
}
