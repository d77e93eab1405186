//! The files of this repository.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::shell;

/// The repository's root: the folder above this crate.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.to_path_buf(), Path::to_path_buf)
}

/// One text file, by its path from the root with forward slashes.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Paths of all files that git would keep: tracked ones, and new ones that are not ignored.
pub(crate) fn paths() -> Result<Vec<String>> {
    let root = root();
    let listing = shell::output(shell::command("git").current_dir(&root).args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    let mut paths: Vec<String> = listing.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    // A file deleted but not yet staged is still in git's index.
    paths.retain(|path| root.join(path).is_file());
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// The text files among them whose path `wanted` accepts.
pub(crate) fn sources(filter: impl Fn(&str) -> bool) -> Result<Vec<SourceFile>> {
    let root = root();
    let mut sources = Vec::new();
    for path in paths()?.into_iter().filter(|path| filter(path)) {
        let bytes = std::fs::read(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            sources.push(SourceFile { path, text });
        }
    }
    Ok(sources)
}

/// Whether the path ends in this extension.
pub(crate) fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

/// Writes a generated file, or, when only checking, fails if what stands there differs.
pub(crate) fn generate(path: &str, text: &str, only_check: bool, command: &str) -> Result<()> {
    let full = root().join(path);
    let existing = std::fs::read_to_string(&full).unwrap_or_default();
    if existing == text {
        return Ok(());
    }
    if only_check {
        anyhow::bail!("{path} is stale: run `{command}` and commit it");
    }
    if let Some(folder) = full.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&full, text).with_context(|| format!("cannot write {path}"))
}
