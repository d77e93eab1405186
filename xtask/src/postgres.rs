//! Starts a PostgreSQL server for steps that run programs of their own.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail};

use crate::shell;

/// A server that stops on drop.
pub(crate) struct TestPostgres {
    pub(crate) url: String,
    process: Child,
}

impl TestPostgres {
    pub(crate) fn start(programs: &Path) -> Result<Self> {
        let mut command = shell::command(&programs.join("test_postgres").to_string_lossy());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut url = String::new();
        BufReader::new(process.stdout.take().context("a pipe")?).read_line(&mut url)?;
        if url.trim().is_empty() {
            bail!("PostgreSQL did not start ({})", process.wait()?);
        }
        Ok(Self { url: url.trim().to_owned(), process })
    }
}

impl Drop for TestPostgres {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // The process stops the server before it exits.
        let _ = self.process.wait();
    }
}
