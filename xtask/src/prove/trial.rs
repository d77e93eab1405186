//! Running chosen tests with something taken away.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::binaries::{self, Binary};
use crate::rules::id::RuleId;
use crate::rules::rust_file::Test;
use crate::shell;

/// Without its row a test may wait for ever. Then it has noticed, too. Far longer than any test takes: a slow machine must
/// not look like a missing rule.
const LIMIT: Duration = Duration::from_mins(20);

/// How often to ask whether a test still runs.
const LOOK: Duration = Duration::from_millis(5);

/// Where a test is found.
struct Known {
    binary: usize,
    name: String,
}

/// Test programs, and where each test is in them.
pub(super) struct Trials<'a, 'b> {
    binaries: &'b [Binary],
    known: BTreeMap<&'a Test, Known>,
    /// Tests that have passed with nothing taken away.
    sound: Mutex<BTreeSet<&'a Test>>,
}

impl<'a, 'b> Trials<'a, 'b> {
    pub(super) fn of(binaries: &'b [Binary], tests: &BTreeSet<&'a Test>) -> Result<Self> {
        let mut known = BTreeMap::new();
        for test in tests {
            let (binary, name) = binaries::find(binaries, test).with_context(|| {
                format!("{}:{} the test `{}` is in no test binary", test.path, test.line, test.name)
            })?;
            known.insert(*test, Known { binary, name });
        }
        Ok(Self { binaries, known, sound: Mutex::default() })
    }

    /// For each of these rules a test of it that fails under this variable, if there is one. Those that should be quick are
    /// tried first; when every rule has its test, the others need not run.
    pub(super) fn noticed(
        &self,
        rules: &[RuleId],
        tests: BTreeSet<&'a Test>,
        variable: Option<(&str, &str)>,
    ) -> Result<BTreeMap<RuleId, &'a Test>> {
        let mut tests: Vec<&Test> = tests.into_iter().collect();
        tests.sort_by_key(|test| rank(&test.path));
        let mut noticed = BTreeMap::new();
        for test in tests {
            let open: Vec<&RuleId> =
                rules.iter().filter(|rule| test.rules.contains(rule) && !noticed.contains_key(*rule)).collect();
            if !open.is_empty() && self.play(test, variable)?.is_err() {
                noticed.extend(open.into_iter().map(|rule| (rule.clone(), test)));
            }
        }
        Ok(noticed)
    }

    /// What fails when something is taken away must pass when nothing is, or its failure would prove nothing.
    pub(super) fn must_pass(&self, tests: impl IntoIterator<Item = &'a Test>) -> Result<()> {
        for test in tests {
            if self.sound.lock().map_err(|_| anyhow!("a worker panicked"))?.contains(test) {
                continue;
            }
            if let Err(printed) = self.play(test, None)? {
                bail!("{}:{} `{}` fails with nothing taken away:\n{printed}", test.path, test.line, test.name);
            }
            self.sound.lock().map_err(|_| anyhow!("a worker panicked"))?.insert(test);
        }
        Ok(())
    }

    /// Runs one test; what it printed if it does not pass.
    fn play(&self, test: &Test, variable: Option<(&str, &str)>) -> Result<Result<(), String>> {
        let known = self.known.get(test).with_context(|| format!("`{}` is in no program", test.name))?;
        let binary = &self.binaries[known.binary];
        let printed = play(binary, &known.name, variable)?;
        let passed = printed.lines().filter_map(passed_test).any(|name| name == known.name);
        Ok(if passed { Ok(()) } else { Err(printed) })
    }
}

/// Scenes of one rule first; then what plays thousands of cases; last what starts a database server.
fn rank(path: &str) -> u8 {
    if ["crates/store/tests/", "crates/engine/tests/"].iter().any(|folder| path.starts_with(folder)) {
        return 2;
    }
    u8::from(path.contains("/properties") || path.contains("/fold/"))
}

/// Runs a test of a program and answers with what it printed.
fn play(binary: &Binary, name: &str, variable: Option<(&str, &str)>) -> Result<String> {
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    let mut command = shell::command(&binary.executable.to_string_lossy());
    command.current_dir(&binary.package).env("CARGO_MANIFEST_DIR", &binary.package).env("RUST_BACKTRACE", "0");
    command.args(["--exact", "--test-threads=1", name]);
    if let Some((key, value)) = variable {
        command.env(key, value);
    }
    // A file, no pipe: what a test has started may outlive it and hold a pipe open.
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let scratch = std::env::temp_dir().join(format!("onceward-trial-{}-{number}.txt", std::process::id()));
    command.stdin(Stdio::null()).stdout(std::fs::File::create(&scratch)?).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("cannot run {}", binary.executable.display()))?;
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if began.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            break;
        }
        std::thread::sleep(LOOK);
    }
    let printed = String::from_utf8_lossy(&std::fs::read(&scratch)?).into_owned();
    std::fs::remove_file(&scratch)?;
    Ok(printed)
}

/// `test a::b ... ok`, `test a::b - should panic ... ok`; an ignored test has noticed nothing either.
fn passed_test(line: &str) -> Option<&str> {
    let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    (verdict == "ok" || verdict.starts_with("ignored")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::passed_test;

    #[test]
    fn verdicts_are_read() {
        assert_eq!(passed_test("test a::b ... ok"), Some("a::b"));
        assert_eq!(passed_test("test a::b - should panic ... ok"), Some("a::b"));
        assert_eq!(passed_test("test a::b ... ignored, slow"), Some("a::b"));
        assert_eq!(passed_test("test a::b ... FAILED"), None);
        assert_eq!(passed_test("test result: ok. 1 passed"), None);
    }
}
