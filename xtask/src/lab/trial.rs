//! Runs one lab test in a process of its own.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::rule_proofs::binaries::Binary;
use crate::shell;

/// A test without its safeguard may hang, which counts as a failure.
const TRIAL_TIMEOUT: Duration = Duration::from_mins(5);

/// The prefix of the line in which a test prints its observation.
const OBSERVATION_PREFIX: &str = "lab: ";

pub(super) struct LabTrial {
    pub(super) passed: bool,
    pub(super) observation: Option<String>,
    pub(super) duration: Duration,
    /// Everything the test printed.
    pub(super) output: String,
}

/// Runs one test, even an ignored one, with these variables set.
pub(super) fn run_trial(binary: &Binary, test: &str, variables: &[(&str, &str)], scratch: &Path) -> Result<LabTrial> {
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
        if began.elapsed() > TRIAL_TIMEOUT {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let output_text = String::from_utf8_lossy(&std::fs::read(scratch)?).into_owned();
    let ran = output_text.contains("test result: ok. 1 passed;");
    let observation = output_text.lines().filter_map(|line| line.split_once(OBSERVATION_PREFIX)).next_back();
    Ok(LabTrial {
        passed: ran && status.is_some_and(|status| status.success()),
        observation: observation.map(|(_, seen)| seen.trim().to_owned()),
        duration: began.elapsed(),
        output: output_text,
    })
}
