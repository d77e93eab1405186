//! Folding the WAL back into the database, off the thread that writes.
//!
//! A thread of its own does the bulk, without holding anybody up. What was written meanwhile is a short tail; the writer folds
//! that back itself, so that the WAL can start again from its beginning: a checkpoint that only ever runs beside a busy
//! writer never catches up with it, and the file would grow without end.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::open;
use crate::error::StoreError;
use crate::net::Net;

/// Pages of 4 KB, by estimate, after which the WAL is folded back: 16 MB.
const PAGES: usize = 4_000;

/// Pages that a transaction touches beside those of its rows: the upper levels of every table.
const EVERY_TRANSACTION: usize = 8;

const IDLE: u8 = 0;
const RUNNING: u8 = 1;
/// The bulk is done; the tail is the writer's.
const TAIL: u8 = 2;

/// The writer's side. When it is dropped, the thread ends.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// Pages written since the last time, by estimate.
    pages: usize,
    stage: Arc<AtomicU8>,
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    pub(super) fn start(path: &Path) -> Result<Self, StoreError> {
        let connection = open::checkpointer(path)?;
        let stage = Arc::new(AtomicU8::new(IDLE));
        let (wake, woken) = sync_channel(1);
        let own = Arc::clone(&stage);
        let work = move || run(&connection, &woken, &own);
        let thread = std::thread::Builder::new().name("onceward-fold".to_owned()).spawn(work);
        let thread = thread.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Self { pages: 0, stage, wake: Some(wake), thread: Some(thread) })
    }

    /// After a commit.
    pub(super) fn written(&mut self, connection: &Connection, net: &Net) {
        let contents: usize = net.contents.iter().map(|(_, bytes)| bytes.len()).sum();
        let entries: usize = net.entries.iter().map(|entry| entry.text.len()).sum();
        self.pages += EVERY_TRANSACTION + net.records.len() / 4 + (contents + 2 * entries) / 4_096;
        match self.stage.load(Ordering::Acquire) {
            IDLE if self.pages >= PAGES => {
                self.pages = 0;
                self.stage.store(RUNNING, Ordering::Release);
                if let Some(wake) = &self.wake {
                    let _ = wake.try_send(());
                }
            }
            TAIL => {
                // Where it fails it is tried again with the next bulk, and SQLite's own limit stands behind that.
                let _ = fold(connection);
                self.stage.store(IDLE, Ordering::Release);
            }
            _ => {}
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

fn run(connection: &Connection, woken: &Receiver<()>, stage: &AtomicU8) {
    while woken.recv().is_ok() {
        let _ = fold(connection);
        stage.store(TAIL, Ordering::Release);
    }
}

/// As much as can be without waiting for anybody. A reader's snapshot keeps what came after it in the WAL.
fn fold(connection: &Connection) -> Result<(), StoreError> {
    Ok(connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?)
}
