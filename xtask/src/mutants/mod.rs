//! `cargo xtask mutants`: mutates every shipped lifecycle file systematically. The static analysis, a scenario test or
//! a property test must catch each mutant; docs/generated/mutants.md lists which does. `--code` mutates the Rust code of the core
//! instead.

mod analysis;
pub(crate) mod code;
mod declarations;
mod expression;
mod file;
mod generator;
mod operator;
mod report;
mod survivors;
mod transitions;
mod trial;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use self::analysis::{AnalysisVerdict, MutantAnalyzer};
use self::file::LifecycleFile;
use self::generator::LifecycleMutant;
use self::operator::MutationOperator;
use self::survivors::KnownSurvivors;
use self::trial::{RETRY_TIMEOUT, SuiteOutcome, SuitePart, SystemSuite, TRIAL_TIMEOUT};
use crate::rule_proofs::binaries::{self, Binary};
use crate::workers::at_once;
use crate::{shell, tree};

/// The smallest machine that the gate runs on has two cores.
const CONCURRENT_TRIALS: usize = 2;
/// The share of mutants that must be caught.
const MIN_SCORE_PERCENT: f64 = 95.0;
/// The gate's sample. The seed is fixed, so that the gate never fails at random.
const SAMPLE_MUTANTS: usize = 40;
const SAMPLE_SEED: u64 = 7;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MutantOptions {
    sample_only: bool,
    show_diff: bool,
    system: Option<String>,
    /// Selects mutants with any of these words in their file or name. Empty selects all.
    name_filters: Vec<String>,
}

impl MutantOptions {
    pub(crate) fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value =
                || words.next().map(|word| (*word).to_owned()).with_context(|| format!("{word} needs a value"));
            match *word {
                "--short" => options.sample_only = true,
                "--diff" => options.show_diff = true,
                "--system" => options.system = Some(value()?),
                "--find" => options.name_filters.push(value()?),
                other => bail!("mutants has no option {other}"),
            }
        }
        Ok(options)
    }

    fn matches(&self, mutant: &LifecycleMutant) -> bool {
        self.system.as_ref().is_none_or(|system| *system == mutant.system)
            && (self.name_filters.is_empty()
                || self.name_filters.iter().any(|text| format!("{} {}", mutant.file, mutant.name).contains(text)))
    }

    fn is_full_run(&self) -> bool {
        !self.sample_only && self.system.is_none() && self.name_filters.is_empty()
    }
}

/// A mutant and the result of each kind of test.
struct TestedMutant {
    mutant: LifecycleMutant,
    verdict: AnalysisVerdict,
    /// The scenario tests' result, without table tests.
    scenario: SuiteOutcome,
    /// The table tests' result. They run only if no scenario test fails.
    table: SuiteOutcome,
    property: SuiteOutcome,
    typed_transitions: SuiteOutcome,
}

impl TestedMutant {
    fn is_real_mutant(&self) -> bool {
        self.verdict != AnalysisVerdict::Identical
    }

    fn is_refused(&self) -> bool {
        matches!(self.verdict, AnalysisVerdict::Refused(_))
    }

    fn is_caught(&self) -> bool {
        self.is_caught_without_tables() || self.table.is_failed()
    }

    fn is_caught_without_tables(&self) -> bool {
        self.is_refused() || self.scenario.is_failed() || self.property.is_failed() || self.has_crashed()
    }

    /// The test results that decide whether the mutant is caught. Warnings and typed transitions do not count.
    const fn test_outcomes(&self) -> [&SuiteOutcome; 3] {
        [&self.scenario, &self.table, &self.property]
    }

    /// No test failed, but not all tests completed.
    fn is_unclear(&self) -> bool {
        let outcomes = self.test_outcomes();
        !outcomes.iter().any(|outcome| outcome.is_failed()) && outcomes.iter().any(|outcome| outcome.is_unclear())
    }

    /// The tests crashed, even when run alone.
    fn has_crashed(&self) -> bool {
        self.is_unclear() && !self.has_timed_out()
    }

    /// The tests did not finish, even alone and with a long timeout. Does not count as caught, because the machine may
    /// be the cause.
    fn has_timed_out(&self) -> bool {
        self.is_unclear() && self.test_outcomes().contains(&&SuiteOutcome::TimedOut)
    }

