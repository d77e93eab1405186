//! Proves rules that live in code: applies each edit of `xtask/rule_removals.toml` in a copy of the repository. The
//! copy must compile, and a test that cites the rule must fail. Transitions of built-in lifecycles are compiled in, so
//! they are proved here, too.

use std::collections::BTreeSet;

use anyhow::Result;

use super::trial::{MAX_PARALLEL_TRIALS, RuleTrials};
use super::{ProofOptions, RuleProof, binaries, pick_sample, print_proof, rule_proofs};
use crate::copy::{self, RepositoryCopy};
use crate::lab::safeguards::Safeguards;
use crate::rules::id::RuleId;
use crate::rules::index::RuleIndex;
use crate::rules::rust_file::TestFunction;
use crate::workers::at_once_with;

/// A removal's number and the rules to prove with it.
type RemovalTarget = (usize, Vec<RuleId>);

pub(super) fn prove_code_rules(index: &RuleIndex, options: &ProofOptions) -> Result<Vec<RuleProof>> {
    let copy = RepositoryCopy::from_index(index, &Safeguards::read()?)?;
    let of_number = |(number, removal): (usize, &copy::RuleRemoval)| -> RemovalTarget {
        let rules = removal.rules.iter().filter(|id| options.includes(id) && !index.is_planned(id));
        (number, rules.cloned().collect())
    };
    let mut targets: Vec<RemovalTarget> = copy.removals.iter().enumerate().map(of_number).collect();
    targets.retain(|(_, rules)| !rules.is_empty());
    let targets = pick_sample(targets, options);
    if targets.is_empty() {
        return Ok(Vec::new());
    }
    let tests = citing_tests(index, targets.iter().flat_map(|(_, rules)| rules));
    let build_args = options.build_args(&tests);
    let binaries = copy.build_tests(&build_args)?;
    let trials = RuleTrials::new(&binaries, &tests)?;
    println!("{} edits in one build", targets.len());
    let proofs_by_target = at_once_with(MAX_PARALLEL_TRIALS, &targets, |(number, rules)| {
        let variable = (copy::EDIT_ENV_VAR, number.to_string());
        let noticed = trials.failing_tests(rules, citing_tests(index, rules), Some((variable.0, &variable.1)))?;
        trials.ensure_pass_unchanged(noticed.values().copied())?;
        let found = rule_proofs(rules, &copy.removals[*number].location, &noticed);
        found.iter().for_each(print_proof);
        Ok(found)
    })?;
    Ok(proofs_by_target.into_iter().flatten().collect())
}

pub(super) fn build_copy(index: &RuleIndex) -> Result<()> {
    let copy = RepositoryCopy::from_index(index, &Safeguards::read()?)?;
    let rules = copy.removals.iter().flat_map(|removal| &removal.rules).filter(|id| !index.is_planned(id));
    let tests = citing_tests(index, rules);
    let mut build_args = binaries::targets(tests.iter().map(|test| test.path.as_str()));
    build_args.extend(["--test", "lab"].map(str::to_owned));
    println!("{} test binaries", copy.build_tests(&build_args)?.len());
    Ok(())
}

/// Returns the tests that cite one of the rules. Excludes the lab, which has safeguards of its own.
fn citing_tests<'a, 'b>(
    index: &'a RuleIndex,
    rules: impl IntoIterator<Item = &'b RuleId>,
) -> BTreeSet<&'a TestFunction> {
    rules
        .into_iter()
        .flat_map(|id| index.tests_of(id))
        .filter(|test| !test.path.starts_with("assurance/lab/"))
        .collect()
}
