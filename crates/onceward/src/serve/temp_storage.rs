//! The folder of a temporary database.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A private folder that is deleted with the process.
pub(super) struct TempStorage(PathBuf);

/// The process id and a random number follow this prefix.
const TEMP_DIR_PREFIX: &str = "onceward-serve-";

impl TempStorage {
    pub(super) fn new() -> Result<Self> {
        let temp_root = std::env::temp_dir();
        remove_stale_dirs(&temp_root);
        let path = temp_root.join(format!("{TEMP_DIR_PREFIX}{}-{:016x}", std::process::id(), getrandom::u64()?));
        std::fs::DirBuilder::new().mode(0o700).create(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Deletes the folders of processes that were killed and could not delete their own.
fn remove_stale_dirs(temp_root: &Path) {
    for entry in std::fs::read_dir(temp_root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid =
            name.to_str().and_then(|name| name.strip_prefix(TEMP_DIR_PREFIX)?.split_once('-')?.0.parse::<u32>().ok());
        // In a container, an earlier process may have had the same id.
        let is_dead = |process: u32| process == std::process::id() || !Path::new(&format!("/proc/{process}")).exists();
        if pid.is_some_and(is_dead) {
            // Fails for another user's folder, which must stay.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for TempStorage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
