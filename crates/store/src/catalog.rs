//! The catalog: all lifecycle versions of a store, and which version of each lifecycle is current.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use onceward_core::compile::compile;
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::model::{Definitions, Lifecycle};
use onceward_core::record::Record;
use onceward_core::time::Time;
use sha2::{Digest, Sha256};

use crate::StoreError;
use crate::compatibility;
use crate::log::{NewLogEntry, VersionActivated, activation_entry};
use crate::query::VersionCount;

/// All lifecycle versions that were ever added to a store.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// The current version of each lifecycle. `decide` creates new records with these.
    pub definitions: Definitions,
    /// In the order of addition. A version's number is its index plus 1.
    versions: Vec<StoredVersion>,
    version_numbers: HashMap<Arc<str>, u32>,
    /// In the order of activation.
    activations: Vec<Activation>,
    /// Hashes of file sets that were added before. Adding such a set again changes nothing.
    source_hashes: HashSet<[u8; 32]>,
}

/// A version and its source file. Lifecycles built into the engine have no file.
#[derive(Clone, Debug)]
struct StoredVersion {
    lifecycle: Arc<Lifecycle>,
    file: Option<InputFile>,
}

/// A version becoming current, either when it was added or by an explicit activation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activation {
    pub version_number: u32,
    pub activated_at: Time,
    /// The actor of an explicit activation; `None` if the version became current when it was added.
    pub activated_by: Option<Arc<str>>,
}

/// A lifecycle version with its activation times.
#[derive(Clone, Debug)]
pub struct LifecycleVersion {
    pub lifecycle: Arc<Lifecycle>,
    pub added_at: Time,
    /// Time of the latest activation.
    pub current_since: Time,
    /// The actor of the latest activation, if it was explicit.
    pub activated_by: Option<Arc<str>>,
    pub is_current: bool,
}

/// Encodes files that were added together. They are stored together, because a version may compile only with the other
/// files.
pub(crate) fn encode_source(files: &InputFiles) -> Result<String, StoreError> {
    let pairs: Vec<(&str, &str)> = files.files.iter().map(|file| (file.name.as_str(), &*file.text)).collect();
    serde_json::to_string(&pairs)
        .map_err(|error| StoreError::Rejected(format!("the lifecycle files cannot be stored: {error}")))
}

fn source_hash(source: &str) -> [u8; 32] {
    Sha256::digest(source.as_bytes()).into()
}

