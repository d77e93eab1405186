//! `cargo xtask lab`: shows each failure mode without its safeguard, with it, and the recovery.

pub(crate) mod safeguards;
mod server;
mod trial;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::copy::{self, RepositoryCopy};
use crate::packages;
use crate::rule_proofs::binaries::{self, Binary};
use crate::rules::id::RuleId;
use crate::rules::index::RuleIndex;
use crate::workers::at_once;
use safeguards::{FailureMode, REMOVED_ENV_VAR, SafeguardRemoval, Safeguards};
use server::LabPostgres;
use trial::LabTrial;

/// Selects the lab's tests with the gate's own build options.
const LAB_TEST_ARGS: [&str; 3] = ["--workspace", "--test", "lab"];

/// Names a folder with lifecycle files that testkit loads instead of the shipped ones.
const LIFECYCLES_ENV_VAR: &str = "ONCEWARD_MUTANT_DIR";

pub(crate) fn run(words: &[&str]) -> Result<()> {
    let only = match words {
        [] => None,
        ["--only", rule] => Some(RuleId::parse(rule).context("--only needs an id, such as FM-1")?),
        other => bail!("lab has no option {}", other.join(" ")),
    };
    packages::have_postgres()?;
    packages::have_strace()?;
    let safeguards = Safeguards::read()?;
    let failure_modes: Vec<&FailureMode> =
        safeguards.failure_modes.iter().filter(|page| only.as_ref().is_none_or(|id| page.rule == *id)).collect();
    if failure_modes.is_empty() {
        bail!("{} has no such failure mode", safeguards::SAFEGUARDS_FILE);
    }
    let harness = LabHarness::build(&safeguards)?;
    let reports = at_once(&failure_modes, |page| {
        let mut wrong = Vec::new();
        Ok((harness.run_failure_mode(page, &mut wrong)?, wrong))
    })?;
    let (shown, wrong): (Vec<FailureModeReport>, Vec<Vec<String>>) = reports.into_iter().unzip();
    let wrong = wrong.concat();
    print_reports(&shown);
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("lab results differ from assurance/lab/guards.toml:\n  {}", wrong.join("\n  "))
}

/// The lab's tests in an unchanged build and in a build with switchable safeguards.
struct LabHarness<'a> {
    safeguards: &'a Safeguards,
    work_dir: PathBuf,
    original: Binary,
    switched: Binary,
    server: LabPostgres,
}

/// The results of one failure mode.
struct FailureModeReport {
    rule: String,
    name: String,
    /// The tests' observations, by [`LabTestKind`].
    observations: [Vec<String>; 3],
    /// Tests with the expected result and all tests, by [`LabTestKind`].
    counts: [(usize, usize); 3],
    /// Like `counts`, for tests that must fail without their safeguard.
    detected_removals: (usize, usize),
    duration: Duration,
}

impl FailureModeReport {
    fn new(failure_mode: &FailureMode) -> Self {
        Self {
            rule: failure_mode.rule.to_string(),
            name: failure_mode.name.clone(),
            observations: [Vec::new(), Vec::new(), Vec::new()],
            counts: [(0, 0); 3],
            detected_removals: (0, 0),
            duration: Duration::ZERO,
        }
    }

    /// Adds the result of a test that must pass.
    fn add_trial(&mut self, kind: LabTestKind, trial: &LabTrial) {
        let (good, all) = &mut self.counts[kind as usize];
        *good += usize::from(trial.passed);
        *all += 1;
        if trial.passed {
            self.observations[kind as usize].extend(trial.observation.clone());
        }
        self.duration += trial.duration;
    }
}

impl<'a> LabHarness<'a> {
    fn build(safeguards: &'a Safeguards) -> Result<Self> {
        let tests = LAB_TEST_ARGS.map(str::to_owned);
        let original = find_lab_binary(binaries::build_here(&tests, "dev")?)?;
        let switched =
            find_lab_binary(RepositoryCopy::from_index(&RuleIndex::read_all()?, safeguards)?.build_tests(&tests)?)?;
        let folder = copy::work_dir()?;
        let server = LabPostgres::find_or_start(&original)?;
        Ok(Self { safeguards, work_dir: folder, original, switched, server })
    }

    fn run_trial(&self, binary: &Binary, test: &str, variables: &[(&str, &str)]) -> Result<LabTrial> {
        let variables = [variables, &[(server::POSTGRES_ENV_VAR, self.server.url.as_str())]].concat();
        trial::run_trial(binary, test, &variables, &self.work_dir.join(format!("{}.txt", test.replace("::", "."))))
    }

