//! Reading lifecycle files that somebody named: bounded before they are read, since anyone may have written them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use onceward_core::bounds;
use onceward_core::diagnostic::{self, Files};

/// Folders that are looked into for one folder that was named.
const FOLDERS: usize = 1_000;

/// What came of reading: the files, and those that are no lifecycle files at all.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) files: Files,
    pub(crate) unfit: Vec<Unfit>,
    /// Names of files that stood in a folder and are of something else.
    pub(crate) left_out: Vec<String>,
}

/// A file that was read, but cannot be a lifecycle file: too large, or not text.
#[derive(Clone, Debug)]
pub(crate) struct Unfit {
    pub(crate) name: String,
    /// One line that begins with the name.
    pub(crate) message: String,
    /// Line and column, both from one, of what is wrong.
    pub(crate) at: Option<(usize, usize)>,
}

/// Reads files and the lifecycle files of folders, each once, in the order given.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Reading> {
    let mut reading = Reading::default();
    let mut seen = BTreeSet::new();
    let mut left_out = BTreeMap::new();
    for path in paths {
        let is_folder = path.is_dir();
        let found = if is_folder { inside(path)? } else { vec![path.clone()] };
        let mut holds_some = false;
        for file in found {
            let identity = file.canonicalize().unwrap_or_else(|_| file.clone());
            if seen.contains(&identity) {
                holds_some = true;
                continue;
            }
            let before = reading.files.files.len();
            read_one(&file, &mut reading)?;
            // Text of another kind, as rustfmt.toml is, unless it is asked for by its name.
            let is_other = |file: &mut diagnostic::File| !looks_like_lifecycle(&file.text);
            let was_read = reading.files.files.len() > before;
            let other = if is_folder && was_read { reading.files.files.pop_if(is_other) } else { None };
            if let Some(other) = other {
                left_out.insert(identity, other.name);
            } else {
                left_out.remove(&identity);
                seen.insert(identity);
                holds_some = true;
            }
            if seen.len() + left_out.len() > bounds::FILES {
                bail!("too many files: at most {} are checked together", bounds::FILES);
            }
        }
        if !holds_some {
            bail!("{} holds no lifecycle files (*.toml)", path.display());
        }
    }
    reading.left_out = left_out.into_values().collect();
    Ok(reading)
}

/// Whether anything in it belongs to a lifecycle file, by its lines alone: one that is not even TOML is to hear of it.
fn looks_like_lifecycle(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        let headers = ["[states]", "[[on.", "[on.", "[on]"];
        let word = line.trim_start_matches(['"', '\'']);
        let word = word.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-')).next();
        matches!(word, Some("language" | "lifecycle")) || headers.iter().any(|header| line.starts_with(header))
    })
}

/// The lifecycle files of a folder and of the folders in it, in the order of their paths.
fn inside(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    let mut looked_into = 0;
    while let Some(next) = folders.pop() {
        looked_into += 1;
        let (files, below) = listed(&next)?;
        found.extend(files);
        folders.extend(below);
        if found.len() > bounds::FILES || looked_into + folders.len() > FOLDERS {
            let (folder, files) = (folder.display(), bounds::FILES);
            bail!("{folder} holds too much: at most {files} files in {FOLDERS} folders are checked together");
        }
    }
    found.sort();
    Ok(found)
}

/// The lifecycle files that stand in a folder itself.
pub(crate) fn beside(folder: &Path) -> Vec<PathBuf> {
    let mut found = listed(folder).map_or_else(|_| Vec::new(), |(files, _)| files);
    found.sort();
    found.truncate(bounds::FILES);
    found
}

/// The lifecycle files and the folders of a folder. A system that is also a Rust package keeps its Cargo.toml beside
/// them; what is hidden or built is nobody's lifecycle, and a link to a folder may lead round in a circle.
fn listed(folder: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let cannot = || format!("cannot read the folder {}", folder.display());
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(folder).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let (name, path) = (entry.file_name(), entry.path());
        if name.as_encoded_bytes().starts_with(b".") || name == "target" || name == "Cargo.toml" {
            continue;
        }
        if entry.file_type().with_context(cannot)?.is_dir() {
            folders.push(path);
        } else if path.extension().is_some_and(|extension| extension == "toml") && !path.is_dir() {
            files.push(path);
        }
    }
    Ok((files, folders))
}

pub(crate) fn read_one(path: &Path, reading: &mut Reading) -> Result<()> {
    // A name is shown to a terminal, and whoever made the file chose it.
    let name = path.display().to_string().replace(char::is_control, "\u{fffd}");
    let cannot = || format!("cannot read {name}");
    let file = File::open(path).with_context(cannot)?;
    let limit = bounds::FILE_BYTES as u64;
    let mut bytes = Vec::new();
    // Not by the length that the file claims: a device or a pipe claims none.
    file.take(limit + 1).read_to_end(&mut bytes).with_context(cannot)?;
    if bytes.len() as u64 > limit {
        let message = format!("{name} is too large for a lifecycle file: at most {} KB", limit / 1024);
        reading.unfit.push(Unfit { name, message, at: None });
        return Ok(());
    }
    match String::from_utf8(bytes) {
        Ok(text) => reading.files.files.push(diagnostic::File { name, text: Arc::from(text) }),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let before = String::from_utf8_lossy(&error.as_bytes()[..at]);
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
            let message = format!(
                "{name} is not UTF-8 text: the byte at {at} (line {line}, column {column}) is not part of any character"
            );
            reading.unfit.push(Unfit { name, message, at: Some((line, column)) });
        }
    }
    Ok(())
}
