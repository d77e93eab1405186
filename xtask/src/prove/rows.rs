//! Rows and entries of lifecycle files: the tests load the files through testkit, which leaves out the one named in the
//! environment. Nothing is compiled again.

use std::collections::BTreeSet;

use anyhow::Result;

use super::trial::Trials;
use super::{Options, Proof, binaries, proofs, sampled, show};
use crate::rules::index::Index;
use crate::rules::lifecycle_file::Entry;
use crate::rules::rust_file::Test;
use crate::workers::at_once;

/// `systems/image/job.toml:65`, read by testkit.
const VARIABLE: &str = "ONCEWARD_TAKE_AWAY";

pub(crate) fn prove(index: &Index, options: &Options) -> Result<Vec<Proof>> {
    let mut entries: Vec<Entry> =
        index.entries.iter().filter(|entry| entry.path.starts_with("systems/")).cloned().collect();
    for entry in &mut entries {
        entry.rules.retain(|id| options.wants(id) && !index.is_later(id) && !index.is_in_the_lab(id));
    }
    entries.retain(|entry| !entry.rules.is_empty());
    let entries = sampled(entries, options);
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let tests: BTreeSet<&Test> = entries.iter().flat_map(|entry| tests_of(index, entry)).collect();
    let binaries = binaries::build_here(&options.what(&tests), "dev")?;
    let trials = Trials::of(&binaries, &tests)?;
    let proved = at_once(&entries, |entry| {
        let place = format!("{}:{}", entry.path, entry.line);
        let noticed = trials.noticed(&entry.rules, tests_of(index, entry), Some((VARIABLE, &place)))?;
        trials.must_pass(noticed.values().copied())?;
        let found = proofs(&entry.rules, &place, &noticed);
        found.iter().for_each(show);
        Ok(found)
    })?;
    Ok(proved.into_iter().flatten().collect())
}

/// Only a system's own tests play its files; the others would pass whatever is taken away.
fn tests_of<'a>(index: &'a Index, entry: &Entry) -> BTreeSet<&'a Test> {
    let tests = entry.rules.iter().flat_map(|id| index.tests_of(id));
    tests.filter(|test| test.path.starts_with("systems/")).collect()
}
