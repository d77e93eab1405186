//! One PostgreSQL server for all trials: starting one takes longer than most of them.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};

use anyhow::{Context, Result, bail};

use crate::prove::binaries::Binary;
use crate::shell;

/// Where the tests look for a server before they start one of their own.
pub(super) const VARIABLE: &str = "ONCEWARD_POSTGRES";

/// What of the lab's tests is a server.
const TEST: &str = "stage::server::serves";

pub(super) struct Server {
    pub(super) url: String,
    own: Option<Own>,
}

struct Own {
    process: Child,
    /// Kept open: the test's runner says after a minute that the test still runs, and ends where nobody hears it.
    _said: Lines<BufReader<ChildStdout>>,
}

impl Server {
    /// Somebody else's, where there is one; else one that ends with this value.
    pub(super) fn find(binary: &Binary) -> Result<Self> {
        if let Ok(url) = std::env::var(VARIABLE) {
            return Ok(Self { url, own: None });
        }
        let mut command = shell::command(&binary.executable.to_string_lossy());
        command.current_dir(&binary.package).args(["--exact", TEST, "--ignored", "--nocapture"]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut said = BufReader::new(process.stdout.take().context("a pipe")?).lines();
        while let Some(line) = said.next() {
            if let Some(url) = line?.strip_prefix("server ") {
                return Ok(Self { url: url.to_owned(), own: Some(Own { process, _said: said }) });
            }
        }
        bail!("PostgreSQL did not start ({})", process.wait()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(own) = &mut self.own {
            drop(own.process.stdin.take());
            // It stops the server and ends.
            let _ = own.process.wait();
        }
    }
}
