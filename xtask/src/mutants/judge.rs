//! What the compiler and the checker say of a mutant.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, bail};
use onceward_core::check::check;
use onceward_core::compile::compile;
use onceward_core::diagnostic::{self, Diagnostic, Files, Severity, render_all};
use onceward_core::model::Definitions;

use super::file::File;
use super::maker::Mutant;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The compiled form is the same: it is no mutant at all.
    Identical,
    /// Refused, by this code.
    Refused(&'static str),
    /// Used, but something is said.
    Warned(&'static str),
    Sound,
}

/// A system as it stands.
pub(super) struct Judge {
    files: Vec<(String, Arc<str>)>,
    hashes: BTreeMap<Arc<str>, Arc<str>>,
}

impl Judge {
    pub(super) fn new(files: &[&File]) -> Result<Self> {
        let files: Vec<(String, Arc<str>)> =
            files.iter().map(|file| (file.path.clone(), file.text.as_str().into())).collect();
        let all = given(&files, None);
        let compiled = compile(&all);
        let Some(definitions) = compiled.definitions else {
            bail!("a shipped system does not compile:\n{}", render_all(&compiled.diagnostics, &all, false));
        };
        let found = check(&definitions);
        if !found.is_empty() {
            bail!("a shipped system is not clean:\n{}", render_all(&found, &all, false));
        }
        Ok(Self { files, hashes: hashes(&definitions) })
    }

    pub(super) fn judge(&self, mutant: &Mutant) -> Verdict {
        let compiled = compile(&given(&self.files, Some(mutant)));
        let mut found = compiled.diagnostics;
        let Some(definitions) = compiled.definitions else { return refused(&found).unwrap_or(Verdict::Refused("")) };
        if hashes(&definitions) == self.hashes {
            return Verdict::Identical;
        }
        found.extend(check(&definitions));
        refused(&found).unwrap_or_else(|| found.first().map_or(Verdict::Sound, |found| Verdict::Warned(found.code)))
    }
}

fn refused(found: &[Diagnostic]) -> Option<Verdict> {
    found.iter().find(|found| found.severity == Severity::Error).map(|found| Verdict::Refused(found.code))
}

fn hashes(definitions: &Definitions) -> BTreeMap<Arc<str>, Arc<str>> {
    definitions.lifecycles.iter().map(|(name, lifecycle)| (Arc::clone(name), Arc::clone(&lifecycle.hash))).collect()
}

fn given(files: &[(String, Arc<str>)], mutant: Option<&Mutant>) -> Files {
    let text = |path: &str, own: &Arc<str>| match mutant {
        Some(mutant) if mutant.file == path => mutant.text.as_str().into(),
        _ => Arc::clone(own),
    };
    let files = files.iter().map(|(path, own)| diagnostic::File { name: path.clone(), text: text(path, own) });
    Files { files: files.collect() }
}
