//! Playing a system's tests on a mutant.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::prove::binaries::Binary;
use crate::shell;

/// Read by testkit.
const MUTANT_DIR_ENV_VAR: &str = "ONCEWARD_MUTANT";

/// A mutant may turn in a circle, or the machine may be busy: who is not done by then is tried again alone.
pub(super) const TRIAL_TIMEOUT: Duration = Duration::from_secs(40);
/// How long it may take then. A busy machine is no excuse any more, and no end in this time is no notice.
pub(super) const RETRY_TIMEOUT: Duration = Duration::from_mins(15);

/// What the tests made of a mutant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum SuiteOutcome {
    /// All passed, or were not asked.
    #[default]
    Passed,
    /// The first test that failed.
    Failed(String),
    /// The program ended badly, and no test had failed: its stack ran over, or somebody else ended it.
    Crashed,
    /// Not done in time.
    TimedOut,
}

impl SuiteOutcome {
    pub(super) const fn is_failed(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    /// Neither passed nor failed: it may be the mutant, or the machine.
    pub(super) const fn is_unclear(&self) -> bool {
        matches!(self, Self::Crashed | Self::TimedOut)
    }
}

/// Tests that go through the states, events and callers of a whole system and hold each against a table that somebody typed. They
/// are no picture of the file: each asserts its rule by name and was typed from the requirement, so they count. But who types
/// such a table may look at the file, so the report says what the score would be without them.
pub(super) const TABLE_TESTS: [&str; 7] = [
    "event_without_capability_is_refused_in_every_state",
    "author_has_no_more_rights_than_other_node",
    "confirm_and_reject_need_only_user_authority",
    "each_state_refuses_exactly_the_listed_events",
    "cascade_from_other_record_needs_caller_capability",
    "support_lost_changes_each_state_as_specified",
    "spawn_from_other_record_needs_caller_capability",
];

/// The tests of one system, by what they are.
#[derive(Default)]
pub(super) struct SystemSuite<'b> {
    /// Scenario tests, and beside them the matrix.
    scenarios: Vec<&'b Binary>,
    properties: Vec<&'b Binary>,
}

/// Which of them to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SuitePart {
    /// Without the tables.
    Scenarios,
    Tables,
    Properties,
    /// The moves that somebody typed from the requirement; what was played before is not compared.
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
            // The others try a system's real parts, over sockets and with programs: slow, and not about its files.
        }
        suite
    }

    /// What comes of the tests with the files in this folder, each program within this time.
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
    // One is enough to know, so the others need not play.
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

    /// A name that no test has any more would skip nothing, and nobody would see it.
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
