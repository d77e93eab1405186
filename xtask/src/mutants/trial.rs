//! Runs a system's tests on a mutant.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::rule_proofs::binaries::Binary;
use crate::shell;

/// Read by testkit.
const MUTANT_DIR_ENV_VAR: &str = "ONCEWARD_MUTANT_DIR";

/// A mutant may loop forever, or the machine may be busy. A test that exceeds this runs again alone.
pub(super) const TRIAL_TIMEOUT: Duration = Duration::from_secs(40);
/// The timeout of the second run, long enough to rule out a busy machine. Exceeding it does not count as caught.
pub(super) const RETRY_TIMEOUT: Duration = Duration::from_mins(15);

/// The result of a system's tests on a mutant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum SuiteOutcome {
    /// All tests passed or were skipped.
    #[default]
    Passed,
    /// The first test that failed.
    Failed(String),
    /// The process died without a failed test: its stack overflowed, or it was killed.
    Crashed,
    TimedOut,
}

impl SuiteOutcome {
    pub(super) const fn is_failed(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    /// Returns whether the result is neither passed nor failed. The mutant or the machine may be the cause.
    pub(super) const fn is_unclear(&self) -> bool {
        matches!(self, Self::Crashed | Self::TimedOut)
    }
}

/// Tests that compare all states, events and callers of a system with a table written by hand. Each asserts its rule by
/// name and was written from the requirement, not from the file, so it counts. But the author of such a table may have
/// copied the file, so the report also gives the score without these tests.
pub(super) const TABLE_TESTS: [&str; 7] = [
    "event_without_capability_is_refused_in_every_state",
    "author_has_no_more_rights_than_other_node",
    "confirm_and_reject_need_only_user_authority",
    "each_state_refuses_exactly_the_listed_events",
    "cascade_from_other_record_needs_caller_capability",
    "support_lost_changes_each_state_as_specified",
    "spawn_from_other_record_needs_caller_capability",
];

/// The tests of one system, by kind.
#[derive(Default)]
pub(super) struct SystemSuite<'b> {
    /// Scenario tests and the matrix.
    scenarios: Vec<&'b Binary>,
    properties: Vec<&'b Binary>,
}

/// A kind of tests to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SuitePart {
    /// Without the table tests.
    Scenarios,
    Tables,
    Properties,
    /// Compares only transitions written by hand from the requirement, not recorded ones.
    TypedTransitions,
}

impl<'b> SystemSuite<'b> {
    pub(super) fn for_system(system: &str, binaries: &'b [Binary]) -> Self {
        let mut suite = Self::default();
        let folder = format!("systems/{system}/tests/");
        for binary in binaries.iter().filter(|binary| binary.main.starts_with(&folder)) {
            let name = &binary.main[folder.len()..];
            if name.starts_with("properties") {
                suite.properties.push(binary);
            } else if ["scenarios", "fold"].iter().any(|player| name.starts_with(player)) {
                suite.scenarios.push(binary);
            }
            // The remaining tests run a system's real parts over sockets and with programs. They are slow and not about
            // its files.
        }
        suite
    }

    /// Runs these tests with the lifecycle files in `folder`, each program within `limit`.
    pub(super) fn run_part(&self, part: SuitePart, folder: &Path, limit: Duration) -> Result<SuiteOutcome> {
        let (binaries, arguments): (_, Vec<&str>) = match part {
            SuitePart::Scenarios => {
                let skipped = ["matrix"].into_iter().chain(TABLE_TESTS).flat_map(|name| ["--skip", name]);
                (&self.scenarios, skipped.collect())
            }
            SuitePart::Tables => (&self.scenarios, ["--skip", "matrix"].into_iter().chain(TABLE_TESTS).collect()),
            SuitePart::Properties => (&self.properties, Vec::new()),
            SuitePart::TypedTransitions => (&self.scenarios, vec!["matrix"]),
        };
        for binary in binaries {
            match first_failure(binary, &arguments, folder, limit)? {
                SuiteOutcome::Passed => {}
                outcome => return Ok(outcome),
            }
        }
        Ok(SuiteOutcome::Passed)
    }
}

fn first_failure(binary: &Binary, arguments: &[&str], folder: &Path, limit: Duration) -> Result<SuiteOutcome> {
    let mut command = shell::command(&binary.executable.to_string_lossy());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ONCEWARD_")) {
        command.env_remove(name);
    }
    command.current_dir(&binary.package).env("CARGO_MANIFEST_DIR", &binary.package).env("RUST_BACKTRACE", "0");
    command.env(MUTANT_DIR_ENV_VAR, folder).arg("--test-threads=1").args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("cannot run {}", binary.executable.display()))?;
    let printed = child.stdout.take().context("its output is a pipe")?;
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(printed).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let began = Instant::now();
    let outcome = loop {
        match receiver.recv_timeout(limit.saturating_sub(began.elapsed())) {
            Ok(line) => {
                if let Some(test) = failed_test(&line) {
                    break SuiteOutcome::Failed(test.to_owned());
                }
            }
            Err(RecvTimeoutError::Timeout) => break SuiteOutcome::TimedOut,
            Err(RecvTimeoutError::Disconnected) => break SuiteOutcome::Passed,
        }
    };
    // One failure decides, so the remaining tests are killed.
    if outcome != SuiteOutcome::Passed {
        child.kill()?;
    }
    let status = child.wait()?;
    drop(receiver);
    let _ = reader.join();
    Ok(if outcome == SuiteOutcome::Passed && !status.success() { SuiteOutcome::Crashed } else { outcome })
}

fn failed_test(line: &str) -> Option<&str> {
    let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    (verdict == "FAILED").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::{TABLE_TESTS, failed_test};
    use crate::tree;

    /// A renamed test would silently drop out of [`TABLE_TESTS`].
    #[test]
    fn every_table_test_exists() -> anyhow::Result<()> {
        let tests = tree::sources(|path| path.starts_with("systems/") && path.contains("/tests/"))?;
        for table in TABLE_TESTS {
            let head = format!("fn {table}()");
            assert!(tests.iter().any(|source| source.text.contains(&head)), "{table} is no test");
        }
        Ok(())
    }

    #[test]
    fn failed_test_name_is_parsed() {
        assert_eq!(failed_test("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(failed_test("test a::b ... ok"), None);
    }
}
