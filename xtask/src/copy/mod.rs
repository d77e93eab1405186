//! One copy of the repository for all proofs that take code away. Every edit of `xtask/take_away.toml` and every guard of the
//! lab stands in it behind a question that a variable answers, so that one build serves them all. Nothing of it ships.

mod functions;
mod question;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::lab::guards::{self, Guards};
use crate::prove::binaries::{self, Binary, Build};
use crate::rules::id::RuleId;
use crate::rules::index::Index;
use crate::rules::lifecycle_file::{self, Entry};
use crate::rules::take_away::Edit;
use crate::tree;

/// The number of the edit that is made.
pub(crate) const VARIABLE: &str = "ONCEWARD_EDIT";

/// What the copy's core has besides: whether an edit is made in this process.
const QUESTION: &str = r#"
/// Only in the copy that proofs run in: whether this edit is made.
pub fn edit_is_made(number: u32) -> bool {
    static MADE: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();
    *MADE.get_or_init(|| std::env::var("ONCEWARD_EDIT").ok().and_then(|made| made.parse().ok())) == Some(number)
}
"#;

const CORE: &str = "crates/core/src/lib.rs";

const MANIFEST: &str = "Cargo.toml";

/// Cargo knows a crate by its name, its place in its workspace and how it is built, and the copy shares a folder with the
/// repository. So the copy's core is built a little differently, and with it all that rests on core has a name of its own.
const OWN_WAY: &str = "\n[profile.dev.package.onceward-core]\ncodegen-units = 255\n";

/// What only people need is left out.
const DEBUG: (&str, &str) = ("[profile.dev]\ndebug = \"line-tables-only\"", "[profile.dev]\ndebug = false");

/// Something that rules live in, and the edit that takes it away.
pub(crate) struct Removal {
    pub(crate) rules: Vec<RuleId>,
    pub(crate) place: String,
    edit: Edit,
}

pub(crate) struct Copy {
    /// A removal's number is its place here.
    pub(crate) removals: Vec<Removal>,
    /// Numbers of those that no question stands before.
    alone: BTreeSet<usize>,
    /// Files that differ from those of the repository.
    edited: BTreeMap<String, String>,
}

impl Copy {
    pub(crate) fn of(index: &Index, guards: &Guards) -> Result<Self> {
        let removals = removals(index)?;
        let guarded = guards.edited()?;
        let mut by_file: BTreeMap<&str, Vec<(usize, &Edit)>> = BTreeMap::new();
        let mut alone = BTreeSet::new();
        for (number, Removal { edit, .. }) in removals.iter().enumerate() {
            if edit.alone || !tree::has_extension(&edit.file, "rs") {
                alone.insert(number);
            } else {
                by_file.entry(&edit.file).or_default().push((number, edit));
            }
        }
        let mut edited = guarded.clone();
        for (file, edits) in by_file {
            let original = source(file)?;
            let asked = question::put(&original, guarded.get(file).unwrap_or(&original), &edits, home(file))
                .with_context(|| file.to_owned())?;
            alone.extend(asked.alone);
            edited.insert(file.to_owned(), asked.text);
        }
        let core = match edited.get(CORE) {
            Some(text) => text.clone(),
            None => source(CORE)?,
        };
        edited.insert(CORE.to_owned(), core + guards::QUESTION + QUESTION);
        edited.insert(MANIFEST.to_owned(), source(MANIFEST)?.replacen(DEBUG.0, DEBUG.1, 1) + OWN_WAY);
        Ok(Self { removals, alone, edited })
    }

    pub(crate) fn is_alone(&self, number: usize) -> bool {
        self.alone.contains(&number)
    }

    /// Builds tests (cargo's words say which), with every question in them.
    pub(crate) fn build(&self, what: &[String]) -> Result<Vec<Binary>> {
        build(&self.edited, what)
    }

