//! Reading lifecycle files that somebody named: bounded before they are read, since anyone may have written them.

use std::collections::BTreeSet;
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
    for path in paths {
        let found = if path.is_dir() { inside(path)? } else { vec![path.clone()] };
        for file in found {
            let identity = file.canonicalize().unwrap_or_else(|_| file.clone());
            if seen.insert(identity) {
                read_one(&file, &mut reading)?;
            }
            if seen.len() > bounds::FILES {
                bail!("too many files: at most {} are checked together", bounds::FILES);
            }
        }
    }
    Ok(reading)
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
    if found.is_empty() {
        bail!("{} holds no lifecycle files (*.toml)", folder.display());
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
