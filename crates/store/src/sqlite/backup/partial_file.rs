//! A file that gets its final name only when it is complete.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::BackupError;
use crate::sqlite::open::{private_file_options, sibling_path};

/// A backup in progress, under a temporary name. It is locked, so that a later backup can tell it from the remains of a
/// killed one.
#[derive(Debug)]
pub(super) struct PartialFile {
    file: File,
    path: PathBuf,
    target: PathBuf,
    is_finished: bool,
}

impl PartialFile {
    pub(super) fn create(target: &Path) -> Result<Self, BackupError> {
        if target.symlink_metadata().is_ok() {
            return Err(BackupError::Exists(target.to_owned()));
        }
        let path = sibling_path(target, ".part");
        let failed = |error| BackupError::FileError(path.clone(), error);
        let file = private_file_options().read(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(BackupError::InProgress(path)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.set_len(0).map_err(failed)?;
        Ok(Self { file, path, target: target.to_owned(), is_finished: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BackupError> {
        let written = self.file.seek(SeekFrom::Start(offset)).and_then(|_| self.file.write_all(bytes));
        written.map_err(|error| self.file_error(error))
    }

    /// Syncs the file to disk and gives it its final name. If another file has that name by now, fails and leaves that
    /// file unchanged.
    pub(super) fn finish(mut self, length: u64) -> Result<(), BackupError> {
        self.file.set_len(length).and_then(|()| self.file.sync_all()).map_err(|error| self.file_error(error))?;
        match std::fs::hard_link(&self.path, &self.target) {
            Ok(()) => std::fs::remove_file(&self.path).map_err(|error| self.file_error(error))?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(BackupError::Exists(self.target.clone()));
            }
            // Not every file system supports hard links.
            Err(_) if self.target.symlink_metadata().is_ok() => return Err(BackupError::Exists(self.target.clone())),
            Err(_) => std::fs::rename(&self.path, &self.target).map_err(|error| self.file_error(error))?,
        }
        self.is_finished = true;
        // Sync the folder, so that the name survives a power failure.
        let folder = self.target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| BackupError::FileError(folder.to_owned(), error))
    }

    fn file_error(&self, error: std::io::Error) -> BackupError {
        BackupError::FileError(self.path.clone(), error)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
