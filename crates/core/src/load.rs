//! Files to definitions that may be used: compiled and checked.

use crate::check;
use crate::compile::compile;
use crate::diagnostic::{Diagnostic, Files, Severity};
use crate::model::Definitions;

/// Definitions in which nothing was found wrong, and what was found doubtful.
#[derive(Debug)]
pub struct Loaded {
    pub definitions: Definitions,
    pub warnings: Vec<Diagnostic>,
}

/// Compile the files and prove what can be proved. All that was found, warnings too, where any of it is an error.
pub fn load(files: &Files) -> Result<Loaded, Vec<Diagnostic>> {
    let compiled = compile(files);
    let mut found = compiled.diagnostics;
    let Some(definitions) = compiled.definitions else { return Err(found) };
    found.extend(check::check(&definitions));
    if found.iter().any(|diagnostic| diagnostic.severity == Severity::Error) {
        return Err(found);
    }
    Ok(Loaded { definitions, warnings: found })
}
