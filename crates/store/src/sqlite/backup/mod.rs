//! A copy of a database that is being written, without one long snapshot.
//!
//! A snapshot that is held for as long as a large copy takes would keep everything that is written meanwhile in the WAL. So the
//! file is held still for a fraction of a second at a time ([`source`]), and copied piece by piece. Between two holds writers wait
//! for a moment: which pages they have written is read from the WAL, the WAL is folded back, and those pages are copied again. The
//! copy is whole when nothing is left that differs from the file as the last hold has it.

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

/// Why there is no backup. Nothing is left under its name.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{} is there already, and a backup never overwrites", .0.display())]
    Exists(PathBuf),
    #[error("another backup is writing {}", .0.display())]
    InProgress(PathBuf),
    #[error("{}: {}", .0.display(), .1)]
    FileError(PathBuf, std::io::Error),
    /// The engine always sets it.
    #[error("the database's journal mode is `{0}`, not `wal`: no engine has it open, copy the file as it is")]
    NotWalMode(String),
    #[error("somebody has been reading one old state of the database for {0} seconds: end that, and try again")]
    BlockedByReader(u64),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a backup took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupReport {
    pub bytes: u64,
    /// The last place in the log that it has.
    pub seq: u64,
    /// How often the file was held still, and for how long at most.
    pub holds: u32,
    pub longest_hold: Duration,
    /// How long writers had to wait at most.
    pub longest_pause: Duration,
    /// Pages that had changed when they were already copied.
    pub recopied_pages: u64,
    /// The greatest length of the WAL that was seen.
    pub max_wal_bytes: u64,
}

/// Copy a database file to a new one, beside the engine that writes it or without one. It holds all that had been answered when this
/// began, and is as any moment until the end had it. `on_progress` is told the pages that are done, and how many there are.
///
/// Needs a database that may be written: for moments it takes the writers' lock.
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

/// That the copy opens and has a log's end.
fn last_seq(copy: &Path) -> Result<u64, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(open::immutable_uri(copy), flags)?;
    Ok(connection.query_row("SELECT seq FROM counter", [], |row| row.get(0))?)
}
