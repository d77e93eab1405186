//! Reading lifecycle files that somebody named: bounded before they are read, since anyone may have written them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use onceward_core::bounds;
use onceward_core::diagnostic::{self, Files};

/// What came of reading: the files, and those that are no lifecycle files at all.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) files: Files,
    /// One line each: too large, or not text.
    pub(crate) unfit: Vec<String>,
}

/// Reads files and the `*.toml` files of folders, each once, in the order given.
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

/// The lifecycle files of a folder. A system that is also a Rust package keeps its Cargo.toml beside them.
pub(crate) fn inside(folder: &Path) -> Result<Vec<PathBuf>> {
    let listing = std::fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    let mut found = Vec::new();
    for entry in listing {
        let path = entry.with_context(|| format!("cannot read the folder {}", folder.display()))?.path();
        let is_toml = path.extension().is_some_and(|extension| extension == "toml");
        if is_toml && path.file_name().is_some_and(|name| name != "Cargo.toml") && !path.is_dir() {
            found.push(path);
        }
    }
    if found.is_empty() {
        bail!("{} holds no lifecycle files (*.toml)", folder.display());
    }
    found.sort();
    Ok(found)
}

fn read_one(path: &Path, reading: &mut Reading) -> Result<()> {
    // A name is shown to a terminal, and whoever made the file chose it.
    let name = path.display().to_string().replace(char::is_control, "\u{fffd}");
    let cannot = || format!("cannot read {name}");
    let file = File::open(path).with_context(cannot)?;
    let limit = bounds::FILE_BYTES as u64;
    let mut bytes = Vec::new();
    // Not by the length that the file claims: a device or a pipe claims none.
    file.take(limit + 1).read_to_end(&mut bytes).with_context(cannot)?;
    if bytes.len() as u64 > limit {
        reading.unfit.push(format!("{name} is too large for a lifecycle file: at most {} KB", limit / 1024));
        return Ok(());
    }
    match String::from_utf8(bytes) {
        Ok(text) => reading.files.files.push(diagnostic::File { name, text: Arc::from(text) }),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            reading.unfit.push(format!("{name} is not UTF-8 text: the byte at {at} is not part of any character"));
        }
    }
    Ok(())
}
