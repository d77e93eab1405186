//! Runs the gate (`cargo xtask test`) and its long form (`cargo xtask nightly`), with the same commands for people and
//! CI. The gate skips nothing, and no measured time fails it.

use anyhow::{Context, Result};

use crate::steps::{CommandStep, Steps};
use crate::{
    bench, contract, deny, errors, fuzz, mutants, programs, purity, rules, sdk, shell, suite, tidy, torture, tree,
};

/// Run beside the tests, which leave a third of two cores idle.
const BESIDE_TESTS: &[CommandStep] = &[
    CommandStep { name: "build of the copy", words: &["rules", "--prove", "--build"] },
    CommandStep { name: "documentation", words: &["docs"] },
];

/// Proofs compute; the steps of the other lane mostly wait for processes and disks.
const COMPUTING_LANE: &[CommandStep] = &[
    CommandStep { name: "rule proofs: code", words: &["rules", "--prove", "--code"] },
    CommandStep { name: "rule proofs: transitions", words: &["rules", "--prove", "--transitions"] },
    CommandStep { name: "lifecycle mutants, sample", words: &["mutants", "--short"] },
    CommandStep { name: "diagrams", words: &["diagrams", "--check"] },
    CommandStep { name: "benchmark, short form", words: &["bench", "--short"] },
];

const WAITING_LANE: &[CommandStep] = &[
    CommandStep { name: "lab", words: &["lab"] },
    CommandStep { name: "SDKs", words: &["sdk"] },
    CommandStep { name: "HTTP contract", words: &["contract"] },
    CommandStep { name: "torture, short form", words: &["torture", "--short"] },
];

pub(crate) fn run() -> Result<()> {
    let steps = Steps::begin();
    let mut summary = suite::SuiteSummary::default();
    steps.run("formatting", || {
        component("rustfmt", "fmt")?;
        shell::run(&mut cargo(&["fmt", "--all", "--check"])).context("run `cargo fmt --all`")
    })?;
    steps.run("tidy", tidy::run)?;
    steps.run("rules index", rules::check)?;
    steps.run("error pages", errors::check)?;
    steps.run("purity of core and draw", purity::run)?;
    let mut binaries = Vec::new();
    steps.run("build and clippy", || {
        component("clippy", "clippy")?;
        shell::lint_builds()?;
        programs::build_all()?;
        binaries = suite::build()?;
        Ok(())
    })?;
    steps.run_beside(&[BESIDE_TESTS], || steps.run("tests", || suite::run(&binaries, &mut summary)))?;
    steps.run_lanes(&[COMPUTING_LANE, WAITING_LANE])?;
    steps.run("dependencies", deny::run_if_changed)?;
    steps.print();
    for test in &summary.flaky {
        println!("FLAKY {test}: failed once, passed when it ran alone");
    }
    println!("{} passed, {} failed", summary.passed, summary.failed);
    Ok(())
}

/// Builds the documentation of the workspace, without warnings.
pub(crate) fn document() -> Result<()> {
    let mut doc = cargo(&["doc", "--quiet", "--no-deps", "--lib", "--bins"]);
    shell::run(doc.args(programs::AS_FOR_TESTS).env("RUSTDOCFLAGS", "-D warnings"))
}

/// Runs the long forms of what the gate runs in short. Takes hours.
pub(crate) fn nightly() -> Result<()> {
    let steps = Steps::begin();
    steps.run("torture", || torture::run(&[]))?;
    steps.run("lifecycle mutants", || mutants::run_with_args(&[]))?;
    steps.run("fuzzing", || fuzz::run(&fuzz::FuzzOptions::parse(&[])?))?;
    steps.run("simulation", || {
        let mut test =
            cargo(&["test", "--workspace", "--test", "properties*", "--test", "compile_files", "--test", "money"]);
        shell::run(test.env("ONCEWARD_CASES", NIGHTLY_CASES).env("ONCEWARD_ROUNDS", NIGHTLY_CASES))
    })?;
    steps.run("SDKs, 20 kills", || sdk::run(&["--kills", "20"]))?;
    steps.run("HTTP contract, 200 examples", || contract::run(&["--examples", "200"]))?;
    steps.run("benchmark", || bench::run(bench::BenchForm::Long))?;
    steps.print();
    Ok(())
}

/// Random cases per property. The gate runs 30 to 200 of most.
const NIGHTLY_CASES: &str = "5000";

fn cargo(arguments: &[&str]) -> std::process::Command {
    let mut command = shell::command("cargo");
    command.current_dir(tree::root()).args(arguments);
    command
}

/// Installs a rustup component that is missing.
fn component(name: &str, verb: &str) -> Result<()> {
    if shell::can_run(&mut cargo(&[verb, "--version"])) {
        return Ok(());
    }
    shell::run(shell::command("rustup").args(["component", "add", name]))
        .with_context(|| format!("{name} is missing and could not be installed"))
}
