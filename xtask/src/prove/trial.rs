//! Running chosen tests with something taken away.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::binaries::{self, Binary};
use crate::rules::rust_file::Test;
use crate::shell;

/// Without its row a test may wait for ever. Then it has noticed, too. Far longer than any test takes: a slow machine must
/// not look like a missing rule.
const LIMIT: Duration = Duration::from_mins(20);

/// Runs these tests and answers with those that did not pass. `scratch` is a file for what they print.
pub(crate) fn failing(
    binaries: &[Binary],
    tests: &[&Test],
    environment: Option<(&str, &str)>,
    scratch: &Path,
) -> Result<BTreeSet<Test>> {
    let mut by_binary: BTreeMap<usize, Vec<(String, &Test)>> = BTreeMap::new();
    for test in tests {
        let (at, name) = binaries::find(binaries, test)
            .with_context(|| format!("{}:{} the test `{}` is in no test binary", test.path, test.line, test.name))?;
        by_binary.entry(at).or_default().push((name, test));
    }
    let mut failing = BTreeSet::new();
    for (at, named) in by_binary {
        let passed = passed(&binaries[at], named.iter().map(|(name, _)| name.as_str()), environment, scratch)?;
        failing.extend(named.into_iter().filter(|(name, _)| !passed.contains(name)).map(|(_, test)| test.clone()));
    }
    Ok(failing)
}

fn passed<'a>(
    binary: &Binary,
    names: impl Iterator<Item = &'a str>,
    environment: Option<(&str, &str)>,
    scratch: &Path,
) -> Result<BTreeSet<String>> {
    let mut command = shell::command(&binary.executable.to_string_lossy());
    command.current_dir(&binary.package).env("CARGO_MANIFEST_DIR", &binary.package).env("RUST_BACKTRACE", "0");
    command.args(["--exact", "--test-threads=1"]).args(names);
    command.stdin(Stdio::null()).stdout(std::fs::File::create(scratch)?).stderr(Stdio::null());
    if let Some((key, value)) = environment {
        command.env(key, value);
    }
    let mut child = command.spawn().with_context(|| format!("cannot run {}", binary.executable.display()))?;
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if began.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let printed = String::from_utf8_lossy(&std::fs::read(scratch)?).into_owned();
    Ok(printed.lines().filter_map(passed_test).map(str::to_owned).collect())
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
