//! Folding the WAL back into the database, off the thread that writes.
//!
//! A thread of its own does the bulk, without holding anybody up. What was written meanwhile is a short tail; the writer folds
//! that back itself, so that the WAL can start again from its beginning: a checkpoint that only ever runs beside a busy
//! writer never catches up with it, and the file would grow without end.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::open;
use crate::error::StoreError;
use crate::write_set::WriteSet;

/// Pages of 4 KB, by estimate, after which the WAL is folded back: 32 MB. Pages that are written again and again are folded back
/// once, so it pays to wait; but what is in the WAL must be read again after a crash.
const CHECKPOINT_AFTER_PAGES: usize = 8_000;

/// Pages that may come while the bulk is being folded back. A disk that is slower than the writer holds it up then, so that the
/// WAL has a bound.
const MAX_PAGES_DURING_CHECKPOINT: usize = 24_000;

/// Pages that a transaction touches beside those of its rows: the upper levels of every table.
const PAGES_PER_TRANSACTION: usize = 8;

/// The writer's side. When it is dropped, the thread ends.
#[derive(Debug)]
pub(super) struct WalCheckpointer {
    /// Pages that are not folded back yet, by estimate since they were last counted.
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
        let thread = std::thread::Builder::new().name("onceward-fold".to_owned()).spawn(work);
        let thread = thread.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Self { pending_pages: 0, is_running: false, wake: Some(wake), done, thread: Some(thread) })
    }

    /// From the word to the thread that folds back the bulk until the tail is folded back, too.
    pub(super) const fn is_running(&self) -> bool {
        self.is_running
    }

    /// After a commit.
    pub(super) fn add_batch(&mut self, connection: &Connection, write_set: &WriteSet) {
        let contents: usize = write_set.payloads.iter().map(|(_, bytes)| bytes.len()).sum();
        let entries: usize = write_set.entries.iter().map(|entry| entry.text.len()).sum();
        self.add_pages(connection, write_set.records.len() / 4 + (contents + 2 * entries) / 4_096);
    }

    /// After a commit that wrote so many pages, by estimate.
    pub(super) fn add_pages(&mut self, connection: &Connection, pages: usize) {
        self.pending_pages += PAGES_PER_TRANSACTION + pages;
        if self.is_running {
            let bulk = if self.pending_pages < MAX_PAGES_DURING_CHECKPOINT {
                self.done.try_recv()
            } else {
                self.done.recv().map_err(|_| TryRecvError::Disconnected)
            };
            if bulk != Err(TryRecvError::Empty) {
                // Where it fails it is tried again with the next bulk, and SQLite's own limit stands behind that. What a reader
                // keeps in the WAL counts for the next one, but not for so much that each commit would try again.
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
        // One word for each bulk: it is read before the next is asked for.
        let _ = done_sender.try_send(());
    }
}

/// As much as can be without waiting for anybody; how many pages are left. A reader's snapshot keeps what came after it in the
/// WAL.
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
        // So many that the bulk is waited for.
        checkpointer.add_pages(&writer, MAX_PAGES_DURING_CHECKPOINT);
        assert!(!checkpointer.is_running());
        assert_eq!(checkpointer.pending_pages, 0, "all of it is in the database");
    }

    /// What a reader keeps in the WAL is counted; without one nothing is left.
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
        assert_eq!(checkpoint_passive(&writer).expect("as much as can be"), 3);
        reader.execute_batch("COMMIT").expect("it lets go");
        assert_eq!(checkpoint_passive(&writer).expect("all"), 0);
    }
}
