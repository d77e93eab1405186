//! Checks whether lifecycle files are compatible with a store: alone, with the lifecycles that they reference, and with
//! the versions of live records.
//!
//! Records of different versions interact: a transition of one sends an event to another, reads its fields or spawns
//! it. Therefore the store compiles a new current version together with each other version that has live records, one
//! at a time. Two older versions were checked together when the later one was added.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onceward_core::compile::{compile, declared_lifecycles};
use onceward_core::count_noun;
use onceward_core::diagnostic::{Diagnostic, InputFile, InputFiles, Severity};
use onceward_core::model::Definitions;

use crate::StoreError;
use crate::catalog::Catalog;
use crate::query::VersionCount;

/// Diagnostics about lifecycle files, with the files they refer to.
#[derive(Clone, Debug)]
pub struct DiagnosticReport {
    /// The given files first, then the stored files that were compiled with them.
    pub files: InputFiles,
    pub diagnostics: Vec<Diagnostic>,
    /// The stored version that the files conflict with, if they are valid on their own.
    pub incompatible_with: Option<String>,
}

impl From<DiagnosticReport> for StoreError {
    fn from(findings: DiagnosticReport) -> Self {
        Self::InvalidLifecycles(Box::new(findings))
    }
}

/// Compiled definitions, and all files needed to compile them again.
pub(crate) struct ResolvedFiles {
    pub(crate) definitions: Definitions,
    pub(crate) files: InputFiles,
}

/// Compiles and analyzes files. If they reference lifecycles that are not among them, adds the stored current versions
/// of these.
pub(crate) fn compile_and_analyze(given: &InputFiles, catalog: &Catalog) -> Result<ResolvedFiles, StoreError> {
    let found = match onceward_core::load_definitions(given) {
        Ok(loaded) => return Ok(ResolvedFiles { definitions: loaded.definitions, files: given.clone() }),
        Err(found) => found,
    };
    let unsound = |diagnostics: Vec<Diagnostic>, files: &InputFiles| {
        Err(DiagnosticReport { files: files.clone(), diagnostics, incompatible_with: None }.into())
    };
    if !found.iter().any(|diagnostic| diagnostic.code == "unknown-lifecycle") {
        return unsound(found, given);
    }
    let current = |name: &str| catalog.definitions.get(name).map(|current| Arc::clone(&current.hash));
    let files = add_referenced_files(given.clone(), catalog, current);
    if files.files.len() == given.files.len() {
        return unsound(found, given);
    }
    match onceward_core::load_definitions(&files) {
        Ok(loaded) => Ok(ResolvedFiles { definitions: loaded.definitions, files }),
        Err(found) => unsound(found, &files),
    }
}

/// Adds the files of all referenced lifecycles that are missing, in the version that `choose_version` returns. Any
/// mention of a lifecycle's name counts as a reference; an extra file does no harm.
fn add_referenced_files(
    mut files: InputFiles,
    catalog: &Catalog,
    choose_version: impl Fn(&str) -> Option<Arc<str>>,
) -> InputFiles {
    let mut present = declared_lifecycles(&files);
    let mut next_index = 0;
    while let Some(file) = files.files.get(next_index) {
        next_index += 1;
        let text = Arc::clone(&file.text);
        for name in catalog.definitions.lifecycles.keys().filter(|name| text.contains(&***name)) {
            let file = choose_version(name).and_then(|hash| stored_file(catalog, &hash));
            if let (true, Some(file)) = (!present.contains(name), file) {
                present.insert(Arc::clone(name));
                files.files.push(file);
            }
        }
    }
    files
}

/// Returns a version's file under a name that shows its origin.
fn stored_file(catalog: &Catalog, hash: &str) -> Option<InputFile> {
    let InputFile { name, text } = catalog.version_file(hash)?;
    let plain = name.split(" (version ").next().unwrap_or(name);
    Some(InputFile { name: format!("{plain} (version {} in the database)", short_hash(hash)), text: Arc::clone(text) })
}

/// Returns the first 12 characters of a hash, enough for people to tell versions apart.
pub fn short_hash(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// Checks the current versions of `after` against every version that live records use. `changed` lists the lifecycles
/// whose current version changes.
pub(crate) fn ensure_live_compatible(
    after: &Catalog,
    changed: &BTreeSet<Arc<str>>,
    counts: &[VersionCount],
) -> Result<(), StoreError> {
    let mut live_counts: BTreeMap<&Arc<str>, u64> = BTreeMap::new();
    for count in counts.iter().filter(|count| !count.is_final) {
        *live_counts.entry(&count.definition).or_default() += count.count;
    }
    let current = |name: &str| after.definitions.get(name).map(|current| Arc::clone(&current.hash));
    // Only lifecycles that changed or have live records can interact.
    let mut names: BTreeSet<Arc<str>> = changed.clone();
    for hash in live_counts.keys() {
        names.extend(after.by_hash(hash).map(|version| Arc::clone(&version.name)));
    }
    compile_together(after, &names, current, None)?;
    for (hash, records) in live_counts {
        let Some(version) = after.by_hash(hash) else { continue };
        let others = changed.iter().any(|name| *name != version.name);
        if !others || current(&version.name).as_ref() == Some(hash) {
            continue;
        }
        let choose = |name: &str| if *name == *version.name { Some(Arc::clone(hash)) } else { current(name) };
        let records = count_noun(records, "live record", "live records");
        let beside = format!("version {} of {}, which has {records}", short_hash(hash), version.name);
        compile_together(after, &names, choose, Some(beside))?;
    }
    Ok(())
}

/// Compiles one version of each named lifecycle together with everything they reference.
fn compile_together(
    catalog: &Catalog,
    names: &BTreeSet<Arc<str>>,
    choose_version: impl Fn(&str) -> Option<Arc<str>>,
    incompatible_with: Option<String>,
) -> Result<(), StoreError> {
    let files = names.iter().filter_map(|name| stored_file(catalog, &choose_version(name)?)).collect();
    let files = add_referenced_files(InputFiles { files }, catalog, choose_version);
    let diagnostics = compile(&files).diagnostics;
    if diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error) {
        let incompatible_with = incompatible_with.or_else(|| Some("the stored lifecycles".to_owned()));
        return Err(DiagnosticReport { files, diagnostics, incompatible_with }.into());
    }
    Ok(())
}
