//! Lists and reads the files of the repository.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::shell;

/// Returns the repository's root: the folder above this crate.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.to_path_buf(), Path::to_path_buf)
}

/// A text file and its path from the root, with forward slashes.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Returns the paths of all files that git would keep: tracked files, and new files that are not ignored.
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
    // The index still contains files that were deleted but not staged.
    paths.retain(|path| root.join(path).is_file());
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// Returns the text files whose path `filter` accepts.
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

pub(crate) fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

/// Writes a generated file. With `only_check`, fails if the existing file differs instead.
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
