//! Maintains the copy of the repository in which rule proofs and the lab change code.
//!
//! The copy contains every edit of `xtask/rule_removals.toml` and every safeguard of the lab behind a switch that an
//! environment variable controls. So one build serves all trials. Shipped code contains none of this.

mod functions;
mod switch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::lab::safeguards::{self, Safeguards};
use crate::rule_proofs::binaries::{self, Binary, Build};
use crate::rules::id::RuleId;
use crate::rules::index::RuleIndex;
use crate::rules::lifecycle_file::{self, RuleEntry};
use crate::rules::rule_removals::CodeEdit;
use crate::tree;

/// The number of the active edit.
pub(crate) const EDIT_ENV_VAR: &str = "ONCEWARD_REMOVED_RULE";

/// The function that the copy adds to core: returns whether an edit is active in this process.
const SWITCH_FUNCTION: &str = r#"
/// Only in the copy that proofs run in: whether this edit is made.
pub fn is_rule_removed(number: u32) -> bool {
    static MADE: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();
    *MADE.get_or_init(|| std::env::var("ONCEWARD_REMOVED_RULE").ok().and_then(|made| made.parse().ok())) == Some(number)
}
"#;

const CORE_LIB_FILE: &str = "crates/core/src/lib.rs";

const MANIFEST_FILE: &str = "Cargo.toml";

/// The copy shares the target folder with the repository, and cargo identifies a crate by name, path in the workspace
/// and build options. So the copy builds core with another option, which gives core and its dependents names of their
/// own.
const COPY_PROFILE: &str = "\n[profile.dev.package.onceward-core]\ncodegen-units = 255\n";

/// Turns off debug info, which only people need.
const DEBUG_SETTING_REPLACEMENT: (&str, &str) =
    ("[profile.dev]\ndebug = \"line-tables-only\"", "[profile.dev]\ndebug = false");

/// The code of some rules, and the edit that removes it.
pub(crate) struct RuleRemoval {
    pub(crate) rules: Vec<RuleId>,
    pub(crate) location: String,
    edit: CodeEdit,
}

pub(crate) struct RepositoryCopy {
    /// A removal's number is its index here.
    pub(crate) removals: Vec<RuleRemoval>,
    /// Files that differ from the repository.
    edited_files: BTreeMap<String, String>,
}

impl RepositoryCopy {
    pub(crate) fn from_index(index: &RuleIndex, safeguards: &Safeguards) -> Result<Self> {
        let removals = collect_removals(index)?;
        let safeguarded = safeguards.switched_files()?;
        let mut by_file: BTreeMap<&str, Vec<(usize, &CodeEdit)>> = BTreeMap::new();
        for (number, RuleRemoval { edit, .. }) in removals.iter().enumerate() {
            by_file.entry(&edit.file).or_default().push((number, edit));
        }
        let mut edited_files = safeguarded.clone();
        for (file, edits) in by_file {
            let original = read_source(file)?;
            let switched =
                switch::add_switches(&original, safeguarded.get(file).unwrap_or(&original), &edits, core_path(file))
                    .with_context(|| file.to_owned())?;
            edited_files.insert(file.to_owned(), switched);
        }
        let core = match edited_files.get(CORE_LIB_FILE) {
            Some(text) => text.clone(),
            None => read_source(CORE_LIB_FILE)?,
        };
        edited_files.insert(CORE_LIB_FILE.to_owned(), core + safeguards::SWITCH_FUNCTION + SWITCH_FUNCTION);
        edited_files.insert(
            MANIFEST_FILE.to_owned(),
            read_source(MANIFEST_FILE)?.replacen(DEBUG_SETTING_REPLACEMENT.0, DEBUG_SETTING_REPLACEMENT.1, 1)
                + COPY_PROFILE,
        );
        Ok(Self { removals, edited_files })
    }

    /// Builds the tests that `cargo_args` select, with every switch.
    pub(crate) fn build_tests(&self, cargo_args: &[String]) -> Result<Vec<Binary>> {
        build_copy(&self.edited_files, cargo_args)
    }
}

/// Returns the folder of the copy and of the trials' files.
pub(crate) fn work_dir() -> Result<PathBuf> {
    let folder = tree::root().join("target/copy");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Returns the path by which a file refers to core.
pub(crate) fn core_path(file: &str) -> &'static str {
    if file.starts_with("crates/core/") { "crate" } else { "onceward_core" }
}

pub(crate) fn read_source(file: &str) -> Result<String> {
    std::fs::read_to_string(tree::root().join(file)).with_context(|| format!("cannot read {file}"))
}

fn build_copy(edited: &BTreeMap<String, String>, cargo_args: &[String]) -> Result<Vec<Binary>> {
    let (root, programs) = (work_dir()?.join("tree"), work_dir()?.join("target"));
    sync_copy(&root, edited)?;
    binaries::build(&Build { root: &root, programs: &programs, what: cargo_args, profile: "dev" })
}

/// Returns all removals in a stable order.
fn collect_removals(index: &RuleIndex) -> Result<Vec<RuleRemoval>> {
    let edits = index.edits.iter().map(|edit| RuleRemoval {
        rules: edit.rules.clone(),
        location: edit.file.clone(),
        edit: edit.clone(),
    });
    let mut removals: Vec<RuleRemoval> = edits.collect();
    for entry in index.entries.iter().filter(|entry| !entry.path.starts_with("systems/") && !entry.rules.is_empty()) {
        let location = format!("{}:{}", entry.path, entry.line);
        removals.push(RuleRemoval { rules: entry.rules.clone(), location, edit: removal_of_compiled_entry(entry)? });
    }
    Ok(removals)
}

/// Removes an entry of a lifecycle file that is compiled in, by editing the code that includes the file.
fn removal_of_compiled_entry(entry: &RuleEntry) -> Result<CodeEdit> {
    let path = tree::root().join(&entry.path).canonicalize()?;
    for code in tree::sources(|path| path.starts_with("crates/") && tree::has_extension(path, "rs"))? {
        let folder = tree::root().join(&code.path).parent().map(Path::to_path_buf).unwrap_or_default();
        for (at, head) in code.text.match_indices("include_str!(\"") {
            let Some((name, _)) = code.text[at + head.len()..].split_once('"') else { continue };
            if folder.join(name).canonicalize().is_ok_and(|included| included == path) {
                return Ok(CodeEdit {
                    rules: entry.rules.clone(),
                    file: code.path.clone(),
                    find: format!("{head}{name}\")"),
                    replace: format!("{:?}", lifecycle_file::without_entry(&read_source(&entry.path)?, entry)),
                });
            }
        }
    }
    bail!("{} is no file of a system, and no code includes it", entry.path)
}

/// Makes the copy equal to the repository, except for the files `edited`. Writes only files that differ, so that cargo
/// rebuilds little.
fn sync_copy(copy: &Path, edited: &BTreeMap<String, String>) -> Result<()> {
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
    let expected_files: BTreeSet<PathBuf> = paths.iter().map(|path| copy.join(path)).collect();
    let mut folders = vec![copy.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for found in std::fs::read_dir(&folder)? {
            let found = found?.path();
            if found.is_dir() {
                folders.push(found);
            } else if !expected_files.contains(&found) {
                std::fs::remove_file(&found)?;
            }
        }
    }
    Ok(())
}
