//! The lifecycles that a store knows: every version that a record may still live by, and which is the current one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use onceward_core::compile::compile;
use onceward_core::diagnostic::{File, Files};
use onceward_core::model::{Definitions, Lifecycle};
use onceward_core::time::Time;
use sha2::{Digest, Sha256};

use crate::StoreError;
use crate::fit;
use crate::log::{NewEntry, Used, entry_of_use};
use crate::query::VersionCount;

/// All versions of all lifecycles that were ever given to a store.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// The current version of each: what `decide` makes new records by.
    pub definitions: Definitions,
    /// In the order in which they came; a version's number is its place, from 1.
    versions: Vec<Kept>,
    numbers: HashMap<Arc<str>, u32>,
    /// Which version became the current one of its lifecycle, in this order.
    turns: Vec<Turn>,
    /// Files that were given together before, by their hash: they bring nothing new.
    sources: HashSet<[u8; 32]>,
}

/// A version, and the file that it came from; the engine's own came from none.
#[derive(Clone, Debug)]
struct Kept {
    lifecycle: Arc<Lifecycle>,
    file: Option<File>,
}

/// A version became the current one: because it came, or because somebody wanted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The version's number.
    pub definition: u32,
    pub at: Time,
    /// Who wanted it; `None` where it came.
    pub by: Option<Arc<str>>,
}

/// A version of a lifecycle, as people ask for it.
#[derive(Clone, Debug)]
pub struct Version {
    pub lifecycle: Arc<Lifecycle>,
    /// When it came.
    pub came_at: Time,
    /// When it last became the current one.
    pub current_since: Time,
    /// By whose word, where it was somebody's.
    pub by: Option<Arc<str>>,
    pub is_current: bool,
}

/// Files that were given together, as a store keeps them: a version compiles only beside those that came with it.
pub(crate) fn source_of(files: &Files) -> Result<String, StoreError> {
    let pairs: Vec<(&str, &str)> = files.files.iter().map(|file| (file.name.as_str(), &*file.text)).collect();
    serde_json::to_string(&pairs).map_err(|error| StoreError::Rejected(format!("lifecycle files: {error}")))
}

fn digest(source: &str) -> [u8; 32] {
    Sha256::digest(source.as_bytes()).into()
}

impl Catalog {
    /// Which set of current versions this is: how often one became current. Names the set for ever, since that is never taken back.
    pub fn number(&self) -> u32 {
        u32::try_from(self.turns.len()).unwrap_or(u32::MAX)
    }

    /// How many versions there are: the number of the newest.
    pub(crate) fn newest(&self) -> u32 {
        u32::try_from(self.versions.len()).unwrap_or(u32::MAX)
    }

    pub fn by_hash(&self, hash: &str) -> Option<&Arc<Lifecycle>> {
        self.by_number(*self.numbers.get(hash)?)
    }

