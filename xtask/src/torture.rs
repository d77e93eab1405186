//! `cargo xtask torture`: builds and runs the torture tests, which kill engines, race them and break their disks.

use anyhow::{Result, bail};

use crate::{packages, programs, shell};

/// About a minute, for the gate.
const SHORT_RUN_ARGS: [&str; 4] = ["--kills", "50", "--races", "500"];

pub(crate) fn run(words: &[&str]) -> Result<()> {
    let (words, is_short) = match words {
        ["--short", words @ ..] => ([&SHORT_RUN_ARGS, words].concat(), true),
        words => (words.to_vec(), false),
    };
    packages::have_postgres()?;
    packages::have_strace()?;
    programs::build(&["lab-child", "torture"])?;
    // Programs are in the folder of this one, whatever cargo's target folder is.
    let Some(folder) = std::env::current_exe()?.parent().map(std::path::Path::to_owned) else { bail!("no folder") };
    shell::run(shell::command(&folder.join("torture").to_string_lossy()).args(words))?;
    if is_short {
        return Ok(());
    }
    // The gate's lab stops a server at the messages of a commit. This run stops it at every message.
    let mut server_stop_test = shell::command("cargo");
    server_stop_test.args([
        "test",
        "--quiet",
        "--workspace",
        "--test",
        "lab",
        "recovered_call_retried_after_postgres_stop_happens_once",
        "--",
        "--nocapture",
    ]);
    shell::run(server_stop_test.env("ONCEWARD_ALL_POINTS", "1"))
}
