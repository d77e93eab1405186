//! The gate: one command, the same for people and for CI. Nothing in it is skipped, and no wall-clock figure fails it.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::{
    bench, contract, deny, lab, mutants, pictures, programs, prove, purity, rules, sdk, shell, suite, tidy, torture,
    tree,
};

pub(crate) fn run() -> Result<()> {
    let began = Instant::now();
    let mut counts = suite::Counts::default();
    let deny = deny::Meanwhile::begin();
    step("formatting", || {
        component("rustfmt", "fmt")?;
        shell::run(&mut cargo(&["fmt", "--all", "--check"])).context("run `cargo fmt --all`")
    })?;
    step("tidy", tidy::run)?;
    step("rules index", rules::check)?;
    step("purity of core", purity::run)?;
    step("clippy", || {
        component("clippy", "clippy")?;
        shell::run(&mut cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    })?;
    let mut binaries = Vec::new();
    step("building the tests", || {
        binaries = suite::build()?;
        Ok(())
    })?;
    step("tests", || suite::run(&binaries, &mut counts))?;
    step("documentation", || {
        let mut doc = cargo(&["doc", "--quiet", "--no-deps", "--lib", "--bins"]);
        shell::run(doc.args(programs::AS_FOR_TESTS).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    step("pictures", pictures::check)?;
    step("benchmark, short form", || bench::run(bench::Form::Short))?;
    step("rules proved: rows", || prove::run(&prove::Options::all_rows()))?;
    step("rules proved: code", || prove::run(&prove::Options::all_code()))?;
    step("the lab", || lab::run(&[]))?;
    step("libraries for other languages", || sdk::run(&[]))?;
    step("the contract over HTTP", || contract::run(&[]))?;
    step("torture, short form", || torture::run(&["--short"]))?;
    step("mutants of lifecycle files, a sample", || mutants::run(&mutants::Options::short()))?;
    step("dependencies", || deny.run())?;
    println!("\nthe gate is open, after {} s", began.elapsed().as_secs());
    println!("{} passed, {} failed", counts.passed, counts.failed);
    Ok(())
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("── {name}");
    let (began, before) = (Instant::now(), processor_seconds());
    let done = work();
    let (seconds, busy) = (began.elapsed().as_secs_f64(), processor_seconds() - before);
    match &done {
        Ok(()) => println!("── {name}: passed in {seconds:.1} s, {busy:.1} s of processors\n"),
        Err(_) => println!("── {name}: FAILED after {seconds:.1} s\n"),
    }
    done.with_context(|| format!("the gate stops at `{name}`"))
}

/// What this program and those that it has waited for have used of processors: on a busy machine the better measure.
fn processor_seconds() -> f64 {
    /// Of a second; the kernel's promise to programs.
    const TICKS: f64 = 100.0;
    let own = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program is in brackets and may hold anything; user and system time, ours and our children's, are the
    // 14th to 17th word of the line.
    let words = own.rsplit(')').next().unwrap_or_default().split_whitespace();
    words.skip(11).take(4).filter_map(|word| word.parse::<f64>().ok()).sum::<f64>() / TICKS
}

fn cargo(arguments: &[&str]) -> std::process::Command {
    let mut command = shell::command("cargo");
    command.current_dir(tree::root()).args(arguments);
    command
}

/// Rust without its usual companions: ask rustup for them.
fn component(name: &str, verb: &str) -> Result<()> {
    if shell::is_there(&mut cargo(&[verb, "--version"])) {
        return Ok(());
    }
    shell::run(shell::command("rustup").args(["component", "add", name]))
        .with_context(|| format!("{name} is missing and could not be installed"))
}
