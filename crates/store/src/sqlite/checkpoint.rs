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
    /// Pages written since the last bulk was begun, by estimate.
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

    /// After a commit.
    pub(super) fn written(&mut self, connection: &Connection, net: &Net) {
        let contents: usize = net.contents.iter().map(|(_, bytes)| bytes.len()).sum();
        let entries: usize = net.entries.iter().map(|entry| entry.text.len()).sum();
        self.pages += EVERY_TRANSACTION + net.records.len() / 4 + (contents + 2 * entries) / 4_096;
        if self.running {
            let bulk = if self.pages < MEANWHILE {
                self.done.try_recv()
            } else {
                self.done.recv().map_err(|_| TryRecvError::Disconnected)
            };
            if bulk != Err(TryRecvError::Empty) {
                // Where it fails it is tried again with the next bulk, and SQLite's own limit stands behind that.
                let _ = fold(connection);
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

/// As much as can be without waiting for anybody. A reader's snapshot keeps what came after it in the WAL.
fn fold(connection: &Connection) -> Result<(), StoreError> {
    Ok(connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?)
}