impl Catalog {
    /// Returns the number of activations so far. It identifies the set of current versions, because activations are
    /// never removed.
    pub fn revision(&self) -> u32 {
        u32::try_from(self.activations.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of the newest version, which equals the count of versions.
    pub(crate) fn newest_version_number(&self) -> u32 {
        u32::try_from(self.versions.len()).unwrap_or(u32::MAX)
    }

    pub fn by_hash(&self, hash: &str) -> Option<&Arc<Lifecycle>> {
        self.by_number(*self.version_numbers.get(hash)?)
    }

    fn stored_version(&self, number: u32) -> Option<&StoredVersion> {
        self.versions.get(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    pub(crate) fn by_number(&self, number: u32) -> Option<&Arc<Lifecycle>> {
        self.stored_version(number).map(|version| &version.lifecycle)
    }

    pub fn version_hash(&self, number: u32) -> Option<Arc<str>> {
        self.by_number(number).map(|version| Arc::clone(&version.hash))
    }

    pub(crate) fn version_number(&self, lifecycle: &Lifecycle) -> Result<u32, StoreError> {
        self.version_numbers.get(&lifecycle.hash).copied().ok_or_else(|| StoreError::UnknownVersion {
            lifecycle: lifecycle.name.to_string(),
            hash: lifecycle.hash.to_string(),
        })
    }

    pub(crate) fn version_number_by_hash(&self, hash: &Arc<str>) -> Result<u32, StoreError> {
        let unknown = || StoreError::UnknownVersion { lifecycle: "?".to_owned(), hash: hash.to_string() };
        self.version_numbers.get(hash).copied().ok_or_else(unknown)
    }

    /// Returns all versions by hash, as a replay needs them.
    pub fn lifecycles(&self) -> HashMap<Arc<str>, Arc<Lifecycle>> {
        self.versions_since(0).map(|version| (Arc::clone(&version.hash), Arc::clone(version))).collect()
    }

    /// Returns all versions of all lifecycles, in the order of addition.
    pub fn all_versions(&self) -> impl Iterator<Item = &Arc<Lifecycle>> {
        self.versions_since(0)
    }

    /// Returns the versions of a lifecycle, in the order of addition.
    pub fn versions(&self, name: &str) -> Vec<LifecycleVersion> {
        let current = self.definitions.get(name).map(|current| Arc::clone(&current.hash));
        let mut versions: BTreeMap<u32, LifecycleVersion> = BTreeMap::new();
        for activation in &self.activations {
            let Some(lifecycle) = self.by_number(activation.version_number).filter(|own| *own.name == *name) else {
                continue;
            };
            let version = versions.entry(activation.version_number).or_insert_with(|| LifecycleVersion {
                lifecycle: Arc::clone(lifecycle),
                added_at: activation.activated_at,
                current_since: activation.activated_at,
                activated_by: None,
                is_current: Some(&lifecycle.hash) == current.as_ref(),
            });
            (version.current_since, version.activated_by) = (activation.activated_at, activation.activated_by.clone());
        }
        versions.into_values().collect()
    }

    /// Returns the versions that were current at this revision, for re-deciding an old log entry.
    pub fn definitions_at_revision(&self, revision: u32) -> Definitions {
        let mut definitions = Definitions::default();
        for turn in self.activations.iter().take(usize::try_from(revision).unwrap_or(usize::MAX)) {
            if let Some(version) = self.by_number(turn.version_number) {
                make_current(&mut definitions, version);
            }
        }
        definitions
    }

    /// Adds analyzed definitions with their source files and returns the number of new versions. A new version becomes
    /// current. A known version, even one that is not current, changes nothing.
    pub(crate) fn add_new_versions(&mut self, given: &Definitions, files: &InputFiles, at: Time) -> usize {
        let mut new = 0;
        for lifecycle in given.lifecycles.values() {
            if !self.version_numbers.contains_key(&lifecycle.hash) {
                self.add_version(lifecycle, files);
                self.activate(Activation {
                    version_number: self.newest_version_number(),
                    activated_at: at,
                    activated_by: None,
                });
                new += 1;
            }
        }
        new
    }

    /// Returns the catalog with these files added, after static analysis and the compatibility check. Returns `None` if
    /// the files contain no new version. Calls `counts` only if there is a new version.
    pub(crate) fn with_files(
        &self,
        files: &InputFiles,
        at: Time,
        counts: impl FnOnce() -> Result<Vec<VersionCount>, StoreError>,
    ) -> Result<Option<CatalogChange>, StoreError> {
        let change = self.prepare_files(files, at)?;
        if let Some(change) = &change {
            change.ensure_live_compatible(self, &counts()?)?;
        }
        Ok(change)
    }

    /// Like [`with_files`](Self::with_files), but leaves the compatibility check with live records to the caller.
    pub(crate) fn prepare_files(&self, files: &InputFiles, at: Time) -> Result<Option<CatalogChange>, StoreError> {
        // Most starts add the files of the previous start. Those need no compilation or analysis.
        if self.source_hashes.contains(&source_hash(&encode_source(files)?)) {
            return Ok(None);
        }
        let resolved = compatibility::compile_and_analyze(files, self)?;
        let mut catalog = self.clone();
        let new_versions = catalog.add_new_versions(&resolved.definitions, &resolved.files, at);
        let replaced_texts = catalog.replace_kept_states(&resolved.definitions, &resolved.files);
        if new_versions == 0 && replaced_texts.is_empty() {
            return Ok(None);
        }
        let source = encode_source(&resolved.files)?;
        if !replaced_texts.is_empty() {
            // An older text may have the other `keep`, and must not be taken for known.
            catalog.source_hashes.clear();
        }
        catalog.source_hashes.insert(source_hash(&source));
        Ok(Some(CatalogChange { catalog, source: (new_versions > 0).then_some(source), replaced_texts }))
    }

    /// Replaces known versions whose states have another `keep`, which is outside the version hash. Returns the old and
    /// the new text of each file.
    fn replace_kept_states(&mut self, given: &Definitions, files: &InputFiles) -> Vec<(Arc<str>, Arc<str>)> {
        let kept = |lifecycle: &Lifecycle| lifecycle.states.iter().map(|state| state.is_kept).collect::<Vec<_>>();
        let mut replaced_texts = Vec::new();
        for lifecycle in given.lifecycles.values() {
            let number = self.version_numbers.get(&lifecycle.hash).copied().unwrap_or(0);
            let version = usize::try_from(number).ok().and_then(|number| self.versions.get_mut(number.checked_sub(1)?));
            let Some(version) = version.filter(|version| kept(&version.lifecycle) != kept(lifecycle)) else { continue };
            let (Some(old), Some(new)) = (&version.file, source_file(lifecycle, files)) else { continue };
            replaced_texts.push((Arc::clone(&old.text), Arc::clone(&new.text)));
            *version = StoredVersion { lifecycle: Arc::clone(lifecycle), file: Some(new.clone()) };
            if self.definitions.get(&lifecycle.name).is_some_and(|current| current.hash == lifecycle.hash) {
                self.definitions.lifecycles.insert(Arc::clone(&lifecycle.name), Arc::clone(lifecycle));
            }
            if let Some(known) = self.definitions.versions.get_mut(&lifecycle.hash) {
                *known = Arc::clone(lifecycle);
            }
        }
        replaced_texts
    }

    /// Returns whether retention must not delete this record: its state has `keep` in its own version or in the current
    /// one.
    pub fn is_kept(&self, record: &Record) -> bool {
        let state = record.state_name();
        let versions = [self.by_hash(&record.lifecycle.hash), self.definitions.get(&record.lifecycle.name)];
        versions.into_iter().flatten().any(|version| version.states.iter().any(|one| one.is_kept && one.name == *state))
    }

    /// Returns the catalog with a known version activated, and the log entry for it. Returns `None` if the version is
    /// already current.
    pub(crate) fn with_activated_version(
        &self,
        hash: &str,
        by: &str,
        at: Time,
        counts: &[VersionCount],
    ) -> Result<Option<(Self, NewLogEntry)>, StoreError> {
        let unknown = || StoreError::UnknownVersion { lifecycle: "?".to_owned(), hash: hash.to_owned() };
        let definition = *self.version_numbers.get(hash).ok_or_else(unknown)?;
        let version = self.by_number(definition).ok_or_else(unknown)?;
        if self.definitions.get(&version.name).is_some_and(|current| current.hash == version.hash) {
            return Ok(None);
        }
        let mut catalog = self.clone();
        catalog.activate(Activation { version_number: definition, activated_at: at, activated_by: Some(by.into()) });
        compatibility::ensure_live_compatible(&catalog, &[Arc::clone(&version.name)].into(), counts)?;
        let used = VersionActivated {
            revision: catalog.revision(),
            lifecycle: Arc::clone(&version.name),
            definition: Arc::clone(&version.hash),
            by: by.into(),
        };
        Ok(Some((catalog, activation_entry(used, at)?)))
    }

    /// Adds a version without activating it.
    pub(crate) fn add_version(&mut self, lifecycle: &Arc<Lifecycle>, files: &InputFiles) {
        let file = source_file(lifecycle, files).cloned();
        self.versions.push(StoredVersion { lifecycle: Arc::clone(lifecycle), file });
        self.version_numbers.insert(Arc::clone(&lifecycle.hash), self.newest_version_number());
    }

    /// Makes a version current. An unknown version number changes nothing current but still counts as an activation.
    pub(crate) fn activate(&mut self, activation: Activation) {
        if let Some(version) = self.by_number(activation.version_number).cloned() {
            make_current(&mut self.definitions, &version);
        }
        self.activations.push(activation);
    }

    /// Adds the versions of a stored source, in the order of `hashes`. The source was analyzed when it was first added.
    pub(crate) fn restore_source(&mut self, source: &str, hashes: &[Arc<str>]) -> Result<(), StoreError> {
        let bad = |why: String| StoreError::corrupt(format!("the stored lifecycle files are damaged: {why}"));
        let (definitions, files) = Self::compile_source(source).map_err(bad)?;
        for hash in hashes {
            let version = definitions.lifecycles.values().find(|lifecycle| lifecycle.hash == *hash);
            self.add_version(version.ok_or_else(|| bad(format!("no file compiles to version {hash}")))?, &files);
        }
        self.source_hashes.insert(source_hash(source));
        Ok(())
    }

    /// Compiles a stored source, or returns why it does not compile.
    pub(crate) fn compile_source(source: &str) -> Result<(Definitions, InputFiles), String> {
        let pairs: Vec<(String, String)> = serde_json::from_str(source).map_err(|error| error.to_string())?;
        let files = pairs.into_iter().map(|(name, text)| InputFile { name, text: text.into() }).collect();
        let files = InputFiles { files };
        let definitions = compile(&files).definitions.ok_or_else(|| "the files no longer compile".to_owned())?;
        Ok((definitions, files))
    }

    /// Returns whether any version declares this account as outside. A later version cannot undo that.
    pub fn is_outside_account(&self, asset: &str, account: &str) -> bool {
        self.versions_since(0).any(|lifecycle| {
            lifecycle.asset.as_deref() == Some(asset)
                && lifecycle.outside_accounts.iter().any(|name| **name == *account)
        })
    }

    /// Returns the versions after the first `number`.
    pub(crate) fn versions_since(&self, number: u32) -> impl Iterator<Item = &Arc<Lifecycle>> {
        let version = self.versions.get(usize::try_from(number).unwrap_or(usize::MAX)..).unwrap_or_default();
        version.iter().map(|version| &version.lifecycle)
    }

    /// Returns the activations after the first `number`, each with its revision.
    pub(crate) fn activations_since(&self, number: u32) -> impl Iterator<Item = (u32, &Activation)> {
        let activations = self.activations.get(usize::try_from(number).unwrap_or(usize::MAX)..).unwrap_or_default();
        (number.saturating_add(1)..).zip(activations)
    }

    /// Returns the explicit activations, each with its revision.
    pub fn activations(&self) -> impl Iterator<Item = (u32, &Activation)> {
        self.activations_since(0).filter(|(_, turn)| turn.activated_by.is_some())
    }

    /// Returns the source file of a version.
    pub(crate) fn version_file(&self, hash: &str) -> Option<&InputFile> {
        self.stored_version(*self.version_numbers.get(hash)?)?.file.as_ref()
    }
}

/// A changed catalog and what to store with it.
pub(crate) struct CatalogChange {
    pub(crate) catalog: Catalog,
    /// The encoded source files of new versions, if there are any.
    pub(crate) source: Option<String>,
    /// Old and new texts of stored files.
    replaced_texts: Vec<(Arc<str>, Arc<str>)>,
}

impl CatalogChange {
    /// Returns the stored sources whose files have a new text, with their ids.
    pub(crate) fn replaced_sources<I>(
        &self,
        stored: impl IntoIterator<Item = (I, String)>,
    ) -> Result<Vec<(I, String)>, StoreError> {
        let mut changed = Vec::new();
        for (id, source) in stored {
            let mut pairs: Vec<(String, Arc<str>)> =
                serde_json::from_str(&source).map_err(|error| StoreError::corrupt(error.to_string()))?;
            for (_, text) in &mut pairs {
                if let Some((_, new)) = self.replaced_texts.iter().find(|(old, _)| old == text) {
                    *text = Arc::clone(new);
                }
            }
            let files = pairs.into_iter().map(|(name, text)| InputFile { name, text }).collect();
            let new = encode_source(&InputFiles { files })?;
            if new != source {
                changed.push((id, new));
            }
        }
        Ok(changed)
    }

    pub(crate) fn replaces_texts(&self) -> bool {
        !self.replaced_texts.is_empty()
    }

    pub(crate) fn ensure_live_compatible(&self, previous: &Catalog, counts: &[VersionCount]) -> Result<(), StoreError> {
        let new =
            self.catalog.versions_since(previous.newest_version_number()).map(|version| Arc::clone(&version.name));
        compatibility::ensure_live_compatible(&self.catalog, &new.collect(), counts)
    }
}

/// Returns the file that declares a lifecycle; `None` for one that is built into the engine.
fn source_file<'a>(lifecycle: &Lifecycle, files: &'a InputFiles) -> Option<&'a InputFile> {
    files.files.get(usize::try_from(lifecycle.states.first()?.span.file).ok()?)
}

fn make_current(definitions: &mut Definitions, version: &Arc<Lifecycle>) {
    definitions.lifecycles.insert(Arc::clone(&version.name), Arc::clone(version));
    definitions.versions.insert(Arc::clone(&version.hash), Arc::clone(version));
}
