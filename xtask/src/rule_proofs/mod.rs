//! `cargo xtask rules --prove`: proves that each rule is tested. Removing the transition or code that cites a rule must
//! fail a test that cites it.

pub(crate) mod binaries;
mod code;
mod transitions;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::rules::id::RuleId;
use crate::rules::index::RuleIndex;
use crate::rules::rust_file::TestFunction;
use crate::{shell, tree};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProofOptions {
    transitions: bool,
    code: bool,
    sample: Option<usize>,
    seed: Option<u64>,
    only_rule: Option<RuleId>,
}

impl ProofOptions {
    pub(crate) fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self { transitions: true, code: true, sample: None, seed: None, only_rule: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match *word {
                "--transitions" => options.code = false,
                "--code" => options.transitions = false,
                "--sample" => options.sample = Some(value()?.parse()?),
                "--seed" => options.seed = Some(value()?.parse()?),
                "--only" => options.only_rule = Some(RuleId::parse(value()?).context("--only needs a rule id")?),
                other => bail!("rules --prove has no option {other}"),
            }
        }
        Ok(options)
    }

    fn includes(&self, id: &RuleId) -> bool {
        self.only_rule.as_ref().is_none_or(|only| only == id)
    }

    /// Returns the cargo arguments for the build. For a single rule, these are the packages of its tests.
    fn build_args(&self, tests: &BTreeSet<&TestFunction>) -> Vec<String> {
        if self.only_rule.is_none() {
            return binaries::targets(tests.iter().map(|test| test.path.as_str()));
        }
        let names: BTreeSet<String> = tests.iter().filter_map(|test| package_of(&test.path)).collect();
        binaries::packages(names.iter().map(String::as_str))
    }
}

/// Returns the name of the package that a file belongs to.
fn package_of(path: &str) -> Option<String> {
    let root = tree::root();
    let manifest =
        Path::new(path).ancestors().skip(1).map(|folder| root.join(folder).join("Cargo.toml")).find(|m| m.is_file())?;
    let table: toml::Table = toml::from_str(&std::fs::read_to_string(manifest).ok()?).ok()?;
    Some(table.get("package")?.get("name")?.as_str()?.to_owned())
}

/// The result of removing one citation of a rule.
struct RuleProof {
    rule: RuleId,
    location: String,
    /// The test that failed, or the reason why none did.
    outcome: Result<String, String>,
}

/// Returns a proof for each of these rules.
fn rule_proofs(rules: &[RuleId], location: &str, noticed: &BTreeMap<RuleId, &TestFunction>) -> Vec<RuleProof> {
    let proof = |rule: &RuleId| RuleProof {
        rule: rule.clone(),
        location: location.to_owned(),
        outcome: match noticed.get(rule) {
            Some(test) => Ok(test.name.clone()),
            None => Err(format!("no test of {rule} fails without it")),
        },
    };
    rules.iter().map(proof).collect()
}

/// Builds what the proofs and the lab run in the copy, so that both find it built.
pub(crate) fn build_copy() -> Result<()> {
    code::build_copy(&RuleIndex::read_all()?)
}

pub(crate) fn run(options: &ProofOptions) -> Result<()> {
    let index = RuleIndex::read_all()?;
    let mut proofs = Vec::new();
    if options.transitions {
        proofs.extend(transitions::prove_transition_rules(&index, options)?);
    }
    if options.code {
        proofs.extend(code::prove_code_rules(&index, options)?);
    }
    let unproved: Vec<&RuleProof> = proofs.iter().filter(|proof| proof.outcome.is_err()).collect();
    println!("{} removed, {} noticed, {} not", proofs.len(), proofs.len() - unproved.len(), unproved.len());
    if !unproved.is_empty() {
        bail!("no test fails without some rules; see the lines marked NOT above");
    }
    Ok(())
}

fn print_proof(proof: &RuleProof) {
    match &proof.outcome {
        Ok(test) => println!("  {:<7} {:<40} {test}", proof.rule.to_string(), proof.location),
        Err(reason) => println!("  {:<7} {:<40} NOT: {reason}", proof.rule.to_string(), proof.location),
    }
}

/// Picks a sample, the same for the same seed. The default seed is the last commit, so the sample changes with the
/// project and stays reproducible.
fn pick_sample<T>(mut all: Vec<T>, options: &ProofOptions) -> Vec<T> {
    let Some(count) = options.sample.filter(|count| *count < all.len()) else { return all };
    let seed = options.seed.unwrap_or_else(|| {
        let head = shell::output(shell::command("git").current_dir(tree::root()).args(["rev-parse", "HEAD"]));
        head.ok().and_then(|hash| u64::from_str_radix(hash.get(..12)?, 16).ok()).unwrap_or(0)
    });
    println!("a sample of {count} of {}, seed {seed}", all.len());
    let mut state = seed ^ 0x9E37_79B9_7F4A_7C15;
    for taken in 0..count {
        // splitmix64 is good enough for a shuffle of this size.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let rest = all.len() - taken;
        let step = usize::try_from(mixed % rest as u64).unwrap_or(0);
        all.swap(taken, taken + step);
    }
    all.truncate(count);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_parse_and_reject_unknown() -> Result<()> {
        let options = ProofOptions::parse(&["--transitions", "--sample", "2", "--seed", "7", "--only", "EXE-9"])?;
        assert!(options.transitions && !options.code && options.sample == Some(2) && options.seed == Some(7));
        assert!(ProofOptions::parse(&["--what"]).is_err());
        assert!(ProofOptions::parse(&["--sample"]).is_err());
        Ok(())
    }

    #[test]
    fn same_seed_gives_same_sample() -> Result<()> {
        let options = ProofOptions::parse(&["--sample", "3", "--seed", "7"])?;
        let first = pick_sample((0..20).collect::<Vec<u32>>(), &options);
        assert_eq!(first, pick_sample((0..20).collect(), &options));
        assert_eq!(first.len(), 3);
        assert_ne!(first, pick_sample((0..20).collect(), &ProofOptions::parse(&["--sample", "3", "--seed", "8"])?));
        Ok(())
    }
}