    /// Runs all tests of a failure mode.
    fn run_failure_mode(&self, failure_mode: &FailureMode, problems: &mut Vec<String>) -> Result<FailureModeReport> {
        let mut report = FailureModeReport::new(failure_mode);
        let tests = self.tests_of(failure_mode, problems);
        for test in &tests {
            let trial = self.run_trial(&self.original, test, &[])?;
            match test_kind(test) {
                LabTestKind::Damage => {
                    report.duration += trial.duration;
                    if trial.passed {
                        problems.push(format!("{test} passes with every safeguard in place"));
                    }
                }
                kind => {
                    report.add_trial(kind, &trial);
                    if !trial.passed {
                        problems.push(format!("{test} fails:\n{}", indent(&trial.output)));
                    }
                }
            }
        }
        // With every safeguard active, the switchable build must pass too. Otherwise a failure in it proves nothing.
        for test in tests
            .iter()
            .filter(|test| failure_mode.removals.iter().any(|without| contains_test(&without.failing_tests, test)))
        {
            let trial = self.run_trial(&self.switched, test, &[])?;
            report.duration += trial.duration;
            if !trial.passed {
                problems.push(format!(
                    "{test} fails in the copy with every safeguard in place:\n{}",
                    indent(&trial.output)
                ));
            }
        }
        for without in &failure_mode.removals {
            let lifecycles = self.write_lifecycles(failure_mode, without)?;
            let guards = without.safeguards.join(",");
            let mut variables = vec![(REMOVED_ENV_VAR, guards.as_str())];
            if let Some(folder) = &lifecycles {
                variables.push((LIFECYCLES_ENV_VAR, folder));
            }
            for test in tests.iter().filter(|test| contains_test(&without.damage_tests, test)) {
                let trial = self.run_trial(&self.switched, test, &variables)?;
                report.add_trial(LabTestKind::Damage, &trial);
                if !trial.passed {
                    let printed = indent(&trial.output);
                    problems.push(format!("without {guards}, {test} finds no damage:\n{printed}"));
                }
            }
            for test in tests.iter().filter(|test| contains_test(&without.failing_tests, test)) {
                let trial = self.run_trial(&self.switched, test, &variables)?;
                report.duration += trial.duration;
                report.detected_removals.0 += usize::from(!trial.passed);
                report.detected_removals.1 += 1;
                if trial.passed {
                    problems.push(format!("without {guards}, {test} still passes"));
                }
            }
        }
        Ok(report)
    }

    /// Returns the full names of the failure mode's tests. Reports tests that assurance/lab/guards.toml lists but that do not
    /// exist, and the reverse.
    fn tests_of(&self, failure_mode: &FailureMode, problems: &mut Vec<String>) -> Vec<String> {
        let own = format!("{}::", failure_mode.module);
        let tests: Vec<String> = self.original.tests.iter().filter(|test| test.starts_with(&own)).cloned().collect();
        let named_tests: Vec<&String> = failure_mode
            .removals
            .iter()
            .flat_map(|without| without.damage_tests.iter().chain(&without.failing_tests))
            .collect();
        for name in &named_tests {
            if !tests.iter().any(|test| short_test_name(test) == name.as_str()) {
                problems.push(format!(
                    "{} names `{name}`, which {} does not have",
                    safeguards::SAFEGUARDS_FILE,
                    failure_mode.module
                ));
            }
        }
        for test in tests.iter().filter(|test| test_kind(test) != LabTestKind::Recovered) {
            if !named_tests.iter().any(|name| short_test_name(test) == name.as_str()) {
                problems.push(format!("{} does not list {test}", safeguards::SAFEGUARDS_FILE));
            }
        }
        tests
    }

    /// Writes lifecycle files without these safeguards. Returns `None` if they are all in code.
    fn write_lifecycles(&self, failure_mode: &FailureMode, removal: &SafeguardRemoval) -> Result<Option<String>> {
        let changed = self.safeguards.lifecycles_without(&removal.safeguards)?;
        if changed.is_empty() {
            return Ok(None);
        }
        let folder = self.work_dir.join(&failure_mode.module).join(removal.safeguards.join("-").replace(' ', "_"));
        for (name, text) in changed {
            let file = folder.join(name);
            std::fs::create_dir_all(file.parent().unwrap_or(&folder))?;
            std::fs::write(file, text)?;
        }
        Ok(Some(folder.to_string_lossy().into_owned()))
    }
}

fn find_lab_binary(binaries: Vec<Binary>) -> Result<Binary> {
    binaries
        .into_iter()
        .find(|binary| Path::new(&binary.main).ends_with("assurance/lab/lab.rs"))
        .context("the lab has no tests")
}

/// What a test shows, by its name. Also the index of its column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LabTestKind {
    Damage,
    Prevented,
    Recovered,
}

fn test_kind(test: &str) -> LabTestKind {
    match short_test_name(test).split('_').next() {
        Some("damage") => LabTestKind::Damage,
        Some("recovered") => LabTestKind::Recovered,
        _ => LabTestKind::Prevented,
    }
}

fn short_test_name(test: &str) -> &str {
    test.rsplit("::").next().unwrap_or(test)
}

fn contains_test(list: &[String], test: &str) -> bool {
    list.iter().any(|name| short_test_name(test) == name)
}

fn indent(printed: &str) -> String {
    let lines = printed.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| format!("      {line}")).collect::<Vec<_>>().join("\n")
}

/// Prints the observations, then the table.
fn print_reports(reports: &[FailureModeReport]) {
    for page in reports {
        println!("{} {}", page.rule, page.name);
        for (name, seen) in ["without safeguard", "with safeguard", "recovered"].iter().zip(&page.observations) {
            for (number, line) in seen.iter().enumerate() {
                println!("  {:<18} {line}", if number == 0 { name } else { "" });
            }
        }
    }
    println!(
        "\n| | failure mode | damage without safeguard | prevented with it | missed without it | recovered | time |"
    );
    println!("| --- | --- | --- | --- | --- | --- | ---: |");
    for page in reports {
        let [damage, prevented, recovered] = page.counts.map(ratio_text);
        let (missed, seconds) = (ratio_text(page.detected_removals), page.duration.as_secs_f64());
        let FailureModeReport { rule, name, .. } = page;
        println!("| {rule} | {name} | {damage} | {prevented} | {missed} | {recovered} | {seconds:.1} s |");
    }
}

fn ratio_text((good, all): (usize, usize)) -> String {
    if all == 0 { "-".to_owned() } else { format!("{good} of {all}") }
}
