//! Rules that live in code: each edit of `xtask/take_away.toml` is made in a copy of the repository, which must still compile,
//! and a test that cites the rule must fail there. Rows of built-in lifecycles are compiled in, so they are tried here too.

use std::collections::BTreeSet;

use anyhow::Result;

use super::trial::Trials;
use super::{Options, Proof, proofs, sampled, show};
use crate::copy::{self, Copy};
use crate::lab::guards::Guards;
use crate::rules::id::RuleId;
use crate::rules::index::Index;
use crate::rules::rust_file::Test;
use crate::workers::at_once;

/// A removal by its number, and the rules that it is tried for.
type Wanted = (usize, Vec<RuleId>);

pub(super) fn prove(index: &Index, options: &Options) -> Result<Vec<Proof>> {
    let copy = Copy::of(index, &Guards::read()?)?;
    let of_number = |(number, removal): (usize, &copy::Removal)| -> Wanted {
        let rules = removal.rules.iter().filter(|id| options.wants(id) && !index.is_later(id));
        (number, rules.cloned().collect())
    };
    let mut wanted: Vec<Wanted> = copy.removals.iter().enumerate().map(of_number).collect();
    wanted.retain(|(_, rules)| !rules.is_empty());
    let wanted = sampled(wanted, options);
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let tests = tests_of(index, wanted.iter().flat_map(|(_, rules)| rules));
    let what = options.what(&tests);
    let (alone, asked): (Vec<Wanted>, Vec<Wanted>) = wanted.into_iter().partition(|(number, _)| copy.is_alone(*number));

    let binaries = copy.build(&what)?;
    let trials = Trials::of(&binaries, &tests)?;
    println!("{} edits in one build, {} in builds of their own", asked.len(), alone.len());
    let proved = at_once(&asked, |(number, rules)| {
        let variable = (copy::VARIABLE, number.to_string());
        let noticed = trials.noticed(rules, tests_of(index, rules), Some((variable.0, &variable.1)))?;
        trials.must_pass(noticed.values().copied())?;
        let found = proofs(rules, &copy.removals[*number].place, &noticed);
        found.iter().for_each(show);
        Ok(found)
    })?;
    let mut proved: Vec<Proof> = proved.into_iter().flatten().collect();
    for (number, rules) in &alone {
        let place = &copy.removals[*number].place;
        let found = match copy.build_alone(*number, &what) {
            Ok(binaries) => {
                let own = tests_of(index, rules);
                let noticed = Trials::of(&binaries, &own)?.noticed(rules, own, None)?;
                trials.must_pass(noticed.values().copied())?;
                proofs(rules, place, &noticed)
            }
            Err(error) => {
                let failed = |rule: &RuleId| Proof {
                    rule: rule.clone(),
                    place: place.clone(),
                    outcome: Err(format!("{error:#}")),
                };
                rules.iter().map(failed).collect()
            }
        };
        found.iter().for_each(show);
        proved.extend(found);
    }
    Ok(proved)
}

/// The tests that cite one of the rules. Those of the lab prove by its own guards.
fn tests_of<'a, 'b>(index: &'a Index, rules: impl IntoIterator<Item = &'b RuleId>) -> BTreeSet<&'a Test> {
    rules.into_iter().flat_map(|id| index.tests_of(id)).filter(|test| !test.path.starts_with("lab/")).collect()
}
