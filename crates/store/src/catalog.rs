//! The lifecycles that a store knows: every version that a record may still live by, and which is the current one.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::compile::compile;
use onceward_core::diagnostic::{File, Files};
use onceward_core::model::{Definitions, Lifecycle};

use crate::StoreError;

/// All versions of all lifecycles that were ever given to a store.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// The current version of each: what `decide` makes new records by.
    pub definitions: Definitions,
    /// In the order in which they came; a version's number is its place, from 1.
    versions: Vec<Arc<Lifecycle>>,
    numbers: HashMap<Arc<str>, u32>,
}

/// Files that were given together, as a store keeps them: a version compiles only beside those that came with it.
pub(crate) fn source_of(files: &Files) -> Result<String, StoreError> {
    let pairs: Vec<(&str, &str)> = files.files.iter().map(|file| (file.name.as_str(), &*file.text)).collect();
    serde_json::to_string(&pairs).map_err(|error| StoreError::Rejected(format!("lifecycle files: {error}")))
}

impl Catalog {
    /// Which set of versions this is: how many there are. Names the set for ever, since versions only come.
    pub fn number(&self) -> u32 {
        u32::try_from(self.versions.len()).unwrap_or(u32::MAX)
    }

    pub fn by_hash(&self, hash: &str) -> Option<&Arc<Lifecycle>> {
        self.by_number(*self.numbers.get(hash)?)
    }

    pub(crate) fn by_number(&self, number: u32) -> Option<&Arc<Lifecycle>> {
        self.versions.get(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    pub(crate) fn number_of(&self, lifecycle: &Lifecycle) -> Result<u32, StoreError> {
        self.numbers.get(&lifecycle.hash).copied().ok_or_else(|| StoreError::UnknownDefinition {
            lifecycle: lifecycle.name.to_string(),
            hash: lifecycle.hash.to_string(),
        })
    }

    /// All versions by hash, as a replay needs them.
    pub fn lifecycles(&self) -> HashMap<Arc<str>, Arc<Lifecycle>> {
        self.versions.iter().map(|version| (Arc::clone(&version.hash), Arc::clone(version))).collect()
    }

    /// The current versions as they were when the catalog had this number: for deciding an old entry again.
    pub fn as_of(&self, number: u32) -> Definitions {
        let mut definitions = Definitions::default();
        for version in self.versions.iter().take(usize::try_from(number).unwrap_or(usize::MAX)) {
            definitions.lifecycles.insert(Arc::clone(&version.name), Arc::clone(version));
        }
        definitions
    }

    /// Take in definitions that were found sound. A version never seen becomes current; one that is known, however old,
    /// displaces nothing. How many are new.
    pub(crate) fn learn(&mut self, given: &Definitions) -> usize {
        let mut new = 0;
        for lifecycle in given.lifecycles.values() {
            if !self.numbers.contains_key(&lifecycle.hash) {
                self.add(lifecycle);
                new += 1;
            }
        }
        new
    }

    pub(crate) fn add(&mut self, lifecycle: &Arc<Lifecycle>) {
        self.versions.push(Arc::clone(lifecycle));
        self.numbers.insert(Arc::clone(&lifecycle.hash), self.number());
        self.definitions.lifecycles.insert(Arc::clone(&lifecycle.name), Arc::clone(lifecycle));
    }

    /// Take in a kept source again: these hashes came with it, in this order. They were proven when they came.
    pub(crate) fn recall(&mut self, source: &str, hashes: &[Arc<str>]) -> Result<(), StoreError> {
        let bad = |why: String| StoreError::corrupt(format!("kept lifecycle files: {why}"));
        let definitions = Self::compiled(source).map_err(bad)?;
        for hash in hashes {
            let version = definitions.lifecycles.values().find(|lifecycle| lifecycle.hash == *hash);
            self.add(version.ok_or_else(|| bad(format!("no file gives the version {hash}")))?);
        }
        Ok(())
    }

    /// A kept source compiled again, or why it cannot be.
    pub(crate) fn compiled(source: &str) -> Result<Definitions, String> {
        let pairs: Vec<(String, String)> = serde_json::from_str(source).map_err(|error| error.to_string())?;
        let files = pairs.into_iter().map(|(name, text)| File { name, text: text.into() }).collect();
        compile(&Files { files }).definitions.ok_or_else(|| "they no longer compile".into())
    }

    /// Whether any version calls this account one that stands for the world: once it does, it does for ever.
    pub fn ever_outside(&self, asset: &str, account: &str) -> bool {
        self.versions.iter().any(|lifecycle| {
            lifecycle.asset.as_deref() == Some(asset) && lifecycle.outside.iter().any(|name| **name == *account)
        })
    }

    /// The versions after this many.
    pub(crate) fn since(&self, number: u32) -> &[Arc<Lifecycle>] {
        self.versions.get(usize::try_from(number).unwrap_or(usize::MAX)..).unwrap_or_default()
    }
}
