//! The workspace's own programs, built as the gate builds its tests.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{shell, tree};

/// Cargo turns on the features that its choice of packages and targets asks for, and each choice is a build of its own of most
/// crates. So all that the gate builds is chosen out of the whole workspace and as for tests: that is what `--examples` says.
pub(crate) const AS_FOR_TESTS: [&str; 2] = ["--workspace", "--examples"];

/// Where they stand: beside us.
pub(crate) fn folder() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().context("a program stands in a folder")?.to_owned())
}

/// Builds programs by their names; they then stand in `target/debug`.
pub(crate) fn build(names: &[&str]) -> Result<()> {
    let mut command = shell::command("cargo");
    command.current_dir(tree::root()).args(["build", "--quiet"]).args(AS_FOR_TESTS);
    shell::run(command.args(names.iter().flat_map(|name| ["--bin", name])))
}
