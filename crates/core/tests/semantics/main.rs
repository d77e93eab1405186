//! Tests rules of the language that a review found weaker in the code than in its documentation.

mod bounds;
mod due_times;
mod evaluation_order;
mod ledger;
mod tenant_isolation;

use onceward_core::compile::compile;
use onceward_core::diagnostic::{InputFile, InputFiles, render_all};
use onceward_core::model::Definitions;
use onceward_testkit::Simulator;

/// Compiles without static analysis. The engine must also handle what the analysis rejects.
pub(crate) fn compile_definitions(texts: &[&str]) -> Definitions {
    let files = texts.iter().enumerate().map(|(at, text)| {
        let name = format!("{at}.toml");
        InputFile { name, text: (*text).into() }
    });
    let files = InputFiles { files: files.collect() };
    let compiled = compile(&files);
    compiled.definitions.unwrap_or_else(|| panic!("{}", render_all(&compiled.diagnostics, &files, false)))
}

pub(crate) fn new_simulator(texts: &[&str]) -> Simulator {
    Simulator::new(compile_definitions(texts))
}
