//! Finds lifecycle files whose version is not the active one.
//!
//! A database keeps every version. A file with an older version does not displace a newer one, because an old server
//! that restarts would do so by accident. So the active version may differ from the file.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use onceward_core::model::Definitions;
use onceward_store::{Catalog, short_hash};

/// The versions of lifecycle files: hashes by name.
pub(crate) type FileVersions = BTreeMap<Arc<str>, Arc<str>>;

/// A file that differs from the active version of its lifecycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InactiveFile {
    lifecycle: Arc<str>,
    file_hash: Arc<str>,
    active_hash: Arc<str>,
}

impl InactiveFile {
    /// Returns the command that activates the file's version.
    pub(crate) fn command(&self) -> String {
        format!("onceward lifecycle use {} {}", self.lifecycle, short_hash(&self.file_hash))
    }
}

impl fmt::Display for InactiveFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (active, file) = (short_hash(&self.active_hash), short_hash(&self.file_hash));
        write!(out, "{}: version {active} is active, not version {file} of the file", self.lifecycle)
    }
}

pub(crate) fn file_versions(definitions: &Definitions) -> FileVersions {
    definitions.lifecycles.values().map(|own| (Arc::clone(&own.name), Arc::clone(&own.hash))).collect()
}

/// Returns the files whose version is in the database, but not active.
pub(crate) fn find_inactive_files(files: &FileVersions, catalog: &Catalog) -> Vec<InactiveFile> {
    let stored = files.iter().filter(|(_, hash)| catalog.by_hash(hash).is_some());
    let inactive = stored.filter_map(|(name, hash)| {
        let active = catalog.definitions.get(name).filter(|active| active.hash != *hash)?;
        Some(InactiveFile {
            lifecycle: Arc::clone(name),
            file_hash: Arc::clone(hash),
            active_hash: Arc::clone(&active.hash),
        })
    });
    inactive.collect()
}
