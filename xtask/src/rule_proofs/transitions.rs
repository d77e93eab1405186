//! Proves rules that live in lifecycle files. Tests load these files through testkit, which omits the entry named in
//! the environment, so nothing is recompiled.

use std::collections::BTreeSet;

use anyhow::Result;

use super::trial::{MAX_PARALLEL_TRIALS, RuleTrials};
use super::{ProofOptions, RuleProof, binaries, pick_sample, print_proof, rule_proofs};
use crate::rules::index::RuleIndex;
use crate::rules::lifecycle_file::RuleEntry;
use crate::rules::rust_file::TestFunction;
use crate::workers::at_once_with;

/// Such as `systems/image/job.toml:65`. Read by testkit.
const REMOVAL_ENV_VAR: &str = "ONCEWARD_REMOVED_ENTRY";

pub(crate) fn prove_transition_rules(index: &RuleIndex, options: &ProofOptions) -> Result<Vec<RuleProof>> {
    let mut entries: Vec<RuleEntry> =
        index.entries.iter().filter(|entry| entry.path.starts_with("systems/")).cloned().collect();
    for entry in &mut entries {
        entry.rules.retain(|id| options.includes(id) && !index.is_planned(id) && !index.has_safeguard(id));
    }
    entries.retain(|entry| !entry.rules.is_empty());
    let entries = pick_sample(entries, options);
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let tests: BTreeSet<&TestFunction> = entries.iter().flat_map(|entry| citing_tests(index, entry)).collect();
    let binaries = binaries::build_here(&options.build_args(&tests), "dev")?;
    let trials = RuleTrials::new(&binaries, &tests)?;
    let proved = at_once_with(MAX_PARALLEL_TRIALS, &entries, |entry| {
        let location = format!("{}:{}", entry.path, entry.line);
        let noticed =
            trials.failing_tests(&entry.rules, citing_tests(index, entry), Some((REMOVAL_ENV_VAR, &location)))?;
        trials.ensure_pass_unchanged(noticed.values().copied())?;
        let found = rule_proofs(&entry.rules, &location, &noticed);
        found.iter().for_each(print_proof);
        Ok(found)
    })?;
    Ok(proved.into_iter().flatten().collect())
}

/// Returns the citing tests of the systems. Other tests do not load these files.
fn citing_tests<'a>(index: &'a RuleIndex, entry: &RuleEntry) -> BTreeSet<&'a TestFunction> {
    let tests = entry.rules.iter().flat_map(|id| index.tests_of(id));
    tests.filter(|test| test.path.starts_with("systems/")).collect()
}