    fn survives(&self) -> bool {
        self.is_real_mutant() && !self.is_caught()
    }
}

/// Thousands of trials justify an optimized build; `Cargo.toml` has a profile for it. The gate's sample uses the gate's
/// build.
const MUTANTS_PROFILE: &str = "mutants";

/// Runs `cargo xtask mutants`. The long form runs in an optimized build of this program.
pub(crate) fn run_with_args(words: &[&str]) -> Result<()> {
    let options = MutantOptions::parse(words)?;
    let folder = tree::root().join("target").join(MUTANTS_PROFILE);
    if options.sample_only || std::env::current_exe().is_ok_and(|own| own.starts_with(folder)) {
        return run(&options);
    }
    let mut fast_build = shell::command("cargo");
    fast_build.current_dir(tree::root()).args([
        "run",
        "--quiet",
        "--profile",
        MUTANTS_PROFILE,
        "--package",
        "xtask",
        "--",
        "mutants",
    ]);
    shell::run(fast_build.args(words))
}

pub(crate) fn run(options: &MutantOptions) -> Result<()> {
    let survivors = KnownSurvivors::read()?;
    let mut files = lifecycle_files()?;
    // A pending system runs only if it is named.
    files.retain(|file| {
        options.system.as_ref() == Some(&file.system) || !survivors.pending_systems.contains(&file.system)
    });
    let all: Vec<LifecycleMutant> = files.iter().flat_map(generator::generate_mutants).collect();
    if options.system.is_none() {
        survivors.ensure_all_exist(&all)?;
    }
    let fingerprint = report::fingerprint(&all);
    if options.sample_only {
        report::ensure_page_current(&fingerprint)?;
    }
    let mut chosen: Vec<LifecycleMutant> = all.into_iter().filter(|mutant| options.matches(mutant)).collect();
    if options.sample_only {
        chosen = pick_sample(chosen);
    }
    let tried = test_all(&files, chosen, options)?;
    if options.show_diff {
        for tried in &tried {
            print!("{}", report::describe_mutant(tried, &files));
        }
    }
    let text = report::report_page(&tried, &files, &survivors, &fingerprint);
    if options.is_full_run() {
        tree::generate("docs/generated/mutants.md", &text, false, "cargo xtask mutants")?;
    }
    print!("{}", report::terminal_report(&tried, &files, &survivors));
    judge_results(&tried, &survivors, options)
}

fn judge_results(tested: &[TestedMutant], survivors: &KnownSurvivors, options: &MutantOptions) -> Result<()> {
    let unknown = tested.iter().filter(|tried| tried.survives() && survivors.reason(&tried.mutant).is_none()).count();
    if unknown > 0 {
        bail!("{unknown} mutants survive without a reason: test them, or give the reason in xtask/survivors.toml");
    }
    if let Some(caught) = tested.iter().find(|tried| !tried.survives() && survivors.reason(&tried.mutant).is_some()) {
        bail!("xtask/survivors.toml lists a mutant that a test catches: {} {}", caught.mutant.file, caught.mutant.name);
    }
    let score = report::caught_percent(tested.iter());
    if options.is_full_run() && score < MIN_SCORE_PERCENT {
        bail!("{score:.1} % of the mutants are caught; at least {MIN_SCORE_PERCENT} % must be");
    }
    Ok(())
}

/// Returns the lifecycle files of all folders in `systems/`.
fn lifecycle_files() -> Result<Vec<LifecycleFile>> {
    let is_lifecycle = |path: &str| {
        let parts: Vec<&str> = path.split('/').collect();
        parts.len() == 3 && parts[0] == "systems" && parts[2] != "Cargo.toml" && tree::has_extension(path, "toml")
    };
    tree::sources(is_lifecycle)?
        .into_iter()
        .map(|source| {
            let system = source.path.split('/').nth(1).unwrap_or_default().to_owned();
            LifecycleFile::read(&system, &source.path, source.text)
        })
        .collect()
}