    /// Builds them with one edit made for good.
    pub(crate) fn build_alone(&self, number: usize, what: &[String]) -> Result<Vec<Binary>> {
        let edit = &self.removals[number].edit;
        let mut edited = self.edited.clone();
        edited.insert(edit.file.clone(), edit.apply(&source(&edit.file)?)?);
        build(&edited, what)
    }
}

/// What proofs leave behind, and the copy itself.
pub(crate) fn folder() -> Result<PathBuf> {
    let folder = tree::root().join("target/copy");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// How a file calls core.
pub(crate) fn home(file: &str) -> &'static str {
    if file.starts_with("crates/core/") { "crate" } else { "onceward_core" }
}

pub(crate) fn source(file: &str) -> Result<String> {
    std::fs::read_to_string(tree::root().join(file)).with_context(|| format!("cannot read {file}"))
}

fn build(edited: &BTreeMap<String, String>, what: &[String]) -> Result<Vec<Binary>> {
    let (root, programs) = (folder()?.join("tree"), folder()?.join("target"));
    synchronise(&root, edited)?;
    binaries::build(&Build { root: &root, programs: &programs, what, profile: "dev" })
}

/// All of them, always in the same order.
fn removals(index: &Index) -> Result<Vec<Removal>> {
    let edits = index.edits.iter().map(|edit| Removal {
        rules: edit.rules.clone(),
        place: edit.file.clone(),
        edit: edit.clone(),
    });
    let mut removals: Vec<Removal> = edits.collect();
    for entry in index.entries.iter().filter(|entry| !entry.path.starts_with("systems/") && !entry.rules.is_empty()) {
        let place = format!("{}:{}", entry.path, entry.line);
        removals.push(Removal { rules: entry.rules.clone(), place, edit: compiled_in(entry)? });
    }
    Ok(removals)
}

/// A row of a file that is compiled in: the code that includes the file gets its text without the row.
fn compiled_in(entry: &Entry) -> Result<Edit> {
    let path = tree::root().join(&entry.path).canonicalize()?;
    for code in tree::sources(|path| path.starts_with("crates/") && tree::has_extension(path, "rs"))? {
        let folder = tree::root().join(&code.path).parent().map(Path::to_path_buf).unwrap_or_default();
        for (at, head) in code.text.match_indices("include_str!(\"") {
            let Some((name, _)) = code.text[at + head.len()..].split_once('"') else { continue };
            if folder.join(name).canonicalize().is_ok_and(|included| included == path) {
                return Ok(Edit {
                    rules: entry.rules.clone(),
                    file: code.path.clone(),
                    find: format!("{head}{name}\")"),
                    replace: format!("{:?}", lifecycle_file::without(&source(&entry.path)?, entry)),
                    alone: false,
                });
            }
        }
    }
    bail!("{} is no file of a system, and no code includes it", entry.path)
}

/// Makes the copy equal to the repository but for the files `edited`, touching only those that differ, so that cargo builds
/// little again.
fn synchronise(copy: &Path, edited: &BTreeMap<String, String>) -> Result<()> {
    std::fs::create_dir_all(copy)?;
    let paths = tree::paths()?;
    for path in &paths {
        let bytes = match edited.get(path) {
            Some(text) => text.clone().into_bytes(),
            None => std::fs::read(tree::root().join(path)).with_context(|| format!("cannot read {path}"))?,
        };
        let there = copy.join(path);
        if std::fs::read(&there).ok().as_deref() != Some(&bytes) {
            std::fs::create_dir_all(there.parent().unwrap_or(copy))?;
            std::fs::write(&there, bytes)?;
        }
    }
    let kept: BTreeSet<PathBuf> = paths.iter().map(|path| copy.join(path)).collect();
    let mut folders = vec![copy.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for found in std::fs::read_dir(&folder)? {
            let found = found?.path();
            if found.is_dir() {
                folders.push(found);
            } else if !kept.contains(&found) {
                std::fs::remove_file(&found)?;
            }
        }
    }
    Ok(())
}
