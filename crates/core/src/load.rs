//! Files to definitions that may be used: compiled and checked.

use crate::analysis;
use crate::compile::compile;
use crate::diagnostic::{Diagnostic, InputFiles, Severity};
use crate::model::Definitions;

/// Definitions in which nothing was found wrong, and what was found doubtful.
#[derive(Debug)]
pub struct LoadResult {
    pub definitions: Definitions,
    pub warnings: Vec<Diagnostic>,
}

/// Compile the files and prove what can be proved. All that was found, warnings too, where any of it is an error.
pub fn load_definitions(files: &InputFiles) -> Result<LoadResult, Vec<Diagnostic>> {
    let compiled = compile(files);
    let mut diagnostics = compiled.diagnostics;
    let Some(definitions) = compiled.definitions else { return Err(diagnostics) };
    diagnostics.extend(analysis::analyze(&definitions));
    if diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error) {
        return Err(diagnostics);
    }
    Ok(LoadResult { definitions, warnings: diagnostics })
}
