//! Which lifecycles a server starts with: those that ship with it, and those of a user's own folders.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use onceward_core::compile::compile;
use onceward_core::diagnostic::{File, Files, Severity};
use onceward_core::model::Definitions;
use onceward_engine::Checks;

use crate::answer::{Color, complain};
use crate::{files, shipped};

/// What is to be given to the engine.
#[derive(Debug, Default)]
pub(super) struct Loading {
    /// Files that belong together.
    pub(super) sets: Vec<Files>,
    pub(super) names: Vec<String>,
    /// Systems that cannot be served, each with the reason.
    pub(super) left_out: Vec<String>,
}

/// Read and check them; `None` once what is wrong with the user's own has been shown.
pub(super) fn read(folders: &[PathBuf], checks: &Checks) -> Result<Option<Loading>> {
    let mut loading = Loading::default();
    for (system, files) in systems() {
        // Proved by the tests they ship with, and again by the engine: here it is only their checks that count.
        let definitions =
            compile(&files).definitions.ok_or_else(|| anyhow!("the shipped system {system} does not compile"))?;
        match unanswered(&definitions, checks).first() {
            Some(check) => loading.left_out.push(format!("{system}, since {check}")),
            None => loading.add(files, &definitions),
        }
    }
    for folder in folders {
        let reading = files::read(std::slice::from_ref(folder))?;
        if !reading.unfit.is_empty() {
            reading.unfit.iter().for_each(|unfit| complain(&format!("error: {}\n", unfit.message)));
            return Ok(None);
        }
        let loaded = match onceward_core::load(&reading.files) {
            Ok(loaded) => loaded,
            Err(diagnostics) => {
                for wrong in diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error) {
                    complain(&format!("{}\n", wrong.render(&reading.files, Color::Auto.wanted())));
                }
                return Ok(None);
            }
        };
        let unanswered = unanswered(&loaded.definitions, checks);
        if !unanswered.is_empty() {
            unanswered.iter().for_each(|check| complain(&format!("error: {}: {check}\n", folder.display())));
            return Ok(None);
        }
        loading.add(reading.files, &loaded.definitions);
    }
    Ok(Some(loading))
}

impl Loading {
    fn add(&mut self, files: Files, definitions: &Definitions) {
        let own = definitions.lifecycles.keys().filter(|name| !shipped::is_built_in(name));
        self.names.extend(own.map(ToString::to_string));
        self.sets.push(files);
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