    fn kept(&self, number: u32) -> Option<&Kept> {
        self.versions.get(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    pub(crate) fn by_number(&self, number: u32) -> Option<&Arc<Lifecycle>> {
        self.kept(number).map(|kept| &kept.lifecycle)
    }

    /// The hash of the version with this number.
    pub fn hash_of(&self, number: u32) -> Option<Arc<str>> {
        self.by_number(number).map(|version| Arc::clone(&version.hash))
    }

    pub(crate) fn number_of(&self, lifecycle: &Lifecycle) -> Result<u32, StoreError> {
        self.numbers.get(&lifecycle.hash).copied().ok_or_else(|| StoreError::UnknownDefinition {
            lifecycle: lifecycle.name.to_string(),
            hash: lifecycle.hash.to_string(),
        })
    }

    pub(crate) fn number_by(&self, hash: &Arc<str>) -> Result<u32, StoreError> {
        let unknown = || StoreError::UnknownDefinition { lifecycle: "?".to_owned(), hash: hash.to_string() };
        self.numbers.get(hash).copied().ok_or_else(unknown)
    }

    /// All versions by hash, as a replay needs them.
    pub fn lifecycles(&self) -> HashMap<Arc<str>, Arc<Lifecycle>> {
        self.since(0).map(|version| (Arc::clone(&version.hash), Arc::clone(version))).collect()
    }

    /// Every version of every lifecycle, in the order in which they came.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Lifecycle>> {
        self.since(0)
    }

    /// The versions of a lifecycle in the order in which they came.
    pub fn versions(&self, name: &str) -> Vec<Version> {
        let current = self.definitions.get(name).map(|current| Arc::clone(&current.hash));
        let mut versions: BTreeMap<u32, Version> = BTreeMap::new();
        for turn in &self.turns {
            let Some(lifecycle) = self.by_number(turn.definition).filter(|own| *own.name == *name) else { continue };
            let version = versions.entry(turn.definition).or_insert_with(|| Version {
                lifecycle: Arc::clone(lifecycle),
                came_at: turn.at,
                current_since: turn.at,
                by: None,
                is_current: Some(&lifecycle.hash) == current.as_ref(),
            });
            (version.current_since, version.by) = (turn.at, turn.by.clone());
        }
        versions.into_values().collect()
    }

    /// The current versions as they were when the catalog had this number: for deciding an old entry again.
    pub fn as_of(&self, number: u32) -> Definitions {
        let mut definitions = Definitions::default();
        for turn in self.turns.iter().take(usize::try_from(number).unwrap_or(usize::MAX)) {
            if let Some(version) = self.by_number(turn.definition) {
                make_current(&mut definitions, version);
            }
        }
        definitions
    }

    /// Take in definitions that were found sound, and the files they came from. A version never seen becomes current; one that is
    /// known, however old, displaces nothing. How many are new.
    pub(crate) fn learn(&mut self, given: &Definitions, files: &Files, at: Time) -> usize {
        let mut new = 0;
        for lifecycle in given.lifecycles.values() {
            if !self.numbers.contains_key(&lifecycle.hash) {
                self.add(lifecycle, files);
                self.turn(Turn { definition: self.newest(), at, by: None });
                new += 1;
            }
        }
        new
    }

    /// The catalog with these files in it, once they are proven and fit what is there; `None` where they bring nothing new. How many
    /// records live by what is asked only then.
    pub(crate) fn with(
        &self,
        files: &Files,
        at: Time,
        counts: impl FnOnce() -> Result<Vec<VersionCount>, StoreError>,
    ) -> Result<Option<Change>, StoreError> {
        let change = self.brought(files, at)?;
        if let Some(change) = &change {
            change.fits_the_living(self, &counts()?)?;
        }
        Ok(change)
    }

    /// The same, where whether they fit those who live is still to be seen.
    pub(crate) fn brought(&self, files: &Files, at: Time) -> Result<Option<Change>, StoreError> {
        // Most starts bring what was there before; then nothing need be compiled or proven again.
        if self.sources.contains(&digest(&source_of(files)?)) {
            return Ok(None);
        }
        let brought = fit::prove(files, self)?;
        let mut catalog = self.clone();
        if catalog.learn(&brought.definitions, &brought.files, at) == 0 {
            return Ok(None);
        }
        let source = source_of(&brought.files)?;
        catalog.sources.insert(digest(&source));
        Ok(Some(Change { catalog, source }))
    }

    /// The catalog with a known version as the current one, and what the log tells of it; `None` where it is so already.
    pub(crate) fn using(
        &self,
        hash: &str,
        by: &str,
        at: Time,
        counts: &[VersionCount],
    ) -> Result<Option<(Self, NewEntry)>, StoreError> {
        let unknown = || StoreError::UnknownDefinition { lifecycle: "?".to_owned(), hash: hash.to_owned() };
        let definition = *self.numbers.get(hash).ok_or_else(unknown)?;
        let version = self.by_number(definition).ok_or_else(unknown)?;
        if self.definitions.get(&version.name).is_some_and(|current| current.hash == version.hash) {
            return Ok(None);
        }
        let mut catalog = self.clone();
        catalog.turn(Turn { definition, at, by: Some(by.into()) });
        fit::fits_the_living(&catalog, &[Arc::clone(&version.name)].into(), counts)?;
        let used = Used {
            number: catalog.number(),
            lifecycle: Arc::clone(&version.name),
            definition: Arc::clone(&version.hash),
            by: by.into(),
        };
        Ok(Some((catalog, entry_of_use(used, at)?)))
    }

    /// Know a version; it is nobody's current one yet.
    pub(crate) fn add(&mut self, lifecycle: &Arc<Lifecycle>, files: &Files) {
        let file = lifecycle.states.first().and_then(|state| files.files.get(usize::try_from(state.at.file).ok()?));
        self.versions.push(Kept { lifecycle: Arc::clone(lifecycle), file: file.cloned() });
        self.numbers.insert(Arc::clone(&lifecycle.hash), self.newest());
    }

    /// A version becomes the current one. One that is not known changes nothing, and is counted all the same.
    pub(crate) fn turn(&mut self, turn: Turn) {
        if let Some(version) = self.by_number(turn.definition).cloned() {
            make_current(&mut self.definitions, &version);
        }
        self.turns.push(turn);
    }

    /// Take in a kept source again: these hashes came with it, in this order. They were proven when they came.
    pub(crate) fn recall(&mut self, source: &str, hashes: &[Arc<str>]) -> Result<(), StoreError> {
        let bad = |why: String| StoreError::corrupt(format!("kept lifecycle files: {why}"));
        let (definitions, files) = Self::compiled(source).map_err(bad)?;
        for hash in hashes {
            let version = definitions.lifecycles.values().find(|lifecycle| lifecycle.hash == *hash);
            self.add(version.ok_or_else(|| bad(format!("no file gives the version {hash}")))?, &files);
        }
        self.sources.insert(digest(source));
        Ok(())
    }

    /// A kept source compiled again, or why it cannot be.
    pub(crate) fn compiled(source: &str) -> Result<(Definitions, Files), String> {
        let pairs: Vec<(String, String)> = serde_json::from_str(source).map_err(|error| error.to_string())?;
        let files = pairs.into_iter().map(|(name, text)| File { name, text: text.into() }).collect();
        let files = Files { files };
        let definitions = compile(&files).definitions.ok_or_else(|| "they no longer compile".to_owned())?;
        Ok((definitions, files))
    }

    /// Whether any version calls this account one that stands for the world: once it does, it does for ever.
    pub fn ever_outside(&self, asset: &str, account: &str) -> bool {
        self.since(0).any(|lifecycle| {
            lifecycle.asset.as_deref() == Some(asset) && lifecycle.outside.iter().any(|name| **name == *account)
        })
    }

    /// The versions after this many.
    pub(crate) fn since(&self, number: u32) -> impl Iterator<Item = &Arc<Lifecycle>> {
        let kept = self.versions.get(usize::try_from(number).unwrap_or(usize::MAX)..).unwrap_or_default();
        kept.iter().map(|kept| &kept.lifecycle)
    }

    /// What became current after this many turns, with its number.
    pub(crate) fn turns_since(&self, number: u32) -> impl Iterator<Item = (u32, &Turn)> {
        let turns = self.turns.get(usize::try_from(number).unwrap_or(usize::MAX)..).unwrap_or_default();
        (number.saturating_add(1)..).zip(turns)
    }

    /// What became current by somebody's word, with its number.
    pub fn uses(&self) -> impl Iterator<Item = (u32, &Turn)> {
        self.turns_since(0).filter(|(_, turn)| turn.by.is_some())
    }

    /// The file that a version came from.
    pub(crate) fn file_of(&self, hash: &str) -> Option<&File> {
        self.kept(*self.numbers.get(hash)?)?.file.as_ref()
    }
}

/// A catalog as it is to be, and the files that brought it there, as they are kept.
pub(crate) struct Change {
    pub(crate) catalog: Catalog,
    pub(crate) source: String,
}

impl Change {
    pub(crate) fn fits_the_living(&self, before: &Catalog, counts: &[VersionCount]) -> Result<(), StoreError> {
        let new = self.catalog.since(before.newest()).map(|version| Arc::clone(&version.name));
        fit::fits_the_living(&self.catalog, &new.collect(), counts)
    }
}

fn make_current(definitions: &mut Definitions, version: &Arc<Lifecycle>) {
    definitions.lifecycles.insert(Arc::clone(&version.name), Arc::clone(version));
    definitions.versions.insert(Arc::clone(&version.hash), Arc::clone(version));
}