fn system_names(files: &[LifecycleFile]) -> Vec<&str> {
    let mut systems: Vec<&str> = files.iter().map(|file| file.system.as_str()).collect();
    systems.dedup();
    systems
}

/// Picks some mutants of each operator, then random ones. The seed is fixed.
fn pick_sample(mut all: Vec<LifecycleMutant>) -> Vec<LifecycleMutant> {
    let mut state = SAMPLE_SEED;
    let mut next_random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut shuffled: Vec<(u64, LifecycleMutant)> = all.drain(..).map(|mutant| (next_random(), mutant)).collect();
    shuffled.sort_by_key(|(key, _)| *key);
    let mut seen = std::collections::BTreeSet::new();
    let (mut first, rest): (Vec<_>, Vec<_>) =
        shuffled.into_iter().map(|(_, mutant)| mutant).partition(|mutant| seen.insert(mutant.operator));
    first.extend(rest);
    first.truncate(SAMPLE_MUTANTS);
    first
}

fn test_all(
    files: &[LifecycleFile],
    mutants: Vec<LifecycleMutant>,
    options: &MutantOptions,
) -> Result<Vec<TestedMutant>> {
    let systems = system_names(files);
    let wanted_systems: Vec<&str> =
        systems.iter().copied().filter(|system| mutants.iter().any(|mutant| mutant.system == **system)).collect();
    let target = tree::root().join("target");
    let binaries = build_tests(&wanted_systems, options)?;
    let mut analyzers = BTreeMap::new();
    for system in wanted_systems {
        let own: Vec<&LifecycleFile> = files.iter().filter(|file| file.system == system).collect();
        analyzers.insert(system.to_owned(), (MutantAnalyzer::new(&own)?, SystemSuite::for_system(system, &binaries)));
    }
    let folder = target.join("lifecycle-mutants");
    assert_unchanged_passes(&analyzers, &folder, options)?;
    let (next, count) = (AtomicUsize::new(0), mutants.len());
    let slots: Vec<Mutex<Option<LifecycleMutant>>> =
        mutants.into_iter().map(|mutant| Mutex::new(Some(mutant))).collect();
    let results = Mutex::new(Vec::new());
    let work = |worker: usize| -> Result<()> {
        let folder = folder.join(format!("worker-{worker}"));
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = slots.get(at) else { return Ok(()) };
            let Some(mutant) = slot.lock().map_err(|_| anyhow!("a worker panicked"))?.take() else { continue };
            let (judge, suite) = analyzers.get(&mutant.system).context("every system has a judge")?;
            let tried = test_mutant(mutant, (judge, suite), &folder, TRIAL_TIMEOUT, options)?;
            if tried.survives() && !tried.is_unclear() {
                eprintln!("  survives: {} {}", tried.mutant.file, tried.mutant.name);
            }
            if at % 100 == 99 {
                eprintln!("  {} of {count}", at + 1);
            }
            results.lock().map_err(|_| anyhow!("a worker panicked"))?.push((at, tried));
        }
    };
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..CONCURRENT_TRIALS).map(|worker| scope.spawn(move || work(worker))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow!("a worker panicked"))?)
    })?;
    let mut done: Vec<(usize, TestedMutant)> = results.into_inner().map_err(|_| anyhow!("a worker panicked"))?;
    done.sort_by_key(|(at, _)| *at);
    // Retry unclear mutants alone and with a long timeout, to rule out a busy machine.
    let retry_unclear = |(_, tried): (usize, TestedMutant)| {
        if !tried.is_unclear() {
            return Ok(tried);
        }
        eprintln!("  again, alone: {} {}", tried.mutant.file, tried.mutant.name);
        let (judge, suite) = analyzers.get(&tried.mutant.system).context("every system has a judge")?;
        test_mutant(tried.mutant, (judge, suite), &folder.join("alone"), RETRY_TIMEOUT, options)
    };
    done.into_iter().map(retry_unclear).collect()
}

