//! The gate: one command, the same for people and for CI. Nothing in it is skipped, and no wall-clock figure fails it.

use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{bench, deny, lab, mutants, packages, pictures, prove, purity, rules, shell, tidy, torture, tree};

/// Tests counted over all binaries.
#[derive(Default)]
struct Counts {
    passed: u64,
    failed: u64,
}

pub(crate) fn run() -> Result<()> {
    let began = Instant::now();
    let mut counts = Counts::default();
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
    step("tests", || tests(&mut counts))?;
    step("documentation", || {
        shell::run(cargo(&["doc", "--quiet", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    step("pictures", pictures::check)?;
    step("benchmark, short form", || bench::run(bench::Form::Short))?;
    step("rules proved: rows", || prove::run(&prove::Options::all_rows()))?;
    step("rules proved: code", || prove::run(&prove::Options::all_code()))?;
    step("the lab", || lab::run(&[]))?;
    step("torture, short form", || torture::run(&["--short"]))?;
    step("mutants of lifecycle files, a sample", || mutants::run(&mutants::Options::short()))?;
    step("dependencies", deny::run)?;
    println!("\nthe gate is open, after {} s", began.elapsed().as_secs());
    println!("{} passed, {} failed", counts.passed, counts.failed);
    Ok(())
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("── {name}");
    let began = Instant::now();
    let done = work();
    let seconds = began.elapsed().as_secs_f64();
    match &done {
        Ok(()) => println!("── {name}: passed in {seconds:.1} s\n"),
        Err(_) => println!("── {name}: FAILED after {seconds:.1} s\n"),
    }
    done.with_context(|| format!("the gate stops at `{name}`"))
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

/// All tests of the workspace, those in documentation too.
fn tests(counts: &mut Counts) -> Result<()> {
    packages::have_postgres()?;
    packages::have_strace()?;
    let mut test = cargo(&["test", "--quiet", "--workspace", "--no-fail-fast"]);
    // What people set while working lets a test do less: rewrite its snapshot, leave out a row, play one seed.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ONCEWARD_")) {
        test.env_remove(name);
    }
    let succeeded = shell::lines(&mut test, |line| {
        println!("{line}");
        if let Some((passed, failed)) = result_of(line) {
            counts.passed += passed;
            counts.failed += failed;
        }
    })?;
    if !succeeded || counts.failed > 0 {
        println!("{} passed, {} failed", counts.passed, counts.failed);
        bail!("tests fail");
    }
    if counts.passed == 0 {
        bail!("no test ran");
    }
    Ok(())
}

/// `test result: ok. 12 passed; 0 failed; …`
fn result_of(line: &str) -> Option<(u64, u64)> {
    let (_, rest) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut parts = rest.split("; ");
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some((passed, failed))
}

#[cfg(test)]
mod tests {
    use super::result_of;

    #[test]
    fn counts_are_read_from_the_summary_line() {
        let good = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s";
        let bad = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(result_of(good), Some((12, 0)));
        assert_eq!(result_of(bad), Some((1, 2)));
        assert_eq!(result_of("test decides ... ok"), None);
    }
}
