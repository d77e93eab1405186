//! Whether lifecycle files fit what a store knows: by themselves, with the lifecycles that they name, and with the versions that
//! records still live by.
//!
//! Records of different versions meet: a row of one offers an event to a record of another, reads its fields, spawns it. So a
//! version that is to be current is compiled together with every other one that still has living records, each of its own
//! lifecycle in turn. Two old versions that meet were looked at when the later of them came.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onceward_core::compile::{compile, declared_lifecycles};
use onceward_core::count_noun;
use onceward_core::diagnostic::{Diagnostic, InputFile, InputFiles, Severity};
use onceward_core::model::Definitions;

use crate::StoreError;
use crate::catalog::Catalog;
use crate::query::VersionCount;

/// What is wrong with lifecycle files, and the files that it is told of.
#[derive(Clone, Debug)]
pub struct DiagnosticReport {
    /// Those that were given first, then those of the store that they met.
    pub files: InputFiles,
    pub diagnostics: Vec<Diagnostic>,
    /// The version that they do not fit, where they are sound by themselves.
    pub incompatible_with: Option<String>,
}

impl From<DiagnosticReport> for StoreError {
    fn from(findings: DiagnosticReport) -> Self {
        Self::InvalidLifecycles(Box::new(findings))
    }
}

/// What files come to: all that they give, and the files that are to be kept, so that it compiles again.
pub(crate) struct ResolvedFiles {
    pub(crate) definitions: Definitions,
    pub(crate) files: InputFiles,
}

/// Prove files sound. Where they name lifecycles that are not among them, those that the store has stand beside them.
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

/// Files, and those of all lifecycles that they name and that are not among them; of each the version that `choose` gives. A name that
/// stands anywhere in a file counts: one too many does no harm.
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

/// A version's file, under a name that tells where it is from.
fn stored_file(catalog: &Catalog, hash: &str) -> Option<InputFile> {
    let InputFile { name, text } = catalog.version_file(hash)?;
    let plain = name.split(" (version ").next().unwrap_or(name);
    Some(InputFile { name: format!("{plain} (version {} in the database)", short_hash(hash)), text: Arc::clone(text) })
}

/// Enough of a hash to tell versions apart by eye.
pub fn short_hash(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// Whether the current versions fit every version that records still live by. `after` is the catalog as it is to be, `changed` are the
/// lifecycles whose current version is another one than before.
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
    // Those that new records or living ones are made by; the others meet nobody.
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
        let records = count_noun(records, "record lives", "records live");
        let beside = format!("version {} of {}, by which {records}", short_hash(hash), version.name);
        compile_together(after, &names, choose, Some(beside))?;
    }
    Ok(())
}

/// Compile one version of each of these together with all that they name.
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
        let incompatible_with = incompatible_with.or_else(|| Some("what the database has".to_owned()));
        return Err(DiagnosticReport { files, diagnostics, incompatible_with }.into());
    }
    Ok(())
}
