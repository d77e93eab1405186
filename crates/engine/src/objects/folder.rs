//! A folder of objects. Each is written under a name of no meaning, made durable, and only then given that of its hash; so what
//! has such a name is whole, whenever the power went.

use std::fs::{self, DirBuilder, File, OpenOptions, ReadDir};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use onceward_core::hex;

use super::name::Name;

/// Where drafts are written. No hash begins so.
pub(super) const DRAFTS: &str = "drafts";

/// What has a name of its owner's choice. No hash begins so, either.
pub(super) const NAMED: &str = "named";

#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    /// Held to give an object its name, and to look whether one is still old and take it out.
    names: Mutex<()>,
    /// Whether this process has seen to it that the folder itself is durable.
    is_there: Mutex<bool>,
}

/// An object that has no name yet. Dropped, it is gone.
#[derive(Debug)]
pub(super) struct Draft {
    path: PathBuf,
    file: File,
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Where it was given its name, nothing is there any more.
        let _ = fs::remove_file(&self.path);
    }
}

impl Draft {
    pub(super) fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.file.write_all(piece)
    }
}

/// An object by its hash.
pub(super) struct Found {
    pub(super) sha256: [u8; 32],
    pub(super) bytes: u64,
}

impl Folder {
    pub(super) fn at(root: &Path) -> Self {
        Self { root: root.to_owned(), names: Mutex::new(()), is_there: Mutex::new(false) }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    fn names(&self) -> MutexGuard<'_, ()> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A folder for each first byte: none grows so large that looking through it takes long.
    fn path(&self, sha256: &[u8; 32]) -> PathBuf {
        let name = hex::encode(sha256);
        self.root.join(&name[..2]).join(&name[2..])
    }

    fn named(&self, name: &Name) -> PathBuf {
        self.root.join(NAMED).join(name.as_str())
    }

    pub(super) fn draft(&self) -> io::Result<Draft> {
        let path = self.root.join(DRAFTS).join(super::chance()?);
        let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        self.make(false)?;
        let file = match open() {
            // Somebody has taken the folder away.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make(true)?;
                open()?
            }
            opened => opened?,
        };
        Ok(Draft { path, file })
    }

    /// The folder is made when there is something to put there. Once in a process it is brought to the disk even if it is there
    /// already: another process may have made it this moment.
    fn make(&self, again: bool) -> io::Result<()> {
        let mut is_there = self.is_there.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_there && !again {
            return Ok(());
        }
        let new: Vec<&Path> = self.root.ancestors().skip(1).take_while(|above| !is_folder(above)).collect();
        // Only the folder itself is for nobody else: what stands above it may be for others, too.
        if let Some(above) = self.root.parent() {
            fs::create_dir_all(above)?;
        }
        make_private(&self.root.join(DRAFTS))?;
        for above in new.iter().copied().chain(self.root.ancestors().nth(new.len() + 1)) {
            sync(above)?;
        }
        *is_there = true;
        Ok(())
    }

    /// Make it durable, and give it its name. One that is there already is replaced: it is as good, but older, and may be about
    /// to be collected.
    pub(super) fn keep(&self, draft: &Draft, sha256: &[u8; 32]) -> io::Result<()> {
        self.give(draft, &self.path(sha256))
    }

    pub(super) fn keep_named(&self, draft: &Draft, name: &Name) -> io::Result<()> {
        self.give(draft, &self.named(name))
    }

    fn give(&self, draft: &Draft, path: &Path) -> io::Result<()> {
        draft.file.sync_all()?;
        let folder = path.parent().unwrap_or(&self.root);
        make_private(folder)?;
        let names = self.names();
        fs::rename(&draft.path, path)?;
        drop(names);
        // Up to our own, whoever made them: that one is there does not say that it is on the disk.
        for folder in folder.ancestors() {
            sync(folder)?;
            if folder == self.root {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn read(&self, sha256: &[u8; 32]) -> io::Result<Option<File>> {
        found(File::open(self.path(sha256)))
    }

    pub(super) fn read_named(&self, name: &Name) -> io::Result<Option<File>> {
        found(File::open(self.named(name)))
    }

    pub(super) fn remove_named(&self, name: &Name) -> io::Result<()> {
        let path = self.named(name);
        if found(fs::remove_file(&path))?.is_some() {
            sync(path.parent().unwrap_or(&self.root))?;
        }
        Ok(())
    }

    /// What lies directly under a name; `None` where nothing does.
    pub(super) fn under(&self, name: &Name) -> io::Result<Option<(ReadDir, SystemTime)>> {
        let Some(entries) = found(fs::read_dir(self.named(name)))? else { return Ok(None) };
        Ok(Some((entries, self.now()?)))
    }

    pub(super) fn size(&self, sha256: &[u8; 32]) -> io::Result<Option<u64>> {
        Ok(found(fs::metadata(self.path(sha256)))?.map(|about| about.len()))
    }

    pub(super) fn size_named(&self, name: &Name) -> io::Result<Option<u64>> {
        Ok(found(fs::metadata(self.named(name)))?.map(|about| about.len()))
    }

    /// Now, by the clock that the folder's own times come from.
    fn now(&self) -> io::Result<SystemTime> {
        self.draft()?.file.metadata()?.modified()
    }

    /// Objects of one first byte that were written so long ago, and drafts that whoever wrote them has left behind.
    pub(super) fn old(&self, first: u8, age: Duration) -> io::Result<Vec<Found>> {
        if !self.root.is_dir() {
            return Ok(Vec::new());
        }
        let now = self.now()?;
        if first == 0 {
            for entry in fs::read_dir(self.root.join(DRAFTS))? {
                let path = entry?.path();
                if is_old(&path, now, age.max(LEFT_BEHIND))? {
                    found(fs::remove_file(path))?;
                }
            }
        }
        let folder = self.root.join(hex::encode(&[first]));
        let Some(entries) = found(fs::read_dir(&folder))? else { return Ok(Vec::new()) };
        let mut old = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Some(sha256) = entry.file_name().to_str().and_then(|rest| super::hash(first, rest)) else { continue };
            if is_old(&entry.path(), now, age)? {
                let bytes = found(entry.metadata())?.map_or(0, |about| about.len());
                old.push(Found { sha256, bytes });
            }
        }
        Ok(old)
    }

    /// Take an object out if it is still as old: somebody may have brought it again meanwhile.
    pub(super) fn remove(&self, sha256: &[u8; 32], age: Duration) -> io::Result<bool> {
        let (path, now) = (self.path(sha256), self.now()?);
        let _names = self.names();
        Ok(is_old(&path, now, age)? && found(fs::remove_file(path))?.is_some())
    }
}

/// A draft that nobody has written to for so long is nobody's.
pub(super) const LEFT_BEHIND: Duration = Duration::from_hours(1);

/// Gone is not old.
pub(super) fn is_old(path: &Path, now: SystemTime, age: Duration) -> io::Result<bool> {
    let Some(about) = found(fs::metadata(path))? else { return Ok(false) };
    Ok(now.duration_since(about.modified()?).is_ok_and(|since| since >= age))
}

/// A folder, and those above it, for nobody else where they are made now. One that is there stays as it is set.
fn make_private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// What is not there is nothing, not an error.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A name in a folder is durable when the folder is.
fn sync(folder: &Path) -> io::Result<()> {
    File::open(here(folder))?.sync_all()
}

/// What stands above a relative path is the folder that we are in.
fn here(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

fn is_folder(path: &Path) -> bool {
    here(path).is_dir()
}