/// Builds the tests of these systems. The gate reuses its own build.
fn build_tests(systems: &[&str], options: &MutantOptions) -> Result<Vec<Binary>> {
    if options.sample_only {
        let is_test = |path: &&String| systems.iter().any(|name| path.starts_with(&format!("systems/{name}/tests/")));
        let paths = tree::paths()?;
        let tests = paths.iter().filter(is_test).filter(|path| tree::has_extension(path, "rs"));
        return binaries::build_here(&binaries::targets(tests.map(String::as_str)), "dev");
    }
    let packages: Vec<String> = systems.iter().map(|system| format!("onceward-system-{system}")).collect();
    binaries::build_here(&binaries::packages(packages.iter().map(String::as_str)), MUTANTS_PROFILE)
}

/// Fails unless all tests pass with the unchanged files. Otherwise a failure proves nothing.
fn assert_unchanged_passes(
    judges: &BTreeMap<String, (MutantAnalyzer, SystemSuite)>,
    folder: &Path,
    options: &MutantOptions,
) -> Result<()> {
    let empty_dir = folder.join("nothing");
    std::fs::create_dir_all(&empty_dir)?;
    let mut parts = vec![SuitePart::Scenarios, SuitePart::Tables, SuitePart::Properties];
    if !options.sample_only {
        parts.push(SuitePart::TypedTransitions);
    }
    let systems: Vec<(&String, &SystemSuite)> = judges.iter().map(|(system, (_, suite))| (system, suite)).collect();
    let played = at_once(&systems, |(system, suite)| {
        for part in &parts {
            match suite.run_part(*part, &empty_dir, RETRY_TIMEOUT)? {
                SuiteOutcome::Passed => {}
                outcome => bail!("{system}: its tests fail without a change: {outcome:?}"),
            }
        }
        Ok(())
    });
    played.map(drop)
}

fn test_mutant(
    mutant: LifecycleMutant,
    (judge, suite): (&MutantAnalyzer, &SystemSuite),
    folder: &Path,
    limit: Duration,
    options: &MutantOptions,
) -> Result<TestedMutant> {
    let verdict = judge.analyze(&mutant);
    let mut tested = TestedMutant {
        mutant,
        verdict,
        scenario: SuiteOutcome::Passed,
        table: SuiteOutcome::Passed,
        property: SuiteOutcome::Passed,
        typed_transitions: SuiteOutcome::Passed,
    };
    if !tested.is_real_mutant() || tested.is_refused() {
        return Ok(tested);
    }
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    let file = folder.join(tested.mutant.file.trim_start_matches("systems/"));
    std::fs::create_dir_all(file.parent().context("file has a folder")?)?;
    std::fs::write(&file, &tested.mutant.text)?;
    tested.scenario = suite.run_part(SuitePart::Scenarios, folder, limit)?;
    // A mutant that loops forever in scenario tests does so in the others, and takes as long.
    if options.sample_only && tested.scenario.is_failed() || tested.scenario == SuiteOutcome::TimedOut {
        return Ok(tested);
    }
    if !tested.scenario.is_failed() {
        tested.table = suite.run_part(SuitePart::Tables, folder, limit)?;
    }
    tested.property = suite.run_part(SuitePart::Properties, folder, limit)?;
    if !options.sample_only {
        tested.typed_transitions = suite.run_part(SuitePart::TypedTransitions, folder, limit)?;
    }
    Ok(tested)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_parse_and_reject_unknown() -> Result<()> {
        let options =
            MutantOptions::parse(&["--short", "--system", "image", "--find", "on.fail", "--find", "on.lease"])?;
        assert!(
            options.sample_only
                && options.system.as_deref() == Some("image")
                && options.name_filters == ["on.fail", "on.lease"]
        );
        assert!(MutantOptions::parse(&["--what"]).is_err());
        assert!(MutantOptions::parse(&["--system"]).is_err());
        Ok(())
    }

    #[test]
    fn every_operator_yields_uniquely_named_mutants() -> Result<()> {
        let all: Vec<LifecycleMutant> = lifecycle_files()?.iter().flat_map(generator::generate_mutants).collect();
        for operator in MutationOperator::ALL {
            assert!(all.iter().any(|mutant| mutant.operator == operator), "{} breaks nothing", operator.label());
        }
        let names: std::collections::BTreeSet<_> = all.iter().map(|mutant| (&mutant.file, &mutant.name)).collect();
        assert_eq!(names.len(), all.len());
        Ok(())
    }
}
