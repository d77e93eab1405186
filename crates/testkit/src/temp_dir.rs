//! Temporary folders for tests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder that is removed on drop.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    #[allow(clippy::new_without_default, reason = "it creates a folder, which a default must not do")]
    pub fn new() -> Self {
        static NEXT_DIR_NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("onceward-{}-{}", std::process::id(), NEXT_DIR_NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    /// Returns the path of a database in the folder.
    pub fn database_path(&self) -> PathBuf {
        self.join("test.db")
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
