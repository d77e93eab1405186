//! How a verb answers: text on standard output, complaints on standard error, and an exit code.

use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::voice;

/// How it went; the numbers are the exit codes that scripts rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done = 0,
    /// Refused or found wanting.
    Wanting = 1,
    Misuse = 2,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(outcome as u8)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

impl Color {
    /// Whether complaints are coloured: asked for, or a terminal that has not asked for peace.
    pub(crate) fn wanted(self) -> bool {
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
pub(crate) fn say(text: &str) -> Result<()> {
    is_heard(text).map(|_| ())
}

/// The same, for those who have more to say: whether somebody still reads.
pub(crate) fn is_heard(text: &str) -> Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write the answer"),
    }
}

/// Prints a complaint.
pub(crate) fn complain(text: &str) {
    voice::tell(text.as_bytes());
}
