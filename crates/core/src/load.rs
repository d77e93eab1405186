//! Loads lifecycle files: compiles and analyzes them.

use crate::analysis;
use crate::compile::compile;
use crate::diagnostic::{Diagnostic, InputFiles, Severity};
use crate::model::Definitions;

/// Definitions without errors, and the warnings about them.
#[derive(Debug)]
pub struct LoadResult {
    pub definitions: Definitions,
    pub warnings: Vec<Diagnostic>,
}

/// Compiles and analyzes the files. If there is any error, returns all diagnostics, warnings included.
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
