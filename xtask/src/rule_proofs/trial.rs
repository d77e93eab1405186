//! Runs selected tests with a rule removed.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::binaries::{self, Binary};
use crate::rules::id::RuleId;
use crate::rules::rust_file::TestFunction;
use crate::shell;

/// A test may hang without its rule, which counts as a failure. Far longer than any test takes, so that a slow machine
/// does not look like a missing rule.
const TRIAL_TIMEOUT: Duration = Duration::from_mins(20);

/// Many trials wait for a disk or a deadline, so two per core keep two cores busy.
pub(super) const MAX_PARALLEL_TRIALS: usize = 4;

/// Short against the fastest test.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A test's binary and name.
struct LocatedTest {
    binary: usize,
    name: String,
}

/// The test binaries, and the location of each test.
pub(super) struct RuleTrials<'a, 'b> {
    binaries: &'b [Binary],
    located: BTreeMap<&'a TestFunction, LocatedTest>,
    /// Tests that have passed with nothing removed.
    passed: Mutex<BTreeSet<&'a TestFunction>>,
}

impl<'a, 'b> RuleTrials<'a, 'b> {
    pub(super) fn new(binaries: &'b [Binary], tests: &BTreeSet<&'a TestFunction>) -> Result<Self> {
        let mut known = BTreeMap::new();
        for test in tests {
            let (binary, name) = binaries::find(binaries, test).with_context(|| {
                format!("{}:{} the test `{}` is in no test binary", test.path, test.line, test.name)
            })?;
            known.insert(*test, LocatedTest { binary, name });
        }
        Ok(Self { binaries, located: known, passed: Mutex::default() })
    }

    /// Returns for each of these rules a citing test that fails under this variable, if there is one. Runs fast tests
    /// first and stops once every rule has one.
    pub(super) fn failing_tests(
        &self,
        rules: &[RuleId],
        tests: BTreeSet<&'a TestFunction>,
        variable: Option<(&str, &str)>,
    ) -> Result<BTreeMap<RuleId, &'a TestFunction>> {
        let mut tests: Vec<&TestFunction> = tests.into_iter().collect();
        tests.sort_by_key(|test| run_order(&test.path));
        let mut noticed = BTreeMap::new();
        for test in tests {
            let open: Vec<&RuleId> =
                rules.iter().filter(|rule| test.rules.contains(rule) && !noticed.contains_key(*rule)).collect();
            if !open.is_empty() && self.run_located(test, variable)?.is_err() {
                noticed.extend(open.into_iter().map(|rule| (rule.clone(), test)));
            }
        }
        Ok(noticed)
    }

    /// Fails unless these tests pass with nothing removed. Otherwise their failure proves nothing.
    pub(super) fn ensure_pass_unchanged(&self, tests: impl IntoIterator<Item = &'a TestFunction>) -> Result<()> {
        for test in tests {
            if self.passed.lock().map_err(|_| anyhow!("a worker panicked"))?.contains(test) {
                continue;
            }
            if let Err(printed) = self.run_located(test, None)? {
                bail!("{}:{} `{}` fails without a removal:\n{printed}", test.path, test.line, test.name);
            }
            self.passed.lock().map_err(|_| anyhow!("a worker panicked"))?.insert(test);
        }
        Ok(())
    }

    /// Runs one test. Returns its output if it fails.
    fn run_located(&self, test: &TestFunction, variable: Option<(&str, &str)>) -> Result<Result<(), String>> {
        let known = self.located.get(test).with_context(|| format!("`{}` is in no test binary", test.name))?;
        let binary = &self.binaries[known.binary];
        let printed = run_test(binary, &known.name, variable)?;
        let passed = printed.lines().filter_map(passed_test).any(|name| name == known.name);
        Ok(if passed { Ok(()) } else { Err(printed) })
    }
}

/// Orders tests: first tests of single rules, then those with thousands of cases, last those that start a database
/// server.
fn run_order(path: &str) -> u8 {
    if ["crates/store/tests/", "crates/engine/tests/"].iter().any(|folder| path.starts_with(folder)) {
        return 2;
    }
    u8::from(path.contains("/properties") || path.contains("/fold/"))
}

/// Runs a test and returns its output.
fn run_test(binary: &Binary, name: &str, variable: Option<(&str, &str)>) -> Result<String> {
    static NEXT_TRIAL_NUMBER: AtomicUsize = AtomicUsize::new(0);
    let mut command = shell::command(&binary.executable.to_string_lossy());
    command.current_dir(&binary.package).env("CARGO_MANIFEST_DIR", &binary.package).env("RUST_BACKTRACE", "0");
    command.args(["--exact", "--test-threads=1", name]);
    if let Some((key, value)) = variable {
        command.env(key, value);
    }
    // A file instead of a pipe: a process that a test started may outlive it and hold the pipe open.
    let number = NEXT_TRIAL_NUMBER.fetch_add(1, Ordering::Relaxed);
    let scratch = std::env::temp_dir().join(format!("onceward-trial-{}-{number}.txt", std::process::id()));
    command.stdin(Stdio::null()).stdout(std::fs::File::create(&scratch)?).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("cannot run {}", binary.executable.display()))?;
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if began.elapsed() > TRIAL_TIMEOUT {
            child.kill()?;
            child.wait()?;
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let printed = String::from_utf8_lossy(&std::fs::read(&scratch)?).into_owned();
    std::fs::remove_file(&scratch)?;
    Ok(printed)
}

/// Returns the test's name from `test a::b ... ok` or `test a::b - should panic ... ok`. An ignored test counts as
/// passed.
fn passed_test(line: &str) -> Option<&str> {
    let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    (verdict == "ok" || verdict.starts_with("ignored")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::passed_test;

    #[test]
    fn passed_test_name_is_parsed() {
        assert_eq!(passed_test("test a::b ... ok"), Some("a::b"));
        assert_eq!(passed_test("test a::b - should panic ... ok"), Some("a::b"));
        assert_eq!(passed_test("test a::b ... ignored, slow"), Some("a::b"));
        assert_eq!(passed_test("test a::b ... FAILED"), None);
        assert_eq!(passed_test("test result: ok. 1 passed"), None);
    }
}
