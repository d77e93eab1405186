//! Runs the compiler and the static analysis on a mutant.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, bail};
use onceward_core::analysis::analyze;
use onceward_core::compile::compile;
use onceward_core::diagnostic::{self, Diagnostic, InputFiles, Severity, render_all};
use onceward_core::model::Definitions;

use super::file::LifecycleFile;
use super::generator::LifecycleMutant;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AnalysisVerdict {
    /// The compiled form is unchanged, so this is not a mutant.
    Identical,
    /// Rejected with this error code.
    Refused(&'static str),
    /// Accepted with this warning code.
    Warned(&'static str),
    Sound,
}

/// The unchanged files of a system and their hashes.
pub(super) struct MutantAnalyzer {
    files: Vec<(String, Arc<str>)>,
    hashes: BTreeMap<Arc<str>, Arc<str>>,
}

impl MutantAnalyzer {
    pub(super) fn new(files: &[&LifecycleFile]) -> Result<Self> {
        let files: Vec<(String, Arc<str>)> =
            files.iter().map(|file| (file.path.clone(), file.text.as_str().into())).collect();
        let all = with_mutant(&files, None);
        let compiled = compile(&all);
        let Some(definitions) = compiled.definitions else {
            bail!("a shipped system does not compile:\n{}", render_all(&compiled.diagnostics, &all, false));
        };
        let found = analyze(&definitions);
        if !found.is_empty() {
            bail!("a shipped system is not clean:\n{}", render_all(&found, &all, false));
        }
        Ok(Self { files, hashes: lifecycle_hashes(&definitions) })
    }

    pub(super) fn analyze(&self, mutant: &LifecycleMutant) -> AnalysisVerdict {
        let compiled = compile(&with_mutant(&self.files, Some(mutant)));
        let mut found = compiled.diagnostics;
        let Some(definitions) = compiled.definitions else {
            return first_error(&found).unwrap_or(AnalysisVerdict::Refused(""));
        };
        if lifecycle_hashes(&definitions) == self.hashes {
            return AnalysisVerdict::Identical;
        }
        found.extend(analyze(&definitions));
        first_error(&found).unwrap_or_else(|| {
            found.first().map_or(AnalysisVerdict::Sound, |found| AnalysisVerdict::Warned(found.code))
        })
    }
}

fn first_error(found: &[Diagnostic]) -> Option<AnalysisVerdict> {
    found.iter().find(|found| found.severity == Severity::Error).map(|found| AnalysisVerdict::Refused(found.code))
}

fn lifecycle_hashes(definitions: &Definitions) -> BTreeMap<Arc<str>, Arc<str>> {
    definitions.lifecycles.iter().map(|(name, lifecycle)| (Arc::clone(name), Arc::clone(&lifecycle.hash))).collect()
}

fn with_mutant(files: &[(String, Arc<str>)], mutant: Option<&LifecycleMutant>) -> InputFiles {
    let text = |path: &str, own: &Arc<str>| match mutant {
        Some(mutant) if mutant.file == path => mutant.text.as_str().into(),
        _ => Arc::clone(own),
    };
    let files = files.iter().map(|(path, own)| diagnostic::InputFile { name: path.clone(), text: text(path, own) });
    InputFiles { files: files.collect() }
}
