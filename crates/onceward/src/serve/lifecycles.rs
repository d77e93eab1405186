//! Loads the lifecycles that a server starts with: the shipped ones and the user's own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use onceward_core::compile::{compile, declared_lifecycles};
use onceward_core::diagnostic::{Diagnostic, InputFile, InputFiles, Severity};
use onceward_core::model::Definitions;
use onceward_engine::{CheckRegistry, Engine, EngineError};
use onceward_store::{AnyStore, Store as _, StoreError};

use crate::inactive_files::{FileVersions, InactiveFile, file_versions, find_inactive_files};
use crate::output::{ColorChoice, print_stderr};
use crate::{files, shipped};

/// The lifecycles to put into the database at startup.
#[derive(Debug, Default)]
pub(super) struct StartupLifecycles {
    /// Files that are compiled together: one set per shipped system, then one with all user files.
    file_sets: Vec<InputFiles>,
    pub(super) names: Vec<String>,
    /// Shipped lifecycles that a user's lifecycle of the same name replaces.
    pub(super) replaced: Vec<String>,
    /// Systems and files that are not served, each with the reason.
    pub(super) skipped: Vec<String>,
    /// The versions of the files.
    pub(super) file_versions: FileVersions,
    /// Lifecycles of skipped systems, each with the reason.
    pub(super) unavailable: BTreeMap<Arc<str>, String>,
}

/// Reads and checks the lifecycles before a database is opened. Leaves out shipped systems that lack a requirement.
/// Returns `None` after printing the errors of the user's files. Without `with_systems`, loads the user's files only.
pub(super) fn load(
    folders: &[PathBuf],
    with_systems: bool,
    checks: &CheckRegistry,
    missing_requirements: &[(&str, &str)],
) -> Result<Option<StartupLifecycles>> {
    let mut lifecycles = StartupLifecycles::default();
    let mut user_files = InputFiles::default();
    if !folders.is_empty() {
        let loaded = files::read_lifecycle_files(folders)?;
        if !loaded.unreadable.is_empty() {
            loaded.unreadable.iter().for_each(|file| print_stderr(&format!("error: {}\n", file.message)));
            return Ok(None);
        }
        let skipped = loaded.skipped.iter().map(|name| format!("{name}: not a lifecycle file"));
        lifecycles.skipped.extend(skipped);
        user_files = loaded.files;
    }
    let names = declared_lifecycles(&user_files);
    let systems = if with_systems { shipped_systems() } else { BTreeMap::new() };
    for (system, files) in systems {
        let shipped = declared_lifecycles(&files);
        // A user's lifecycle replaces the shipped one of its name, so the system's other files are compiled together
        // with the user's.
        if !shipped.is_disjoint(&names) {
            lifecycles.replaced.extend(shipped.intersection(&names).map(ToString::to_string));
            user_files.files.extend(files.files.into_iter().filter(|file| !declares_any(file, &names)));
            continue;
        }
        // The shipped tests and the engine verify these files. Here only their checks matter.
        let definitions =
            compile(&files).definitions.ok_or_else(|| anyhow!("the shipped system {system} does not compile"))?;
        let missing =
            missing_requirements.iter().find(|(lacking, _)| *lacking == system).map(|(_, what)| (*what).to_owned());
        if let Some(reason) = missing.or_else(|| unanswered_checks(&definitions, checks).into_iter().next()) {
            lifecycles.skipped.push(format!("{system}: {reason}"));
            lifecycles.unavailable.extend(shipped.into_iter().map(|name| (name, reason.clone())));
        } else {
            lifecycles.file_versions.extend(file_versions(&definitions));
            lifecycles.add(files, &shipped);
        }
    }
    if user_files.files.is_empty() {
        return Ok(Some(lifecycles));
    }
    let declared_names = declared_lifecycles(&user_files);
    let (loaded, all_files) = if with_systems {
        shipped::load_with_shipped(&user_files)
    } else {
        (onceward_core::load_definitions(&user_files), user_files.clone())
    };
    match loaded {
        Ok(mut loaded) => {
            // The shipped lifecycles that they refer to are checked above.
            loaded.definitions.lifecycles.retain(|name, _| declared_names.contains(name));
            lifecycles.file_versions.extend(file_versions(&loaded.definitions));
            let unanswered = unanswered_checks(&loaded.definitions, checks);
            if !unanswered.is_empty() {
                for check in &unanswered {
                    print_stderr(&format!("error: {check}\n"));
                }
                return Ok(None);
            }
        }
        // The database may contain the missing lifecycles. If not, `put_lifecycles` reports it.
        Err(diagnostics) if diagnostics.iter().any(|diagnostic| diagnostic.code == "unknown-lifecycle") => {}
        Err(diagnostics) => {
            print_errors(&diagnostics, &all_files);
            return Ok(None);
        }
    }
    lifecycles.add(user_files, &declared_names);
    Ok(Some(lifecycles))
}

