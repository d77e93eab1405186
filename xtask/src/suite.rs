//! All tests of the workspace, those in documentation too. The test programs are run by ourselves, two at a time: many wait
//! for a disk or a server, and in some one long test is left over while a processor has nothing to do.

use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::prove::binaries::{self, Binary};
use crate::workers::at_once;
use crate::{packages, shell, tree};

/// Tests counted over all programs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

/// What takes long is begun early.
const FIRST: [&str; 3] = ["crates/store/tests/", "crates/engine/tests/", "crates/core/tests/"];

/// Builds them all; nothing is run.
pub(crate) fn build() -> Result<Vec<Binary>> {
    let mut binaries = binaries::build_here(&["--workspace".to_owned()], "dev")?;
    let rank = |binary: &Binary| FIRST.iter().position(|folder| binary.main.starts_with(folder)).unwrap_or(FIRST.len());
    binaries.sort_by_key(rank);
    Ok(binaries)
}

pub(crate) fn run(binaries: &[Binary], counts: &mut Counts) -> Result<()> {
    packages::have_postgres()?;
    packages::have_strace()?;
    packages::have_curl()?;
    packages::have_rclone()?;
    packages::have_document_programs()?;
    let mut succeeded = true;
    for (good, found) in at_once(binaries, play)? {
        succeeded &= good;
        counts.passed += found.passed;
        counts.failed += found.failed;
    }
    succeeded &= documentation(counts)?;
    if !succeeded || counts.failed > 0 {
        println!("{} passed, {} failed", counts.passed, counts.failed);
        bail!("tests fail");
    }
    if counts.passed == 0 {
        bail!("no test ran");
    }
    Ok(())
}

/// What people set while working lets a test do less: rewrite its snapshot, leave out a row, play one seed.
fn as_nobody_asked(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ONCEWARD_")) {
        command.env_remove(name);
    }
}

/// Runs one program, as `cargo test` does; what it printed is shown if a test fails.
fn play(binary: &Binary) -> Result<(bool, Counts)> {
    let mut command = shell::command(&binary.executable.to_string_lossy());
    command.current_dir(&binary.package).env("CARGO_MANIFEST_DIR", &binary.package);
    as_nobody_asked(&mut command);
    // A file, no pipe: what a test has started may outlive it and hold a pipe open.
    let scratch = binary.executable.with_extension("printed");
    let output = std::fs::File::create(&scratch)?;
    command.arg("--quiet").stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
    let began = Instant::now();
    let status = command.status().with_context(|| format!("cannot run {}", binary.executable.display()))?;
    let printed = String::from_utf8_lossy(&std::fs::read(&scratch)?).into_owned();
    std::fs::remove_file(&scratch)?;
    let counts = printed.lines().filter_map(result_of).next_back();
    let mut told = String::new();
    if !status.success() {
        let _ = writeln!(told, "{printed}");
    }
    let Counts { passed, failed } = counts.unwrap_or_default();
    let seconds = began.elapsed().as_secs_f64();
    let _ = write!(told, "  {passed:>4} passed, {failed} failed in {seconds:>5.1} s: {}", binary.main);
    println!("{told}");
    Ok((status.success() && counts.is_some(), counts.unwrap_or_default()))
}

/// Examples in the documentation.
fn documentation(counts: &mut Counts) -> Result<bool> {
    let mut test = shell::command("cargo");
    test.current_dir(tree::root()).args(["test", "--quiet", "--workspace", "--doc", "--no-fail-fast"]);
    as_nobody_asked(&mut test);
    shell::lines(&mut test, |line| {
        if let Some(found) = result_of(line) {
            counts.passed += found.passed;
            counts.failed += found.failed;
        } else if !line.is_empty() && line != "running 0 tests" {
            println!("{line}");
        }
    })
}

/// `test result: ok. 12 passed; 0 failed; …`
fn result_of(line: &str) -> Option<Counts> {
    let (_, rest) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut parts = rest.split("; ");
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some(Counts { passed, failed })
}

#[cfg(test)]
mod tests {
    use super::result_of;

    #[test]
    fn counts_are_read_from_the_summary_line() {
        let good = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s";
        let bad = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        let counts = |line| result_of(line).map(|found| (found.passed, found.failed));
        assert_eq!(counts(good), Some((12, 0)));
        assert_eq!(counts(bad), Some((1, 2)));
        assert_eq!(counts("test decides ... ok"), None);
    }
}
