//! Rules that live in code: each edit of `xtask/take_away.toml` is made in a copy of the repository, which must still compile,
//! and a test that cites the rule must fail there. Rows of built-in lifecycles are compiled in, so they are tried here too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{Options, Proof, binaries, sampled, show, trial};
use crate::rules::id::RuleId;
use crate::rules::index::Index;
use crate::rules::lifecycle_file;
use crate::rules::rust_file::Test;
use crate::tree;

/// One file with something taken away.
struct Removal {
    rules: Vec<RuleId>,
    file: String,
    text: String,
}

pub(super) fn prove(index: &Index, options: &Options) -> Result<Vec<Proof>> {
    let removals = sampled(removals(index, options)?, options);
    if removals.is_empty() {
        return Ok(Vec::new());
    }
    let copy = tree::root().join("target/take-away/tree");
    synchronise(&copy, &BTreeMap::new())?;
    baseline(index, &removals, &copy)?;
    let mut proofs = Vec::new();
    for removal in &removals {
        let found = try_removal(index, removal, &copy)?;
        found.iter().for_each(show);
        proofs.extend(found);
    }
    Ok(proofs)
}

fn removals(index: &Index, options: &Options) -> Result<Vec<Removal>> {
    let read =
        |file: &str| std::fs::read_to_string(tree::root().join(file)).with_context(|| format!("cannot read {file}"));
    let wanted = |rules: &[RuleId]| -> Vec<RuleId> {
        rules.iter().filter(|id| options.wants(id) && !index.is_later(id)).cloned().collect()
    };
    let mut removals = Vec::new();
    for edit in &index.edits {
        removals.push(Removal {
            rules: wanted(&edit.rules),
            file: edit.file.clone(),
            text: edit.apply(&read(&edit.file)?)?,
        });
    }
    for entry in index.entries.iter().filter(|entry| !entry.path.starts_with("systems/")) {
        let text = lifecycle_file::without(&read(&entry.path)?, entry);
        removals.push(Removal { rules: wanted(&entry.rules), file: entry.path.clone(), text });
    }
    removals.retain(|removal| !removal.rules.is_empty());
    Ok(removals)
}

/// Makes the copy equal to the repository but for the files `edited`, touching only those that differ, so that cargo builds
/// little again.
pub(crate) fn synchronise(copy: &Path, edited: &BTreeMap<String, String>) -> Result<()> {
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

/// The tests that cite one of the rules. Those of the lab prove by its own guards.
fn tests_of<'a>(index: &'a Index, rules: impl Iterator<Item = &'a RuleId>) -> Vec<&'a Test> {
    let tests: BTreeSet<&Test> =
        rules.flat_map(|id| index.tests_of(id)).filter(|test| !test.path.starts_with("lab/")).collect();
    tests.into_iter().collect()
}

/// Builds what the tests need in the copy as it stands, and runs them.
fn failing(tests: &[&Test], copy: &Path) -> Result<BTreeSet<Test>> {
    let packages: BTreeSet<String> = tests.iter().filter_map(|test| package_of(&test.path)).collect();
    let folder = tree::root().join("target/take-away");
    let binaries = binaries::build(copy, &folder.join("target"), &packages.into_iter().collect::<Vec<_>>())?;
    trial::failing(&binaries, tests, None, &folder.join("code.txt"))
}

/// With nothing taken away they must all pass, or a failure would prove nothing.
fn baseline(index: &Index, removals: &[Removal], copy: &Path) -> Result<()> {
    let tests = tests_of(index, removals.iter().flat_map(|removal| &removal.rules));
    if let Some(test) = failing(&tests, copy)?.first() {
        bail!("{}:{} `{}` fails with nothing taken away", test.path, test.line, test.name);
    }
    Ok(())
}

fn try_removal(index: &Index, removal: &Removal, copy: &Path) -> Result<Vec<Proof>> {
    let file = copy.join(&removal.file);
    std::fs::write(&file, &removal.text)?;
    let tried = failing(&tests_of(index, removal.rules.iter()), copy);
    std::fs::copy(tree::root().join(&removal.file), &file)?;
    Ok(removal
        .rules
        .iter()
        .map(|rule| {
            let outcome = match &tried {
                Ok(failing) => failing
                    .iter()
                    .find(|test| test.rules.contains(rule))
                    .map(|test| test.name.clone())
                    .ok_or_else(|| format!("no test of {rule} fails without it")),
                Err(error) => Err(format!("{error:#}")),
            };
            Proof { rule: rule.clone(), place: removal.file.clone(), outcome }
        })
        .collect())
}

/// The name of the package that a file belongs to.
pub(super) fn package_of(path: &str) -> Option<String> {
    let root = tree::root();
    let manifest =
        Path::new(path).ancestors().skip(1).map(|folder| root.join(folder).join("Cargo.toml")).find(|m| m.is_file())?;
    let table: toml::Table = toml::from_str(&std::fs::read_to_string(manifest).ok()?).ok()?;
    Some(table.get("package")?.get("name")?.as_str()?.to_owned())
}
