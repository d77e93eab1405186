//! Which lifecycles a server starts with: those that ship with it, and those of a user's own folders.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use onceward_core::compile::{compile, declared};
use onceward_core::diagnostic::{Diagnostic, File, Files, Severity};
use onceward_core::model::Definitions;
use onceward_engine::{Checks, Engine, EngineError};
use onceward_store::{AnyStore, Store as _, StoreError};

use crate::answer::{Color, complain};
use crate::{files, shipped};

/// What is to be given to the engine.
#[derive(Debug, Default)]
pub(super) struct Loading {
    /// Files that belong together: each shipped system, then all of the user's own.
    sets: Vec<Files>,
    pub(super) names: Vec<String>,
    /// Those of a user's own that stand in place of shipped ones.
    pub(super) replaced: Vec<String>,
    /// Systems that cannot be served, each with the reason.
    pub(super) left_out: Vec<String>,
    /// Their lifecycles, each with the same reason.
    pub(super) absent: BTreeMap<Arc<str>, String>,
}

/// Read and check them; `None` once what is wrong with the user's own has been shown. What can be told without a database is told
/// before one is opened. Of the shipped systems those are left out that lack something.
pub(super) fn read(folders: &[PathBuf], checks: &Checks, without: &[(&str, &str)]) -> Result<Option<Loading>> {
    let mut loading = Loading::default();
    let mut own = Files::default();
    if !folders.is_empty() {
        let reading = files::read(folders)?;
        if !reading.unfit.is_empty() {
            reading.unfit.iter().for_each(|unfit| complain(&format!("error: {}\n", unfit.message)));
            return Ok(None);
        }
        let others = reading.left_out.iter().map(|name| format!("{name}, since it is no lifecycle file"));
        loading.left_out.extend(others);
        own = reading.files;
    }
    let names = declared(&own);
    for (system, files) in systems() {
        let shipped = declared(&files);
        // A lifecycle of the user's own stands in place of the shipped one of its name, beside the others of that system.
        if !shipped.is_disjoint(&names) {
            loading.replaced.extend(shipped.intersection(&names).map(ToString::to_string));
            own.files.extend(files.files.into_iter().filter(|file| !declares(file, &names)));
            continue;
        }
        // Proved by the tests they ship with, and again by the engine: here it is only their checks that count.
        let definitions =
            compile(&files).definitions.ok_or_else(|| anyhow!("the shipped system {system} does not compile"))?;
        let lacks = without.iter().find(|(lacking, _)| *lacking == system).map(|(_, what)| (*what).to_owned());
        match lacks.or_else(|| unanswered(&definitions, checks).into_iter().next()) {
            Some(reason) => {
                loading.left_out.push(format!("{system}, since {reason}"));
                loading.absent.extend(shipped.into_iter().map(|name| (name, reason.clone())));
            }
            None => loading.add(files, &shipped),
        }
    }
    if own.files.is_empty() {
        return Ok(Some(loading));
    }
    match onceward_core::load(&own) {
        Ok(loaded) => {
            let unanswered = unanswered(&loaded.definitions, checks);
            if !unanswered.is_empty() {
                for check in &unanswered {
                    complain(&format!("error: {check}\n"));
                }
                return Ok(None);
            }
        }
        // The database may know them; if not, it says so.
        Err(found) if found.iter().any(|diagnostic| diagnostic.code == "unknown-lifecycle") => {}
        Err(found) => {
            show(&found, &own);
            return Ok(None);
        }
    }
    let all = declared(&own);
    loading.add(own, &all);
    Ok(Some(loading))
}

fn declares(file: &File, names: &BTreeSet<Arc<str>>) -> bool {
    !declared(&Files { files: vec![file.clone()] }).is_disjoint(names)
}

/// What is wrong, as `onceward check` prints it.
fn show(found: &[Diagnostic], files: &Files) {
    for wrong in found.iter().filter(|diagnostic| diagnostic.severity == Severity::Error) {
        complain(&format!("{}\n", wrong.render(files, Color::Auto.wanted())));
    }
}

impl Loading {
    fn add(&mut self, files: Files, names: &BTreeSet<Arc<str>>) {
        self.names.extend(names.iter().map(ToString::to_string));
        self.sets.push(files);
    }

    /// All that will be served: these, and what the database knows besides.
    pub(super) async fn all(&self, engine: &Engine<AnyStore>) -> Result<BTreeSet<Arc<str>>> {
        let known = engine.store().definitions().await?;
        let known = known.definitions.lifecycles.keys().cloned();
        Ok(self.names.iter().map(|name| Arc::from(&**name)).chain(known).collect())
    }

    /// Give them to the database; `false` once it was shown why it does not take them.
    pub(super) async fn define(&self, engine: &Engine<AnyStore>) -> Result<bool> {
        for files in &self.sets {
            let Err(error) = engine.define(files).await else { continue };
            if let EngineError::Store(store) = &error
                && let StoreError::Unsound(found) = &**store
            {
                show(&found.diagnostics, &found.files);
                complain(&format!("error: {error}\n"));
                return Ok(false);
            }
            return Err(error.into());
        }
        Ok(true)
    }
}

/// The shipped files, by the folder that they stand in.
fn systems() -> BTreeMap<String, Files> {
    let mut systems: BTreeMap<String, Vec<File>> = BTreeMap::new();
    for file in shipped::files().files {
        let system = file.name.split('/').nth(1).unwrap_or_default().to_owned();
        systems.entry(system).or_default().push(file);
    }
    systems.into_iter().map(|(system, files)| (system, Files { files })).collect()
}

/// Checks that nobody answers. Every call that needs one would be refused, so they are told at once.
fn unanswered(definitions: &Definitions, checks: &Checks) -> Vec<String> {
    let mut unanswered = Vec::new();
    for lifecycle in definitions.lifecycles.values() {
        for check in lifecycle.checks.iter().filter(|check| !checks.has(&lifecycle.name, &check.name)) {
            unanswered.push(format!("nobody here answers the check `{}` of {}", check.name, lifecycle.name));
        }
    }
    unanswered
}
