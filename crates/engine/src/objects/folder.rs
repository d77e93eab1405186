//! Object storage in a folder. An object is written under a random name, synced, and then renamed to its hash; so an
//! object with a hash name is complete, even after a power failure.

use std::fs::{self, DirBuilder, File, OpenOptions, ReadDir};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use onceward_core::hex;

use super::name::ObjectName;

/// Folder of drafts. No hash prefix collides with it.
pub(super) const DRAFTS_FOLDER: &str = "drafts";

/// Folder of named objects. No hash prefix collides with it.
pub(super) const NAMED_FOLDER: &str = "named";

/// File whose lock orders renames and deletions. No hash prefix collides with it.
const NAMES_LOCK_FILE: &str = "lock";

#[derive(Debug)]
pub(super) struct ObjectFolder {
    root: PathBuf,
    /// Whether this process has synced the folder itself.
    is_durable: Mutex<bool>,
}

/// An object without its final name, deleted on drop.
#[derive(Debug)]
pub(super) struct DraftFile {
    path: PathBuf,
    file: File,
}

impl Drop for DraftFile {
    fn drop(&mut self) {
        // After the rename there is nothing to delete.
        let _ = fs::remove_file(&self.path);
    }
}

impl DraftFile {
    pub(super) fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.file.write_all(piece)
    }
}

pub(super) struct StoredObject {
    pub(super) sha256: [u8; 32],
    pub(super) bytes: u64,
}

