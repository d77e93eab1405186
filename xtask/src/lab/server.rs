//! One PostgreSQL server for all trials: starting one takes longer than most of them.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};

use anyhow::{Context, Result, bail};

use crate::prove::binaries::Binary;
use crate::shell;

/// Where the tests look for a server before they start one of their own.
pub(super) const POSTGRES_ENV_VAR: &str = "ONCEWARD_POSTGRES";

/// What of the lab's tests is a server.
const SERVER_TEST: &str = "support::postgres_server::serve_postgres_for_lab_runs";

pub(super) struct LabPostgres {
    pub(super) url: String,
    own_process: Option<OwnProcess>,
}

struct OwnProcess {
    process: Child,
    /// Kept open: the test's runner says after a minute that the test still runs, and ends where nobody hears it.
    _stdout: Lines<BufReader<ChildStdout>>,
}

impl LabPostgres {
    /// Somebody else's, where there is one; else one that ends with this value.
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
            // It stops the server and ends.
            let _ = own.process.wait();
        }
    }
}
