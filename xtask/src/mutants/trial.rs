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
const VARIABLE: &str = "ONCEWARD_MUTANT";

/// A mutant may turn in a circle, or the machine may be busy: who is not done by then is tried again alone.
pub(super) const LIMIT: Duration = Duration::from_secs(40);
/// How long it may take then. A busy machine is no excuse any more, and no end in this time is no notice.
pub(super) const PATIENCE: Duration = Duration::from_mins(15);

/// What the tests made of a mutant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All passed, or were not asked.
    #[default]
    Passed,
    /// The first test that failed.
    Failed(String),
    /// The program ended badly, and no test had failed: its stack ran over, or somebody else ended it.
    Died,
    /// Not done in time.
    Endless,
}

impl Outcome {
    pub(super) const fn failed(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    /// Neither passed nor failed: it may be the mutant, or the machine.
    pub(super) const fn is_unclear(&self) -> bool {
        matches!(self, Self::Died | Self::Endless)
    }
}

/// Tests that go through the states, events and callers of a whole system and hold each against a table that somebody typed. They
/// are no picture of the file: each asserts its rule by name and was typed from the requirement, so they count. But who types
/// such a table may look at the file, so the report says what the score would be without them.
pub(super) const TABLES: [&str; 7] = [
    "who_lacks_the_capability_moves_nothing",
    "authorship_counts_for_nothing",
    "the_users_voice_is_enough",
    "each_state_knows_its_events",
    "no_record_lends_a_capability",
    "what_each_makes_of_a_loss",
    "no_record_makes_what_a_node_may_not",
];

/// The tests of one system, by what they are.
#[derive(Default)]
pub(super) struct Suite<'b> {
    /// Scenario tests, and beside them the matrix.
    scenarios: Vec<&'b Binary>,
    properties: Vec<&'b Binary>,
}

/// Which of them to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Without the tables.
    Scenarios,
    Tables,
    Properties,
    /// The moves that somebody typed from the requirement; what was played before is not compared.
    TypedMoves,
}

impl<'b> Suite<'b> {
    pub(super) fn of(system: &str, binaries: &'b [Binary]) -> Self {
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
    pub(super) fn noticed(&self, part: Part, folder: &Path, limit: Duration) -> Result<Outcome> {
        let (binaries, arguments): (_, Vec<&str>) = match part {
            Part::Scenarios => {
                let skipped = ["matrix"].into_iter().chain(TABLES).flat_map(|name| ["--skip", name]);
                (&self.scenarios, skipped.collect())
            }
            Part::Tables => (&self.scenarios, ["--skip", "matrix"].into_iter().chain(TABLES).collect()),
            Part::Properties => (&self.properties, Vec::new()),
            Part::TypedMoves => (&self.scenarios, vec!["matrix"]),
        };
        for binary in binaries {
            match first_failure(binary, &arguments, folder, limit)? {
                Outcome::Passed => {}
                outcome => return Ok(outcome),
            }
        }
        Ok(Outcome::Passed)
    }
}

fn first_failure(binary: &Binary, arguments: &[&str], folder: &Path, limit: Duration) -> Result<Outcome> {
    let mut command = shell::command(&binary.executable.to_string_lossy());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ONCEWARD_")) {
        command.env_remove(name);
    }
    command.current_dir(&binary.package).env("CARGO_MANIFEST_DIR", &binary.package).env("RUST_BACKTRACE", "0");
    command.env(VARIABLE, folder).arg("--test-threads=1").args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("cannot run {}", binary.executable.display()))?;
    let printed = child.stdout.take().context("its output is a pipe")?;
    let (tell, told) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(printed).lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                break;
            }
        }
    });
    let began = Instant::now();
    let ended = loop {
        match told.recv_timeout(limit.saturating_sub(began.elapsed())) {
            Ok(line) => {
                if let Some(test) = failed_test(&line) {
                    break Outcome::Failed(test.to_owned());
                }
            }
            Err(RecvTimeoutError::Timeout) => break Outcome::Endless,
            Err(RecvTimeoutError::Disconnected) => break Outcome::Passed,
        }
    };
    // One is enough to know, so the others need not play.
    if ended != Outcome::Passed {
        child.kill()?;
    }
    let status = child.wait()?;
    drop(told);
    let _ = reader.join();
    Ok(if ended == Outcome::Passed && !status.success() { Outcome::Died } else { ended })
}

fn failed_test(line: &str) -> Option<&str> {
    let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    (verdict == "FAILED").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::{TABLES, failed_test};
    use crate::tree;

    /// A name that no test has any more would skip nothing, and nobody would see it.
    #[test]
    fn every_table_is_a_test() -> anyhow::Result<()> {
        let tests = tree::sources(|path| path.starts_with("systems/") && path.contains("/tests/"))?;
        for table in TABLES {
            let head = format!("fn {table}()");
            assert!(tests.iter().any(|source| source.text.contains(&head)), "{table} is no test");
        }
        Ok(())
    }

    #[test]
    fn failures_are_read() {
        assert_eq!(failed_test("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(failed_test("test a::b ... ok"), None);
    }
}
