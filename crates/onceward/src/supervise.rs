//! The two hidden verbs by which `onceward work` starts a program: nobody calls them by hand.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

pub(crate) const SUPERVISE: &str = "__supervise";
pub(crate) const EXECUTE: &str = "__execute";

/// Stays beside a program, and ends it when the worker is gone
#[derive(Args)]
#[command(after_help = "Example:\n  onceward work starts this by itself")]
pub(crate) struct Supervise {
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Supervise {
    pub(crate) fn run(&self) -> ExitCode {
        match onceward_worker::Launcher::this_program(&[EXECUTE]) {
            Ok(this) => onceward_worker::supervise(&this, &self.command),
            Err(_) => ExitCode::FAILURE,
        }
    }
}

/// Becomes the program
#[derive(Args)]
#[command(after_help = "Example:\n  onceward work starts this by itself")]
pub(crate) struct Execute {
    supervisor: u32,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Execute {
    pub(crate) fn run(&self) -> ExitCode {
        onceward_worker::execute(self.supervisor, &self.command)
    }
}
