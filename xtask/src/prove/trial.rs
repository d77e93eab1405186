//! Running chosen tests with something taken away.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::binaries::{self, Binary};
use crate::rules::id::RuleId;
use crate::rules::rust_file::Test;
use crate::shell;
use crate::workers::at_once;

/// Without its row a test may wait for ever. Then it has noticed, too. Far longer than any test takes: a slow machine must
/// not look like a missing rule.
const LIMIT: Duration = Duration::from_mins(20);

/// How long to wait for a line before asking whether the program still runs.
const LOOK: Duration = Duration::from_millis(100);

/// Where a test is found, and how long it takes.
struct Known {
    binary: usize,
    name: String,
    took: Duration,
}

/// Tests that pass when nothing is taken away.
pub(super) struct Trials<'a> {
    binaries: &'a [Binary],
    known: BTreeMap<&'a Test, Known>,
}

impl<'a> Trials<'a> {
    /// With nothing taken away they must all pass, or a failure would prove nothing.
    pub(super) fn begin(binaries: &'a [Binary], tests: BTreeSet<&'a Test>) -> Result<Self> {
        let mut known = BTreeMap::new();
        let mut by_binary: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for test in tests {
            let (binary, name) = binaries::find(binaries, test).with_context(|| {
                format!("{}:{} the test `{}` is in no test binary", test.path, test.line, test.name)
            })?;
            by_binary.entry(binary).or_default().push(name.clone());
            known.insert(test, Known { binary, name, took: Duration::ZERO });
        }
        let groups: Vec<(usize, Vec<String>)> = by_binary.into_iter().collect();
        let passed = at_once(&groups, |(binary, names)| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Ok((*binary, play(&binaries[*binary], &names, None)?))
        })?;
        let passed: BTreeMap<usize, Played> = passed.into_iter().collect();
        for (test, known) in &mut known {
            let played = passed.get(&known.binary).context("every program was run")?;
            match played.passed.get(&known.name) {
                Some(took) => known.took = *took,
                None => bail!(
                    "{}:{} `{}` fails with nothing taken away:\n{}",
                    test.path,
                    test.line,
                    test.name,
                    played.printed
                ),
            }
        }
        Ok(Self { binaries, known })
    }

    /// The same tests in programs that were built with something taken away.
    pub(super) fn with<'b>(&self, binaries: &'b [Binary]) -> Result<Trials<'b>>
    where
        'a: 'b,
    {
        let moved = |(test, known): (&&'a Test, &Known)| -> Result<(&'b Test, Known)> {
            let (binary, name) = binaries::find(binaries, test).context("an edit takes no test away")?;
            Ok((*test, Known { binary, name, took: known.took }))
        };
        Ok(Trials { binaries, known: self.known.iter().map(moved).collect::<Result<_>>()? })
    }

    /// For each of these rules a test of it that fails under this variable, if there is one. The quickest are tried first; when
    /// every rule has its test, the others need not run.
    pub(super) fn noticed(
        &self,
        rules: &[RuleId],
        tests: BTreeSet<&Test>,
        variable: Option<(&str, &str)>,
    ) -> Result<BTreeMap<RuleId, String>> {
        let known = |test: &&Test| self.known.get(*test).with_context(|| format!("`{}` was never tried", test.name));
        let mut tests: Vec<(&Test, &Known)> =
            tests.into_iter().map(|test| Ok((test, known(&test)?))).collect::<Result<_>>()?;
        tests.sort_by_key(|(_, known)| known.took);
        let mut noticed = BTreeMap::new();
        for (test, known) in tests {
            let open: Vec<&RuleId> =
                rules.iter().filter(|rule| test.rules.contains(rule) && !noticed.contains_key(*rule)).collect();
            if open.is_empty() {
                continue;
            }
            if play(&self.binaries[known.binary], &[&known.name], variable)?.passed.is_empty() {
                noticed.extend(open.into_iter().map(|rule| (rule.clone(), test.name.clone())));
            }
        }
        Ok(noticed)
    }
}

/// What came of some tests of a program.
struct Played {
    /// Those that pass, and how long each took.
    passed: BTreeMap<String, Duration>,
    printed: String,
}

/// Runs these tests one after the other.
fn play(binary: &Binary, names: &[&str], variable: Option<(&str, &str)>) -> Result<Played> {
    let mut command = shell::command(&binary.executable.to_string_lossy());
    command.current_dir(&binary.package).env("CARGO_MANIFEST_DIR", &binary.package).env("RUST_BACKTRACE", "0");
    command.args(["--exact", "--test-threads=1"]).args(names);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    if let Some((key, value)) = variable {
        command.env(key, value);
    }
    let mut child = command.spawn().with_context(|| format!("cannot run {}", binary.executable.display()))?;
    let output = BufReader::new(child.stdout.take().context("its output is a pipe")?);
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
    let (mut passed, mut printed) = (BTreeMap::new(), String::new());
    let (began, mut last) = (Instant::now(), Instant::now());
    loop {
        match told.recv_timeout(LOOK) {
            Ok(line) => {
                if let Some(name) = passed_test(&line) {
                    passed.insert(name.to_owned(), last.elapsed());
                }
                last = Instant::now();
                printed += &line;
                printed.push('\n');
            }
            Err(RecvTimeoutError::Disconnected) => break,
            // What a test has started may outlive it and hold the other end of the pipe.
            Err(RecvTimeoutError::Timeout) if child.try_wait()?.is_some() => break,
            Err(RecvTimeoutError::Timeout) if began.elapsed() > LIMIT => {
                child.kill()?;
                break;
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    child.wait()?;
    Ok(Played { passed, printed })
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
