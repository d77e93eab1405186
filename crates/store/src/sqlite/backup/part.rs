//! A file that has its name only when it is whole.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::BackupError;
use crate::sqlite::open::{beside, made_private};

/// Written under another name, locked, so that what a backup that was killed has left can be told from one under way.
#[derive(Debug)]
pub(super) struct Part {
    file: File,
    path: PathBuf,
    to: PathBuf,
    is_done: bool,
}

impl Part {
    pub(super) fn begin(to: &Path) -> Result<Self, BackupError> {
        if to.symlink_metadata().is_ok() {
            return Err(BackupError::Exists(to.to_owned()));
        }
        let path = beside(to, ".part");
        let failed = |error| BackupError::File(path.clone(), error);
        let file = made_private().read(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(BackupError::UnderWay(path)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.set_len(0).map_err(failed)?;
        Ok(Self { file, path, to: to.to_owned(), is_done: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), BackupError> {
        let written = self.file.seek(SeekFrom::Start(at)).and_then(|_| self.file.write_all(bytes));
        written.map_err(|error| self.failed(error))
    }

    /// All of it is on the disk, and then it gets its name. Somebody else's file that has come there meanwhile stays.
    pub(super) fn finish(mut self, length: u64) -> Result<(), BackupError> {
        self.file.set_len(length).and_then(|()| self.file.sync_all()).map_err(|error| self.failed(error))?;
        match std::fs::hard_link(&self.path, &self.to) {
            Ok(()) => std::fs::remove_file(&self.path).map_err(|error| self.failed(error))?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(BackupError::Exists(self.to.clone())),
            // Not every file system has a second name for a file.
            Err(_) if self.to.symlink_metadata().is_ok() => return Err(BackupError::Exists(self.to.clone())),
            Err(_) => std::fs::rename(&self.path, &self.to).map_err(|error| self.failed(error))?,
        }
        self.is_done = true;
        // The name, too, must outlive a power cut.
        let folder = self.to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| BackupError::File(folder.to_owned(), error))
    }

    fn failed(&self, error: std::io::Error) -> BackupError {
        BackupError::File(self.path.clone(), error)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
