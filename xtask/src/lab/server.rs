//! Shares one PostgreSQL server among all trials, because starting one takes longer than most trials.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};

use anyhow::{Context, Result, bail};

use crate::rule_proofs::binaries::Binary;
use crate::shell;

/// The tests use this server instead of starting their own.
pub(super) const POSTGRES_ENV_VAR: &str = "ONCEWARD_POSTGRES";

/// The lab's test that runs a server until its input closes.
const SERVER_TEST: &str = "support::postgres_server::serve_postgres_for_lab_runs";

pub(super) struct LabPostgres {
    pub(super) url: String,
    own_process: Option<OwnProcess>,
}

struct OwnProcess {
    process: Child,
    /// Kept open: after a minute the test runner prints that the test still runs, and it dies if the pipe is closed.
    _stdout: Lines<BufReader<ChildStdout>>,
}

impl LabPostgres {
    /// Returns the server that the environment names, or starts one that stops on drop.
    pub(super) fn find_or_start(binary: &Binary) -> Result<Self> {
        if let Ok(url) = std::env::var(POSTGRES_ENV_VAR) {
            return Ok(Self { url, own_process: None });
        }
        let mut command = shell::command(&binary.executable.to_string_lossy());
        command.current_dir(&binary.package).args(["--exact", SERVER_TEST, "--ignored", "--nocapture"]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut stdout = BufReader::new(process.stdout.take().context("a pipe")?).lines();
        while let Some(line) = stdout.next() {
            if let Some(url) = line?.strip_prefix("server ") {
                return Ok(Self { url: url.to_owned(), own_process: Some(OwnProcess { process, _stdout: stdout }) });
            }
        }
        bail!("PostgreSQL did not start ({})", process.wait()?)
    }
}

impl Drop for LabPostgres {
    fn drop(&mut self) {
        if let Some(own) = &mut self.own_process {
            drop(own.process.stdin.take());
            // The process stops the server before it exits.
            let _ = own.process.wait();
        }
    }
}
