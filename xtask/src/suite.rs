//! Runs the test binaries of the workspace in parallel, and its documentation tests.
//!
//! A failing test fails the gate at once, unless `xtask/retryable_tests.toml` lists it: then it runs once more, alone, when
//! everything else has ended. If it passes then, the gate goes on and prints `FLAKY` with its name at its end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::rule_proofs::binaries::{self, Binary};
use crate::workers::at_once_with;
use crate::{packages, shell, tree};

const RETRYABLE_TESTS: &str = "xtask/retryable_tests.toml";

/// Test binaries that run at the same time. Many wait for a disk, a server or a deadline, so two per core keep two cores busy.
const MAX_PARALLEL_BINARIES: usize = 4;

/// The lab's test binary, and the prefix of its failure-mode modules, which the step `lab` runs.
const LAB: &str = "assurance/lab/lab.rs";
const LAB_PAGES: &str = "fm_";

/// Memory set aside for one test binary and the PostgreSQL server it starts. Generous: most need a fraction.
const BYTES_PER_BINARY: u64 = 2_000_000_000;

/// Folders of the slow binaries, slowest first. They start first, so that none is left over at the end.
const LONGEST_BINARIES: [&str; 11] = [
    "crates/engine/tests/verify/",
    "crates/engine/tests/engine/",
    "crates/onceward/tests/image/",
    "crates/store/tests/differential/",
    "assurance/lab/",
    "crates/engine/tests/",
    "crates/onceward/tests/",
    "crates/store/tests/",
    "crates/core/tests/",
    "systems/image/tests/",
    "crates/worker/tests/",
];

/// Results of all test binaries together.
#[derive(Default)]
pub(crate) struct SuiteSummary {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Retryable tests that failed once and then passed alone.
    pub(crate) flaky: Vec<String>,
}

/// Builds all test binaries of the workspace without running them.
pub(crate) fn build() -> Result<Vec<Binary>> {
    let mut binaries = binaries::build_here(&["--workspace".to_owned()], "dev")?;
    let position = |binary: &Binary| LONGEST_BINARIES.iter().position(|folder| binary.main.starts_with(folder));
    binaries.sort_by_key(|binary| position(binary).unwrap_or(LONGEST_BINARIES.len()));
    Ok(binaries)
}

pub(crate) fn run(binaries: &[Binary], summary: &mut SuiteSummary) -> Result<()> {
    packages::have_postgres()?;
    packages::have_strace()?;
    packages::have_curl()?;
    packages::have_rclone()?;
    packages::have_document_programs()?;
    let retryable = RetryableTests::read()?;
    retryable.ensure_known(binaries)?;
    let has_failed = AtomicBool::new(false);
    let runs = at_once_with(parallel_binaries(), binaries, |binary| {
        if has_failed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let run = run_binary(binary)?;
        if !run.is_complete || !run.failures.iter().all(|test| retryable.contains(binary, test)) {
            has_failed.store(true, Ordering::Relaxed);
        }
        Ok(Some(run))
    })?;
    let mut retries = Vec::new();
    for (binary, run) in binaries.iter().zip(runs) {
        let Some(run) = run else { continue };
        summary.passed += run.passed;
        summary.failed += run.failures.len() as u64;
        retries.extend(run.failures.into_iter().map(|test| (binary, test)));
    }
    if has_failed.load(Ordering::Relaxed) {
        println!("{} passed, {} failed", summary.passed, summary.failed);
        bail!("tests failed; the gate ran no further test");
    }
    for (binary, test) in retries {
        retry_alone(binary, &test, summary)?;
    }
    run_doc_tests(summary)?;
    if summary.passed == 0 {
        bail!("no test ran");
    }
    Ok(())
}

/// Tests whose result depends on real time, a browser or another process, so that a busy machine can fail them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryableTests {
    group: Vec<RetryableGroup>,
}

