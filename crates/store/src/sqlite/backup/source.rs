//! The database to back up, and the read transactions in which its file does not change.
//!
//! Once the whole WAL is checkpointed, a new reader reads only the database file. While it reads, SQLite does not
//! checkpoint again, so the file does not change; writers continue to append to the WAL.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use super::BackupError;
use crate::error::StoreError;
use crate::sqlite::open::explain_open_error;
use crate::sqlite::wal::{self, WalPosition};

/// An engine holds the write lock for one batch at a time, which is much shorter.
const WRITE_LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// How long writers stay blocked while a reader prevents a complete checkpoint. An engine's own reads end within this
/// time.
const READER_WAIT_TIMEOUT: Duration = Duration::from_millis(50);

const CHECKPOINT_RETRY_DELAY: Duration = Duration::from_millis(2);

/// Short, because a busy engine releases the write lock only for moments.
const WRITE_LOCK_RETRY_DELAY: Duration = Duration::from_micros(100);

#[derive(Debug)]
pub(super) struct BackupSource {
    /// Blocks writers while the backup reads their changes from the WAL and checkpoints it.
    write_lock: Connection,
    reader: Connection,
    file: Arc<File>,
    path: PathBuf,
    wal: PathBuf,
    page_size: u32,
}

impl BackupSource {
    pub(super) fn open(path: &Path) -> Result<Self, BackupError> {
        let connect = || -> Result<Connection, StoreError> {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection =
                Connection::open_with_flags(path, flags).map_err(|error| explain_open_error(path, error.into()))?;
            connection.busy_timeout(WRITE_LOCK_TIMEOUT)?;
            Ok(connection)
        };
        let (write_lock, reader) = (connect()?, connect()?);
        let version: u32 =
            write_lock.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(StoreError::from)?;
        if version == 0 {
            return Err(StoreError::ForeignDatabase("not an Onceward database".to_owned()).into());
        }
        let mode: String =
            write_lock.pragma_query_value(None, "journal_mode", |row| row.get(0)).map_err(StoreError::from)?;
        if mode != "wal" {
            return Err(BackupError::NotWalMode(mode));
        }
        let page_size = write_lock.pragma_query_value(None, "page_size", |row| row.get(0)).map_err(StoreError::from)?;
        write_lock.busy_timeout(Duration::ZERO).map_err(StoreError::from)?;
        let file = shared_file(path).map_err(|error| BackupError::FileError(path.to_owned(), error))?;
        Ok(Self { write_lock, reader, file, path: path.to_owned(), wal: wal::wal_path(path), page_size })
    }

    pub(super) fn page_size(&self) -> u32 {
        self.page_size
    }

    /// Returns the current size of the WAL file.
    pub(super) fn wal_bytes(&self) -> u64 {
        wal::file_bytes(&self.wal)
    }

    pub(super) fn wal_position(&self) -> Result<WalPosition, BackupError> {
        WalPosition::read(&self.wal).map_err(|error| BackupError::FileError(self.wal.clone(), error))
    }

    /// Takes the write lock. A busy engine releases it only for moments. SQLite's busy handler, with steps of up to 100
    /// ms, would rarely catch one, and the last read transaction would continue meanwhile.
    pub(super) fn block_writers(&self) -> Result<(), BackupError> {
        let since = Instant::now();
        loop {
            match self.write_lock.execute_batch("BEGIN IMMEDIATE").map_err(StoreError::from) {
                Err(StoreError::Busy) if since.elapsed() < WRITE_LOCK_TIMEOUT => {
                    std::thread::sleep(WRITE_LOCK_RETRY_DELAY);
                }
                closed => return Ok(closed?),
            }
        }
    }

    pub(super) fn release_writers(&self) -> Result<(), BackupError> {
        Ok(self.write_lock.execute_batch("ROLLBACK").map_err(StoreError::from)?)
    }

    /// Returns the pages that may have changed since the last read transaction began; `checkpointed` is the WAL position
    /// that was in the file by then. Exact only during that transaction and with writers blocked: the WAL has then
    /// restarted at most once, at the start of the transaction, when all its frames were in the file.
    pub(super) fn changed_pages(&self, checkpointed: &WalPosition) -> Result<Vec<u32>, BackupError> {
        wal::changed_pages(&self.wal, checkpointed).map_err(|error| BackupError::FileError(self.wal.clone(), error))
    }

    /// Ends the last read transaction and begins the next one, with writers blocked. Returns the number of pages, and of
    /// WAL frames that are also in the file. Returns `None` if a reader of an older state prevents a complete checkpoint. In that
    /// case the file can change, but the WAL does not restart either, so no write is missed.
    pub(super) fn begin_read(&self) -> Result<Option<(u32, u64)>, BackupError> {
        self.end_read()?;
        let checkpointed = self.checkpoint_all()?;
        let begin = "BEGIN; SELECT count(*) FROM sqlite_schema";
        self.reader.execute_batch(begin).map_err(StoreError::from)?;
        let Some(frames) = checkpointed else { return Ok(None) };
        let pages = self.reader.pragma_query_value(None, "page_count", |row| row.get(0)).map_err(StoreError::from)?;
        Ok(Some((pages, frames)))
    }

    pub(super) fn end_read(&self) -> Result<(), BackupError> {
        if !self.reader.is_autocommit() {
            self.reader.execute_batch("ROLLBACK").map_err(StoreError::from)?;
        }
        Ok(())
    }

    /// Checkpoints the whole WAL and returns its number of frames, or `None` if a reader prevents that.
    fn checkpoint_all(&self) -> Result<Option<u64>, BackupError> {
        let since = Instant::now();
        loop {
            let checkpointed = self.reader.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
                let (is_busy, in_wal, done): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
                // Negative if there is no WAL.
                let frames = u64::try_from(in_wal).unwrap_or(0);
                Ok((is_busy == 0 && in_wal == done).then_some(frames))
            });
            match checkpointed.map_err(StoreError::from) {
                Ok(Some(frames)) => return Ok(Some(frames)),
                Ok(None) | Err(StoreError::Busy) if since.elapsed() < READER_WAIT_TIMEOUT => {
                    std::thread::sleep(CHECKPOINT_RETRY_DELAY);
                }
                Ok(None) | Err(StoreError::Busy) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), BackupError> {
        let mut file = &*self.file;
        let read = file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(bytes));
        read.map_err(|error| BackupError::FileError(self.path.clone(), error))
    }
}

/// Returns a handle of the database file that is never closed. When a process closes any handle of a file, the
/// operating system releases all locks of that process on the file, including SQLite's. An engine in the same process
/// would lose its locks.
#[cfg(unix)]
fn shared_file(path: &Path) -> std::io::Result<Arc<File>> {
    use std::os::unix::fs::MetadataExt as _;
    static OPEN_FILES: Mutex<Vec<(u64, u64, Arc<File>)>> = Mutex::new(Vec::new());
    let mut open_files = OPEN_FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let metadata = std::fs::metadata(path)?;
    let is_named = |(device, number, _): &&(u64, u64, _)| (*device, *number) == (metadata.dev(), metadata.ino());
    if let Some((_, _, file)) = open_files.iter().find(is_named) {
        return Ok(Arc::clone(file));
    }
    let file = Arc::new(File::open(path)?);
    let opened = file.metadata()?;
    open_files.push((opened.dev(), opened.ino(), Arc::clone(&file)));
    Ok(file)
}

#[cfg(not(unix))]
fn shared_file(path: &Path) -> std::io::Result<Arc<File>> {
    File::open(path).map(Arc::new)
}