impl ObjectFolder {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), is_durable: Mutex::new(false) }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Opens the file whose lock is held shared while an object is renamed, and exclusively while a stale object is
    /// checked and deleted. The lock also excludes other processes that use the folder, and ends with the process.
    fn open_names_lock(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600).open(self.root.join(NAMES_LOCK_FILE))
    }

    /// One folder per first byte keeps each folder small.
    fn object_path(&self, sha256: &[u8; 32]) -> PathBuf {
        let name = hex::encode(sha256);
        self.root.join(&name[..2]).join(&name[2..])
    }

    fn named_path(&self, name: &ObjectName) -> PathBuf {
        self.root.join(NAMED_FOLDER).join(name.as_str())
    }

    pub(super) fn create_draft(&self) -> io::Result<DraftFile> {
        let path = self.root.join(DRAFTS_FOLDER).join(super::random_name()?);
        let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        self.ensure_durable(false)?;
        let file = match open() {
            // The folder was deleted while the process was running.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.ensure_durable(true)?;
                open()?
            }
            opened => opened?,
        };
        Ok(DraftFile { path, file })
    }

    /// Creates the folder when it is first needed. Each process syncs it once, even if it exists: another process may
    /// just have created it.
    fn ensure_durable(&self, force: bool) -> io::Result<()> {
        let mut is_durable = self.is_durable.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_durable && !force {
            return Ok(());
        }
        let missing_ancestors: Vec<&Path> = self.root.ancestors().skip(1).take_while(|above| !is_dir(above)).collect();
        // Only the folder itself is private; its parents may be shared.
        if let Some(above) = self.root.parent() {
            fs::create_dir_all(above)?;
        }
        create_private_dir(&self.root.join(DRAFTS_FOLDER))?;
        for above in missing_ancestors.iter().copied().chain(self.root.ancestors().nth(missing_ancestors.len() + 1)) {
            sync_dir(above)?;
        }
        *is_durable = true;
        Ok(())
    }

    /// Syncs the draft and renames it to its hash. An existing object is replaced: it has the same bytes, but garbage
    /// collection may be about to delete it.
    pub(super) fn publish(&self, draft: &DraftFile, sha256: &[u8; 32]) -> io::Result<()> {
        self.publish_at(draft, &self.object_path(sha256))
    }

    pub(super) fn publish_named(&self, draft: &DraftFile, name: &ObjectName) -> io::Result<()> {
        self.publish_at(draft, &self.named_path(name))
    }

    fn publish_at(&self, draft: &DraftFile, path: &Path) -> io::Result<()> {
        draft.file.sync_all()?;
        let folder = path.parent().unwrap_or(&self.root);
        create_private_dir(folder)?;
        let names_lock = self.open_names_lock()?;
        names_lock.lock_shared()?;
        fs::rename(&draft.path, path)?;
        drop(names_lock);
        // Syncs all folders up to the root: a folder that another process created may not be durable yet.
        for folder in folder.ancestors() {
            sync_dir(folder)?;
            if folder == self.root {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn open_object(&self, sha256: &[u8; 32]) -> io::Result<Option<File>> {
        none_if_missing(File::open(self.object_path(sha256)))
    }

    pub(super) fn open_named(&self, name: &ObjectName) -> io::Result<Option<File>> {
        none_if_missing(File::open(self.named_path(name)))
    }

    pub(super) fn remove_named(&self, name: &ObjectName) -> io::Result<()> {
        let path = self.named_path(name);
        if none_if_missing(fs::remove_file(&path))?.is_some() {
            sync_dir(path.parent().unwrap_or(&self.root))?;
        }
        Ok(())
    }

    /// Lists the objects directly under a name; `None` if there are none.
    pub(super) fn list_named(&self, name: &ObjectName) -> io::Result<Option<(ReadDir, SystemTime)>> {
        let Some(entries) = none_if_missing(fs::read_dir(self.named_path(name)))? else { return Ok(None) };
        Ok(Some((entries, self.folder_now()?)))
    }

    pub(super) fn object_size(&self, sha256: &[u8; 32]) -> io::Result<Option<u64>> {
        Ok(none_if_missing(fs::metadata(self.object_path(sha256)))?.map(|about| about.len()))
    }

    pub(super) fn named_size(&self, name: &ObjectName) -> io::Result<Option<u64>> {
        Ok(none_if_missing(fs::metadata(self.named_path(name)))?.map(|about| about.len()))
    }

    /// Returns the current time of the file system's clock.
    fn folder_now(&self) -> io::Result<SystemTime> {
        self.create_draft()?.file.metadata()?.modified()
    }

    /// Lists objects with this first byte that are at least `age` old, and deletes stale drafts.
    pub(super) fn list_stale(&self, first: u8, age: Duration) -> io::Result<Vec<StoredObject>> {
        if !self.root.is_dir() {
            return Ok(Vec::new());
        }
        let now = self.folder_now()?;
        if first == 0 {
            for entry in fs::read_dir(self.root.join(DRAFTS_FOLDER))? {
                let path = entry?.path();
                if is_stale(&path, now, age.max(MIN_DRAFT_AGE))? {
                    none_if_missing(fs::remove_file(path))?;
                }
            }
        }
        let folder = self.root.join(hex::encode(&[first]));
        let Some(entries) = none_if_missing(fs::read_dir(&folder))? else { return Ok(Vec::new()) };
        let mut old = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Some(sha256) = entry.file_name().to_str().and_then(|rest| super::parse_hash(first, rest)) else {
                continue;
            };
            if is_stale(&entry.path(), now, age)? {
                let bytes = none_if_missing(entry.metadata())?.map_or(0, |about| about.len());
                old.push(StoredObject { sha256, bytes });
            }
        }
        Ok(old)
    }

    /// Deletes an object if it is still stale: it may have been written again.
    pub(super) fn remove_if_stale(&self, sha256: &[u8; 32], age: Duration) -> io::Result<bool> {
        let (path, now) = (self.object_path(sha256), self.folder_now()?);
        let names_lock = self.open_names_lock()?;
        names_lock.lock()?;
        Ok(is_stale(&path, now, age)? && none_if_missing(fs::remove_file(path))?.is_some())
    }
}

/// A draft that was not written to for this long is abandoned.
pub(super) const MIN_DRAFT_AGE: Duration = Duration::from_hours(1);

/// A missing file is not stale.
pub(super) fn is_stale(path: &Path, now: SystemTime, age: Duration) -> io::Result<bool> {
    let Some(about) = none_if_missing(fs::metadata(path))? else { return Ok(false) };
    Ok(now.duration_since(about.modified()?).is_ok_and(|since| since >= age))
}

/// Creates a folder and its parents with access for the owner only. Existing ones keep their mode.
fn create_private_dir(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn none_if_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Syncs a folder, which makes the names in it durable.
fn sync_dir(folder: &Path) -> io::Result<()> {
    File::open(non_empty_path(folder))?.sync_all()
}

/// The parent of a relative path with one segment is the current folder.
fn non_empty_path(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

fn is_dir(path: &Path) -> bool {
    non_empty_path(path).is_dir()
}