/// Tests of one binary that may be retried for one reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryableGroup {
    /// Main file of the test binary, from the root of the repository.
    binary: String,
    #[expect(dead_code, reason = "required, so that every group has a reason")]
    reason: String,
    tests: Vec<String>,
}

impl RetryableTests {
    fn read() -> Result<Self> {
        let text = std::fs::read_to_string(tree::root().join(RETRYABLE_TESTS))?;
        toml::from_str(&text).context(RETRYABLE_TESTS)
    }

    fn contains(&self, binary: &Binary, test: &str) -> bool {
        let groups = self.group.iter().filter(|group| group.binary == binary.main);
        groups.flat_map(|group| &group.tests).any(|listed| listed == test)
    }

    /// Rejects names that no binary has: a renamed test must not lose its entry unnoticed.
    fn ensure_known(&self, binaries: &[Binary]) -> Result<()> {
        let known: BTreeMap<&str, &[String]> =
            binaries.iter().map(|binary| (binary.main.as_str(), binary.tests.as_slice())).collect();
        let mut unknown = Vec::new();
        for group in &self.group {
            let tests = known.get(group.binary.as_str()).copied().unwrap_or_default();
            unknown.extend(group.tests.iter().filter(|test| !tests.contains(test)).map(|test| (&group.binary, test)));
        }
        if unknown.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> = unknown.iter().map(|(binary, test)| format!("{binary}: {test}")).collect();
        bail!("{RETRYABLE_TESTS} lists tests that do not exist:\n  {}", lines.join("\n  "))
    }
}

/// As many as memory has room for, up to [`MAX_PARALLEL_BINARIES`].
fn parallel_binaries() -> usize {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = available.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let room = kilobytes.map_or(1, |kilobytes| kilobytes * 1_000 / BYTES_PER_BINARY);
    usize::try_from(room).unwrap_or(usize::MAX).clamp(1, MAX_PARALLEL_BINARIES)
}

/// What one test binary did.
struct BinaryRun {
    passed: u64,
    failures: Vec<String>,
    /// Whether it ran to its end and named each test that failed.
    is_complete: bool,
}

/// Removes variables that people set while they work and that let a test do less: bless a snapshot, run one seed.
fn clear_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ONCEWARD_")) {
        command.env_remove(name);
    }
}

/// Runs one binary as `cargo test` does, and prints its output if a test fails.
fn run_binary(binary: &Binary) -> Result<BinaryRun> {
    let began = Instant::now();
    let mut arguments = vec!["--quiet"];
    if binary.main == LAB {
        arguments.extend(["--skip", LAB_PAGES]);
    }
    let (succeeded, output) = run_tests(binary, &arguments)?;
    let counts = output.lines().filter_map(parse_summary).next_back();
    let failures = parse_failures(&output);
    let (passed, failed) = counts.unwrap_or_default();
    let mut printed = String::new();
    if !succeeded {
        let _ = writeln!(printed, "{output}");
    }
    let seconds = began.elapsed().as_secs_f64();
    let _ = write!(printed, "  {passed:>4} passed, {failed} failed in {seconds:>5.1} s: {}", binary.main);
    println!("{printed}");
    // A binary that died of a signal names no failures, and a retry cannot tell what it would have found.
    let is_complete = counts.is_some() && failures.len() as u64 == failed && succeeded == (failed == 0);
    Ok(BinaryRun { passed, failures, is_complete })
}

/// Ten times the longest binary on a busy machine. A test that hangs is killed, and the output names it.
const MAX_BINARY_SECONDS: &str = "2400";

fn run_tests(binary: &Binary, arguments: &[&str]) -> Result<(bool, String)> {
    // In the foreground, so that Ctrl-C also reaches the tests.
    let mut command = shell::command("timeout");
    command.args(["--foreground", "--kill-after=10", MAX_BINARY_SECONDS]).arg(&binary.executable);
    command.current_dir(&binary.package).env("CARGO_MANIFEST_DIR", &binary.package);
    clear_environment(&mut command);
    // A file instead of a pipe: a process that a test started may outlive it and hold the pipe open.
    let scratch = binary.executable.with_extension("output");
    let output = std::fs::File::create(&scratch)?;
    command.args(arguments).stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
    let status = command.status().with_context(|| format!("cannot run {}", binary.executable.display()))?;
    let text = String::from_utf8_lossy(&std::fs::read(&scratch)?).into_owned();
    std::fs::remove_file(&scratch)?;
    Ok((status.success(), text))
}

