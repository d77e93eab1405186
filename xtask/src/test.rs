//! Runs the gate (`cargo xtask test`) and its long form (`cargo xtask nightly`), with the same commands for people and
//! CI. The gate skips nothing, and no measured time fails it.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::{
    bench, contract, deny, fuzz, lab, mutants, pictures, programs, prove, purity, rules, sdk, shell, suite, tidy,
    torture, tree,
};

pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::begin();
    let mut summary = suite::SuiteSummary::default();
    steps.run("formatting", || {
        component("rustfmt", "fmt")?;
        shell::run(&mut cargo(&["fmt", "--all", "--check"])).context("run `cargo fmt --all`")
    })?;
    steps.run("tidy", tidy::run)?;
    steps.run("rules index", rules::check)?;
    steps.run("purity of core", purity::run)?;
    steps.run("clippy", || {
        component("clippy", "clippy")?;
        shell::run(&mut cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    })?;
    let mut binaries = Vec::new();
    steps.run("build of the tests", || {
        binaries = suite::build()?;
        Ok(())
    })?;
    steps.run("tests", || suite::run(&binaries, &mut summary))?;
    steps.run("documentation", || {
        let mut doc = cargo(&["doc", "--quiet", "--no-deps", "--lib", "--bins"]);
        shell::run(doc.args(programs::AS_FOR_TESTS).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    steps.run("diagrams", pictures::check)?;
    steps.run("benchmark, short form", || bench::run(bench::BenchForm::Short))?;
    steps.run("rule proofs: transitions", || prove::run(&prove::ProofOptions::all_transitions()))?;
    steps.run("rule proofs: code", || prove::run(&prove::ProofOptions::all_code()))?;
    steps.run("lab", || lab::run(&[]))?;
    steps.run("SDKs", || sdk::run(&[]))?;
    steps.run("HTTP contract", || contract::run(&[]))?;
    steps.run("torture, short form", || torture::run(&["--short"]))?;
    steps.run("lifecycle mutants, sample", || mutants::run(&mutants::MutantOptions::sample()))?;
    steps.run("dependencies", deny::run_if_changed)?;
    steps.print();
    for test in &summary.flaky {
        println!("FLAKY {test}: failed once, passed when it ran alone");
    }
    println!("{} passed, {} failed", summary.passed, summary.failed);
    Ok(())
}

/// Runs the long forms of what the gate runs in short. Takes hours.
pub(crate) fn nightly() -> Result<()> {
    let mut steps = Steps::begin();
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

/// The steps of a run and how long each took.
struct Steps {
    began: Instant,
    finished: Vec<(String, f64, f64)>,
}

impl Steps {
    fn begin() -> Self {
        Self { began: Instant::now(), finished: Vec::new() }
    }

    fn run(&mut self, name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("── {name}");
        let (began, before) = (Instant::now(), processor_seconds());
        let result = work();
        let (seconds, busy) = (began.elapsed().as_secs_f64(), processor_seconds() - before);
        match &result {
            Ok(()) => println!("── {name}: passed in {seconds:.1} s, {busy:.1} s of processor time\n"),
            Err(_) => println!("── {name}: FAILED after {seconds:.1} s\n"),
        }
        self.finished.push((name.to_owned(), seconds, busy));
        result.with_context(|| format!("the step `{name}` failed"))
    }

    fn print(&self) {
        println!("{:<28} {:>8} {:>10}", "step", "seconds", "processor");
        for (name, seconds, busy) in &self.finished {
            println!("{name:<28} {seconds:>8.1} {busy:>10.1}");
        }
        println!("all steps passed in {} s\n", self.began.elapsed().as_secs());
    }
}

/// Processor time of this process and of the children it has waited for: the better measure on a busy machine.
fn processor_seconds() -> f64 {
    /// Clock ticks per second, fixed by the kernel's interface.
    const TICKS_PER_SECOND: f64 = 100.0;
    let own = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program's name is in brackets and may contain anything. Fields 14 to 17 are user and system time, of the process and
    // of its children.
    let words = own.rsplit(')').next().unwrap_or_default().split_whitespace();
    words.skip(11).take(4).filter_map(|word| word.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND
}

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
