//! Reads lifecycle files named on the command line. Limits their size and number before reading, because their contents
//! are untrusted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use onceward_core::bounds;
use onceward_core::diagnostic::{self, InputFiles};

/// Bounds the search below one named folder.
const MAX_FOLDERS: usize = 1_000;

/// The lifecycle files that were read, and the files that could not be used.
#[derive(Debug, Default)]
pub(crate) struct LoadedFiles {
    pub(crate) files: InputFiles,
    pub(crate) unreadable: Vec<UnreadableFile>,
    /// Names of files found in a folder that are not lifecycle files.
    pub(crate) skipped: Vec<String>,
}

/// A file that is too large or not text.
#[derive(Clone, Debug)]
pub(crate) struct UnreadableFile {
    pub(crate) name: String,
    /// One line that starts with the name.
    pub(crate) message: String,
    /// Line and column of the error, both starting at one.
    pub(crate) position: Option<(usize, usize)>,
}

/// Reads files, and the lifecycle files of folders, each once and in the given order.
pub(crate) fn read_lifecycle_files(paths: &[PathBuf]) -> Result<LoadedFiles> {
    let mut loaded = LoadedFiles::default();
    let mut seen = BTreeSet::new();
    let mut skipped = BTreeMap::new();
    for path in paths {
        let is_folder = path.is_dir();
        let found = if is_folder { find_lifecycle_files(path)? } else { vec![path.clone()] };
        let mut has_lifecycle = false;
        for file in found {
            let identity = file.canonicalize().unwrap_or_else(|_| file.clone());
            if seen.contains(&identity) {
                has_lifecycle = true;
                continue;
            }
            let count_before = loaded.files.files.len();
            read_lifecycle_file(&file, &mut loaded)?;
            // In a folder, skip TOML files of other programs, such as rustfmt.toml. A file named by its path is always
            // kept.
            let is_other = |file: &mut diagnostic::InputFile| !looks_like_lifecycle(&file.text);
            let was_read = loaded.files.files.len() > count_before;
            let other = if is_folder && was_read { loaded.files.files.pop_if(is_other) } else { None };
            if let Some(other) = other {
                skipped.insert(identity, other.name);
            } else {
                skipped.remove(&identity);
                seen.insert(identity);
                has_lifecycle = true;
            }
            if seen.len() + skipped.len() > bounds::MAX_FILES {
                bail!("too many lifecycle files: the maximum is {}", bounds::MAX_FILES);
            }
        }
        if !has_lifecycle {
            bail!("{} has no lifecycle files (*.toml)", path.display());
        }
    }
    loaded.skipped = skipped.into_values().collect();
    Ok(loaded)
}

/// Returns whether any line looks like part of a lifecycle file. Reads lines, not TOML, so that a file with a syntax
/// error is still reported.
fn looks_like_lifecycle(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        let headers = ["[states]", "[[on.", "[on.", "[on]"];
        let word = line.trim_start_matches(['"', '\'']);
        let word = word.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-')).next();
        matches!(word, Some("language" | "lifecycle")) || headers.iter().any(|header| line.starts_with(header))
    })
}

/// Returns the lifecycle files in a folder and its subfolders, sorted by path.
fn find_lifecycle_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    let mut folders_read = 0;
    while let Some(next) = folders.pop() {
        folders_read += 1;
        let (files, below) = list_folder(&next)?;
        found.extend(files);
        folders.extend(below);
        if found.len() > bounds::MAX_FILES || folders_read + folders.len() > MAX_FOLDERS {
            let (folder, files) = (folder.display(), bounds::MAX_FILES);
            bail!("{folder} is too large: the maximum is {files} lifecycle files in {MAX_FOLDERS} folders");
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the lifecycle files directly in a folder.
pub(crate) fn sibling_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = list_folder(folder).map_or_else(|_| Vec::new(), |(files, _)| files);
    found.sort();
    found.truncate(bounds::MAX_FILES);
    found
}

/// Lists the lifecycle files and the subfolders of a folder. Skips Cargo.toml (a system may be a Rust package), hidden
/// and build folders, and links to folders, which may form a cycle.
fn list_folder(folder: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let read_error = || format!("cannot read the folder {}", folder.display());
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(folder).with_context(read_error)? {
        let entry = entry.with_context(read_error)?;
        let (name, path) = (entry.file_name(), entry.path());
        if name.as_encoded_bytes().starts_with(b".") || name == "target" || name == "Cargo.toml" {
            continue;
        }
        if entry.file_type().with_context(read_error)?.is_dir() {
            folders.push(path);
        } else if path.extension().is_some_and(|extension| extension == "toml") && !path.is_dir() {
            files.push(path);
        }
    }
    Ok((files, folders))
}

pub(crate) fn read_lifecycle_file(path: &Path, loaded: &mut LoadedFiles) -> Result<()> {
    // The file's author chose the name, and a terminal shows it.
    let name = path.display().to_string().replace(char::is_control, "\u{fffd}");
    let read_error = || format!("cannot read {name}");
    let file = File::open(path).with_context(read_error)?;
    let limit = bounds::MAX_FILE_BYTES as u64;
    let mut bytes = Vec::new();
    // The read is bounded here, because a device or a pipe reports no length.
    file.take(limit + 1).read_to_end(&mut bytes).with_context(read_error)?;
    if bytes.len() as u64 > limit {
        let message = format!("{name} is too large: a lifecycle file has at most {} KB", limit / 1024);
        loaded.unreadable.push(UnreadableFile { name, message, position: None });
        return Ok(());
    }
    match String::from_utf8(bytes) {
        Ok(text) => loaded.files.files.push(diagnostic::InputFile { name, text: Arc::from(text) }),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let before = String::from_utf8_lossy(&error.as_bytes()[..at]);
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
            let message =
                format!("{name} is not valid UTF-8: invalid byte at offset {at} (line {line}, column {column})");
            loaded.unreadable.push(UnreadableFile { name, message, position: Some((line, column)) });
        }
    }
    Ok(())
}