/// Runs one retryable test again, with nothing beside it.
fn retry_alone(binary: &Binary, test: &str, summary: &mut SuiteSummary) -> Result<()> {
    println!("  retrying alone: {} {test}", binary.main);
    let (succeeded, output) = run_tests(binary, &["--exact", test, "--test-threads=1"])?;
    if !succeeded || output.lines().filter_map(parse_summary).next_back() != Some((1, 0)) {
        println!("{output}\n{} passed, {} failed", summary.passed, summary.failed);
        bail!("{test} failed twice, the second time alone");
    }
    summary.passed += 1;
    summary.failed -= 1;
    summary.flaky.push(format!("{} {test}", binary.main));
    Ok(())
}

fn run_doc_tests(summary: &mut SuiteSummary) -> Result<()> {
    let mut command = shell::workspace_cargo();
    command.current_dir(tree::root()).args(["test", "--quiet", "--workspace", "--doc", "--no-fail-fast"]);
    clear_environment(&mut command);
    let succeeded = shell::for_each_line(&mut command, |line| {
        if let Some((passed, failed)) = parse_summary(line) {
            summary.passed += passed;
            summary.failed += failed;
        } else if !line.is_empty() && line != "running 0 tests" {
            println!("{line}");
        }
    })?;
    if succeeded {
        return Ok(());
    }
    println!("{} passed, {} failed", summary.passed, summary.failed);
    bail!("documentation tests failed")
}

/// Passed and failed tests of a line such as `test result: ok. 12 passed; 0 failed; …`.
fn parse_summary(line: &str) -> Option<(u64, u64)> {
    let (_, rest) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut parts = rest.split("; ");
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some((passed, failed))
}

/// Names of failed tests: the indented lines of the last `failures:` block.
fn parse_failures(output: &str) -> Vec<String> {
    let Some((_, block)) = output.rsplit_once("\nfailures:\n") else { return Vec::new() };
    block.lines().map_while(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_summary_reads_passed_and_failed() {
        let good = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s";
        let bad = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(parse_summary(good), Some((12, 0)));
        assert_eq!(parse_summary(bad), Some((1, 2)));
        assert_eq!(parse_summary("test decides ... ok"), None);
    }

    #[test]
    fn parse_failures_reads_the_names_behind_the_outputs() {
        let output = "\nfailures:\n\n---- a::b stdout ----\nseed 7\nfailures:\n\n\nfailures:\n    a::b\n    c\n\ntest result: FAILED. 1 passed; 2 failed; 0 ignored";
        assert_eq!(parse_failures(output), ["a::b", "c"]);
        assert!(parse_failures("test result: ok. 1 passed; 0 failed").is_empty());
    }

    #[test]
    fn retryable_tests_must_exist() -> Result<()> {
        let listed = "[[group]]\nbinary = 'a.rs'\nreason = 'real time'\ntests = ['one']\n";
        let retryable: RetryableTests = toml::from_str(listed)?;
        let binary = |tests: &[&str]| Binary {
            executable: "a".into(),
            package: ".".into(),
            main: "a.rs".into(),
            tests: tests.iter().map(|test| (*test).to_owned()).collect(),
        };
        retryable.ensure_known(&[binary(&["one", "two"])])?;
        assert!(retryable.contains(&binary(&[]), "one") && !retryable.contains(&binary(&[]), "two"));
        assert!(retryable.ensure_known(&[binary(&["two"])]).is_err());
        assert!(retryable.ensure_known(&[]).is_err());
        Ok(())
    }
}
