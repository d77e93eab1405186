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
use crate::net::Net;

/// Pages of 4 KB, by estimate, after which the WAL is folded back: 32 MB. Pages that are written again and again are folded back
/// once, so it pays to wait; but what is in the WAL must be read again after a crash.
const PAGES: usize = 8_000;

/// Pages that may come while the bulk is being folded back. A disk that is slower than the writer holds it up then, so that the
/// WAL has a bound.
const MEANWHILE: usize = 24_000;

/// Pages that a transaction touches beside those of its rows: the upper levels of every table.
const EVERY_TRANSACTION: usize = 8;

/// The writer's side. When it is dropped, the thread ends.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// Pages that are not folded back yet, by estimate since they were last counted.
    pages: usize,
    running: bool,
    wake: Option<SyncSender<()>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    pub(super) fn start(path: &Path) -> Result<Self, StoreError> {
        let connection = open::checkpointer(path)?;
        let (wake, woken) = sync_channel(1);
        let (say, done) = sync_channel(1);
        let work = move || run(&connection, &woken, &say);
        let thread = std::thread::Builder::new().name("onceward-fold".to_owned()).spawn(work);
        let thread = thread.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Self { pages: 0, running: false, wake: Some(wake), done, thread: Some(thread) })
    }

    /// From the word to the thread that folds back the bulk until the tail is folded back, too.
    pub(super) const fn is_running(&self) -> bool {
        self.running
    }

    /// After a commit.
    pub(super) fn written(&mut self, connection: &Connection, net: &Net) {
        let contents: usize = net.contents.iter().map(|(_, bytes)| bytes.len()).sum();
        let entries: usize = net.entries.iter().map(|entry| entry.text.len()).sum();
        self.more(connection, net.records.len() / 4 + (contents + 2 * entries) / 4_096);
    }

    /// After a commit that wrote so many pages, by estimate.
    pub(super) fn more(&mut self, connection: &Connection, pages: usize) {
        self.pages += EVERY_TRANSACTION + pages;
        if self.running {
            let bulk = if self.pages < MEANWHILE {
                self.done.try_recv()
            } else {
                self.done.recv().map_err(|_| TryRecvError::Disconnected)
            };
            if bulk != Err(TryRecvError::Empty) {
                // Where it fails it is tried again with the next bulk, and SQLite's own limit stands behind that. What a reader
                // keeps in the WAL counts for the next one, but not for so much that each commit would try again.
                if let Ok(left) = fold(connection) {
                    self.pages = left.min(PAGES / 2);
                }
                self.running = false;
            }
        } else if self.pages >= PAGES {
            self.pages = 0;
            self.running = self.wake.as_ref().is_some_and(|wake| wake.try_send(()).is_ok());
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(connection: &Connection, woken: &Receiver<()>, say: &SyncSender<()>) {
    while woken.recv().is_ok() {
        let _ = fold(connection);
        // One word for each bulk: it is read before the next is asked for.
        let _ = say.try_send(());
    }
}

/// As much as can be without waiting for anybody; how many pages are left. A reader's snapshot keeps what came after it in the
/// WAL.
fn fold(connection: &Connection) -> Result<usize, StoreError> {
    let (pages, folded): (i64, i64) =
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| Ok((row.get(1)?, row.get(2)?)))?;
    Ok(usize::try_from(pages - folded).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_until_the_tail_is_folded_back() {
        let folder = onceward_testkit::Folder::new();
        let writer = Connection::open(folder.file()).expect("a new file");
        writer.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE a (x)").expect("a table");
        let mut checkpoints = Checkpoints::start(&folder.file()).expect("a thread");
        checkpoints.more(&writer, PAGES - 2 * EVERY_TRANSACTION);
        assert!(!checkpoints.is_running());
        checkpoints.more(&writer, 0);
        assert!(checkpoints.is_running());
        // So many that the bulk is waited for.
        checkpoints.more(&writer, MEANWHILE);
        assert!(!checkpoints.is_running());
        assert_eq!(checkpoints.pages, 0, "all of it is in the database");
    }

    /// What a reader keeps in the WAL is counted; without one nothing is left.
    #[test]
    fn what_is_left_is_counted() {
        let folder = onceward_testkit::Folder::new();
        let writer = Connection::open(folder.file()).expect("a new file");
        writer.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE a (x)").expect("a table");
        let reader = Connection::open(folder.file()).expect("the file");
        reader.execute_batch("BEGIN; SELECT * FROM a").expect("a snapshot");
        for _ in 0..3 {
            writer.execute_batch("INSERT INTO a VALUES (1)").expect("a row");
        }
        assert_eq!(fold(&writer).expect("as much as can be"), 3);
        reader.execute_batch("COMMIT").expect("it lets go");
        assert_eq!(fold(&writer).expect("all"), 0);
    }
}
