//! One test, in a process of its own.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::prove::binaries::Binary;
use crate::shell;

/// Without its guard a test may wait for ever. That is no pass.
const LIMIT: Duration = Duration::from_mins(5);

/// A line by which a test says what it saw.
const MARK: &str = "lab: ";

pub(super) struct Trial {
    pub(super) passed: bool,
    /// What it says it saw.
    pub(super) seen: Option<String>,
    pub(super) took: Duration,
    /// All that it printed.
    pub(super) printed: String,
}

/// Runs one test, also an ignored one, with these variables set.
pub(super) fn run(binary: &Binary, test: &str, variables: &[(&str, &str)], scratch: &Path) -> Result<Trial> {
    let mut command = shell::command(&binary.executable.to_string_lossy());
    command.current_dir(&binary.package).env("CARGO_MANIFEST_DIR", &binary.package).env("RUST_BACKTRACE", "0");
    command.args(["--exact", test, "--include-ignored", "--nocapture", "--test-threads=1"]);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ONCEWARD_")) {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    let output = std::fs::File::create(scratch)?;
    command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
    let began = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot run {}", binary.executable.display()))?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if began.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let printed = String::from_utf8_lossy(&std::fs::read(scratch)?).into_owned();
    let ran = printed.contains("test result: ok. 1 passed;");
    let seen = printed.lines().filter_map(|line| line.split_once(MARK)).next_back();
    Ok(Trial {
        passed: ran && status.is_some_and(|status| status.success()),
        seen: seen.map(|(_, seen)| seen.trim().to_owned()),
        took: began.elapsed(),
        printed,
    })
}
