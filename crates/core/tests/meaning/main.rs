//! Sentences of the language's meaning that a review found weaker in the code than written.

mod bounds;
mod money;
mod order;
mod strangers;
mod time;

use onceward_core::compile::compile;
use onceward_core::diagnostic::{File, Files, render_all};
use onceward_core::model::Definitions;
use onceward_testkit::Stage;

/// Compiled, but not proven: what `check` forbids must still be answered rightly.
pub(crate) fn definitions(texts: &[&str]) -> Definitions {
    let files = texts.iter().enumerate().map(|(at, text)| {
        let name = format!("{at}.toml");
        File { name, text: (*text).into() }
    });
    let files = Files { files: files.collect() };
    let compiled = compile(&files);
    compiled.definitions.unwrap_or_else(|| panic!("{}", render_all(&compiled.diagnostics, &files, false)))
}

pub(crate) fn stage(texts: &[&str]) -> Stage {
    Stage::new(definitions(texts))
}
