//! The database that is copied, held still for moments.
//!
//! When all of the WAL has been folded back, whoever begins to read then reads the database file alone, and as long as it reads
//! nobody folds anything back: the file stands still, while others go on writing to the WAL. That is what a hold is.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use super::BackupError;
use crate::error::StoreError;
use crate::sqlite::open::in_words;
use crate::sqlite::wal::{self, Mark};

/// How long to wait for the writers' lock: an engine has it for the length of a batch.
const BUSY: Duration = Duration::from_secs(10);

/// How long writers wait while the WAL is folded back and a reader is in the way. An engine's own are gone within this.
const READERS: Duration = Duration::from_millis(50);

const NAP: Duration = Duration::from_millis(2);

/// Between two tries for the writers' lock.
const MOMENT: Duration = Duration::from_micros(100);

#[derive(Debug)]
pub(super) struct Source {
    /// Keeps writers waiting while what they have written is noted and folded back.
    gate: Connection,
    hold: Connection,
    file: Arc<File>,
    path: PathBuf,
    wal: PathBuf,
    page_size: u32,
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Self, BackupError> {
        let connect = || -> Result<Connection, StoreError> {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(path, flags).map_err(|error| in_words(path, error.into()))?;
            connection.busy_timeout(BUSY)?;
            Ok(connection)
        };
        let (gate, hold) = (connect()?, connect()?);
        let version: u32 = gate.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(StoreError::from)?;
        if version == 0 {
            return Err(StoreError::NoDatabase("this is not one of Onceward's databases".to_owned()).into());
        }
        let mode: String = gate.pragma_query_value(None, "journal_mode", |row| row.get(0)).map_err(StoreError::from)?;
        if mode != "wal" {
            return Err(BackupError::NoWal(mode));
        }
        let page_size = gate.pragma_query_value(None, "page_size", |row| row.get(0)).map_err(StoreError::from)?;
        gate.busy_timeout(Duration::ZERO).map_err(StoreError::from)?;
        let file = kept(path).map_err(|error| BackupError::File(path.to_owned(), error))?;
        Ok(Self { gate, hold, file, path: path.to_owned(), wal: wal::path(path), page_size })
    }

    pub(super) fn page_size(&self) -> u32 {
        self.page_size
    }

    /// So long is the WAL's file now.
    pub(super) fn wal_bytes(&self) -> u64 {
        wal::bytes(&self.wal)
    }

    pub(super) fn wal_mark(&self) -> Result<Mark, BackupError> {
        Mark::of(&self.wal).map_err(|error| BackupError::File(self.wal.clone(), error))
    }

    /// Writers wait from here on. A busy engine lets go of their lock for moments only, which SQLite's own waiting, by steps of up
    /// to a tenth of a second, would seldom meet; and all the while the last hold goes on.
    pub(super) fn close_gate(&self) -> Result<(), BackupError> {
        let since = Instant::now();
        loop {
            match self.gate.execute_batch("BEGIN IMMEDIATE").map_err(StoreError::from) {
                Err(StoreError::Busy) if since.elapsed() < BUSY => std::thread::sleep(MOMENT),
                closed => return Ok(closed?),
            }
        }
    }

    pub(super) fn open_gate(&self) -> Result<(), BackupError> {
        Ok(self.gate.execute_batch("ROLLBACK").map_err(StoreError::from)?)
    }

    /// Pages that may have changed since the last hold began, with the WAL folded up to this mark. Exact only while that hold lasts
    /// and the gate is closed: the WAL has then started from its beginning once at most, right at the hold's, with all of what it had lost in the file.
    pub(super) fn changed(&self, folded: &Mark) -> Result<Vec<u32>, BackupError> {
        wal::pages(&self.wal, folded).map_err(|error| BackupError::File(self.wal.clone(), error))
    }

    /// End the last hold and begin the next, with the gate closed. `None`: somebody reads an older state, so not all of the WAL
    /// could be folded back. Then the file does not stand still, but the WAL does not start from its beginning either, and
    /// nothing that is written is missed. Otherwise the number of pages, and of frames that stand in the WAL and in the file.
    pub(super) fn hold(&self) -> Result<Option<(u32, u64)>, BackupError> {
        self.let_go()?;
        let folded = self.fold()?;
        let begin = "BEGIN; SELECT count(*) FROM sqlite_schema";
        self.hold.execute_batch(begin).map_err(StoreError::from)?;
        let Some(frames) = folded else { return Ok(None) };
        let pages = self.hold.pragma_query_value(None, "page_count", |row| row.get(0)).map_err(StoreError::from)?;
        Ok(Some((pages, frames)))
    }

    pub(super) fn let_go(&self) -> Result<(), BackupError> {
        if !self.hold.is_autocommit() {
            self.hold.execute_batch("ROLLBACK").map_err(StoreError::from)?;
        }
        Ok(())
    }

    /// How many frames there are, all of them folded back; `None` where not all could be.
    fn fold(&self) -> Result<Option<u64>, BackupError> {
        let since = Instant::now();
        loop {
            let folded = self.hold.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
                let (is_busy, in_wal, done): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
                // Less than none: there is no WAL.
                let frames = u64::try_from(in_wal).unwrap_or(0);
                Ok((is_busy == 0 && in_wal == done).then_some(frames))
            });
            match folded.map_err(StoreError::from) {
                Ok(Some(frames)) => return Ok(Some(frames)),
                Ok(None) | Err(StoreError::Busy) if since.elapsed() < READERS => std::thread::sleep(NAP),
                Ok(None) | Err(StoreError::Busy) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), BackupError> {
        let mut file = &*self.file;
        let read = file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(bytes));
        read.map_err(|error| BackupError::File(self.path.clone(), error))
    }
}

/// A handle of a database's file that is never closed. When a process closes any handle of a file, the system drops all of the
/// process's locks on it, those of SQLite too; a program that has an engine open would lose its own.
#[cfg(unix)]
fn kept(path: &Path) -> std::io::Result<Arc<File>> {
    use std::os::unix::fs::MetadataExt as _;
    static KEPT: Mutex<Vec<(u64, u64, Arc<File>)>> = Mutex::new(Vec::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let named = std::fs::metadata(path)?;
    let is_named = |(device, number, _): &&(u64, u64, _)| (*device, *number) == (named.dev(), named.ino());
    if let Some((_, _, file)) = kept.iter().find(is_named) {
        return Ok(Arc::clone(file));
    }
    let file = Arc::new(File::open(path)?);
    let opened = file.metadata()?;
    kept.push((opened.dev(), opened.ino(), Arc::clone(&file)));
    Ok(file)
}

#[cfg(not(unix))]
fn kept(path: &Path) -> std::io::Result<Arc<File>> {
    File::open(path).map(Arc::new)
}