fn declares_any(file: &InputFile, names: &BTreeSet<Arc<str>>) -> bool {
    !declared_lifecycles(&InputFiles { files: vec![file.clone()] }).is_disjoint(names)
}

/// Prints errors in the format of `onceward check`.
fn print_errors(diagnostics: &[Diagnostic], files: &InputFiles) {
    for error in diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error) {
        print_stderr(&format!("{}\n", error.render(files, ColorChoice::Auto.is_enabled())));
    }
}

impl StartupLifecycles {
    fn add(&mut self, files: InputFiles, names: &BTreeSet<Arc<str>>) {
        self.names.extend(names.iter().map(ToString::to_string));
        self.file_sets.push(files);
    }

    /// Returns the names of these lifecycles and of all others in the database.
    pub(super) async fn served_names(&self, engine: &Engine<AnyStore>) -> Result<BTreeSet<Arc<str>>> {
        let known = engine.store().catalog().await?;
        let known = known.definitions.lifecycles.keys().cloned();
        Ok(self.names.iter().map(|name| Arc::from(&**name)).chain(known).collect())
    }

    /// Returns the files that are not what the database enforces.
    pub(super) async fn inactive_files(&self, engine: &Engine<AnyStore>) -> Result<Vec<InactiveFile>> {
        Ok(find_inactive_files(&self.file_versions, &*engine.lifecycles().await?))
    }

    /// Puts the lifecycles into the database. Returns false after printing why it rejects them.
    pub(super) async fn put_lifecycles(&self, engine: &Engine<AnyStore>) -> Result<bool> {
        for files in &self.file_sets {
            let Err(error) = engine.put_lifecycles(files).await else { continue };
            if let EngineError::Store(store) = &error
                && let StoreError::InvalidLifecycles(found) = &**store
            {
                print_errors(&found.diagnostics, &found.files);
                print_stderr(&format!("error: {error}\n"));
                return Ok(false);
            }
            return Err(error.into());
        }
        Ok(true)
    }
}

/// Returns the shipped files, grouped by system.
fn shipped_systems() -> BTreeMap<String, InputFiles> {
    let mut systems: BTreeMap<String, Vec<InputFile>> = BTreeMap::new();
    for file in shipped::files().files {
        let system = file.name.split('/').nth(1).unwrap_or_default().to_owned();
        systems.entry(system).or_default().push(file);
    }
    systems.into_iter().map(|(system, files)| (system, InputFiles { files })).collect()
}

/// Returns a message for each external check without an adapter. The engine would refuse every call that needs such a check, so
/// the server reports it at startup.
fn unanswered_checks(definitions: &Definitions, checks: &CheckRegistry) -> Vec<String> {
    let mut unanswered = Vec::new();
    for lifecycle in definitions.lifecycles.values() {
        for check in lifecycle.checks.iter().filter(|check| !checks.contains(&lifecycle.name, &check.name)) {
            unanswered.push(format!("the external check `{}` of {} has no adapter", check.name, lifecycle.name));
        }
    }
    unanswered
}
