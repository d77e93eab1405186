//! How a verb answers: text on standard output, complaints on standard error, and an exit code.

use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::stderr_thread;

/// How it went; the numbers are the exit codes that scripts rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandStatus {
    Success = 0,
    /// Refused or found wanting.
    Failure = 1,
    UsageError = 2,
}

impl From<CommandStatus> for ExitCode {
    fn from(outcome: CommandStatus) -> Self {
        Self::from(outcome as u8)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    Auto,
    Always,
    Never,
}

impl ColorChoice {
    /// Whether complaints are coloured: asked for, or a terminal that has not asked for peace.
    pub(crate) fn is_enabled(self) -> bool {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => std::io::stderr().is_terminal() && !is_set("NO_COLOR") && !is_dumb,
        }
    }
}

/// Prints an answer. A reader that has gone away (`| head`) wanted no more: that is not an error.
pub(crate) fn print_stdout(text: &str) -> Result<()> {
    try_print_stdout(text).map(|_| ())
}

/// The same, for those who have more to say: whether somebody still reads.
pub(crate) fn try_print_stdout(text: &str) -> Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write the answer"),
    }
}

/// Prints a complaint.
pub(crate) fn print_stderr(text: &str) {
    stderr_thread::write_lines(text.as_bytes());
}
