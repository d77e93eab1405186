//! Fuzzes lifecycle files.

use onceward_core::analysis::analyze;
use onceward_core::compile::compile;
use onceward_core::diagnostic::{Diagnostic, InputFile, InputFiles, Severity, render_all};

/// Separates files, so that one input can contain a whole system.
const FILE_SEPARATOR: &str = "#-----\n";

pub(super) fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let files = text.split(FILE_SEPARATOR).enumerate();
    let files = InputFiles { files: files.map(|(number, text)| source_file(number, text)).collect() };
    let compiled = compile(&files);
    let has_errors = compiled.diagnostics.iter().any(|found| found.severity == Severity::Error);
    assert_eq!(compiled.definitions.is_none(), has_errors, "definitions exist exactly if there is no error");
    assert_diagnostics_valid(&compiled.diagnostics, &files);
    let Some(definitions) = compiled.definitions else { return };
    assert_diagnostics_valid(&analyze(&definitions), &files);
    for lifecycle in definitions.lifecycles.values() {
        assert!(!onceward_draw::render_mermaid(lifecycle).is_empty());
        assert!(onceward_draw::render_svg(lifecycle).contains("</svg>"));
    }
}

fn source_file(number: usize, text: &str) -> InputFile {
    InputFile { name: format!("file{number}.toml"), text: text.into() }
}

/// Asserts that each diagnostic has a message and points into an existing file.
fn assert_diagnostics_valid(found: &[Diagnostic], files: &InputFiles) {
    for diagnostic in found {
        assert!(!diagnostic.message.is_empty(), "{} has no message", diagnostic.code);
        for at in std::iter::once(&diagnostic.span).chain(diagnostic.related.iter().map(|(at, _)| at)) {
            assert!(at.start <= at.end, "{}: the span ends before it starts", diagnostic.code);
        }
    }
    let text = render_all(found, files, true);
    assert_eq!(text.is_empty(), found.is_empty());
}
