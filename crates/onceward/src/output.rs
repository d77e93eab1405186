//! Prints results on standard output and errors on standard error, and defines the exit codes.

use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::stderr_thread;

/// The result of a command. The numbers are exit codes that scripts rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandStatus {
    Success = 0,
    /// The command was refused or found a problem.
    Failure = 1,
    UsageError = 2,
}

impl From<CommandStatus> for ExitCode {
    fn from(status: CommandStatus) -> Self {
        Self::from(status as u8)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    Auto,
    Always,
    Never,
}

impl ColorChoice {
    /// Returns whether to color diagnostics. `Auto` colors on a terminal unless `NO_COLOR` or `TERM=dumb` is set.
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

/// Prints a result. A reader that closed the pipe (`| head`) is not an error.
pub(crate) fn print_stdout(text: &str) -> Result<()> {
    try_print_stdout(text).map(|_| ())
}

/// Like [`print_stdout`], but returns false if the reader has closed the pipe.
pub(crate) fn try_print_stdout(text: &str) -> Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

/// Prints an error or a warning.
pub(crate) fn print_stderr(text: &str) {
    stderr_thread::write_lines(text.as_bytes());
}
