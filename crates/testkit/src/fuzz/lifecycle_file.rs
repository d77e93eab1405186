//! Bytes as lifecycle files.

use onceward_core::check::check;
use onceward_core::compile::compile;
use onceward_core::diagnostic::{Diagnostic, File, Files, Severity, render_all};
use onceward_core::draw;

/// A line that begins the next file, so that one input can hold a whole system.
const NEXT_FILE: &str = "#-----\n";

pub(super) fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let files = text.split(NEXT_FILE).enumerate();
    let files = Files { files: files.map(|(number, text)| file(number, text)).collect() };
    let compiled = compile(&files);
    let wrong = compiled.diagnostics.iter().any(|found| found.severity == Severity::Error);
    assert_eq!(compiled.definitions.is_none(), wrong, "definitions are there exactly where nothing is wrong");
    told(&compiled.diagnostics, &files);
    let Some(definitions) = compiled.definitions else { return };
    told(&check(&definitions), &files);
    for lifecycle in definitions.lifecycles.values() {
        assert!(!draw::mermaid(lifecycle).is_empty());
        assert!(draw::svg(lifecycle).contains("</svg>"));
    }
}

fn file(number: usize, text: &str) -> File {
    File { name: format!("file{number}.toml"), text: text.into() }
}

/// A message can be written, and points into a file that is there.
fn told(found: &[Diagnostic], files: &Files) {
    for diagnostic in found {
        assert!(!diagnostic.message.is_empty(), "{} says nothing", diagnostic.code);
        for at in std::iter::once(&diagnostic.at).chain(diagnostic.also.iter().map(|(at, _)| at)) {
            assert!(at.start <= at.end, "{}: a place that ends before it begins", diagnostic.code);
        }
    }
    let text = render_all(found, files, true);
    assert_eq!(text.is_empty(), found.is_empty());
}
