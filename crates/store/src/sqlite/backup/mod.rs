//! Backs up a database while an engine writes to it, without one long snapshot.
//!
//! A snapshot held during a large copy would keep all writes of that time in the WAL. Instead the backup copies
//! the file in parts, each in a read transaction of a fraction of a second, in which the file does not change
//! ([`source`]). Between two read transactions it blocks writers briefly, reads from the WAL which pages they changed, and checkpoints the WAL. It then copies the changed
//! pages again. The backup is complete when no page differs from the file as of the last read
//! transaction.

mod copy;
mod partial_file;
mod source;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::open;
use crate::error::StoreError;
use copy::CopyRounds;
use partial_file::PartialFile;
use source::BackupSource;

/// Why a backup failed. No file remains under its name.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{} already exists, and a backup never overwrites a file", .0.display())]
    Exists(PathBuf),
    #[error("another backup is writing {}", .0.display())]
    InProgress(PathBuf),
    #[error("cannot access {}: {}", .0.display(), .1)]
    FileError(PathBuf, std::io::Error),
    /// The engine always uses WAL mode.
    #[error("the journal mode of the database is `{0}`, not `wal`, so no engine has it open; copy the file instead")]
    NotWalMode(String),
    #[error("another program has read an old snapshot of the database for {0} seconds; end its transaction and retry")]
    BlockedByReader(u64),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Statistics of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupReport {
    pub bytes: u64,
    /// The last seq in the backup.
    pub seq: u64,
    /// Read transactions in which pages were copied.
    pub read_transactions: u32,
    pub longest_read_transaction: Duration,
    /// The longest time that writers were blocked.
    pub longest_pause: Duration,
    /// Pages that changed after they were copied.
    pub recopied_pages: u64,
    /// The largest observed size of the WAL.
    pub max_wal_bytes: u64,
}

/// Copies a database file to a new file, with or without a running engine. The copy contains everything that was
/// committed when the backup began, and is consistent as of some time before its end. Calls `on_progress` with the
/// number of copied pages and the total.
///
/// The database must be writable, because the backup takes the write lock for short times.
pub fn backup_database(
    database: &Path,
    to: &Path,
    on_progress: &mut dyn FnMut(u64, u64),
) -> Result<BackupReport, BackupError> {
    let mut partial_file = PartialFile::create(to)?;
    let source = BackupSource::open(database)?;
    let mut report = CopyRounds::new(&source, &mut partial_file).run(on_progress)?;
    report.seq = last_seq(partial_file.path())?;
    partial_file.finish(report.bytes)?;
    Ok(report)
}

/// Returns the last seq of the copy. Fails if the copy cannot be opened.
fn last_seq(copy: &Path) -> Result<u64, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(open::immutable_uri(copy), flags)?;
    Ok(connection.query_row("SELECT seq FROM log_seq", [], |row| row.get(0))?)
}
