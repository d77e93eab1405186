//! Builds the workspace's own programs with the gate's options.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::rule_proofs::binaries;
use crate::{shell, tree};

/// Cargo enables features by the selected packages and targets, so each selection rebuilds most crates. The gate
/// therefore selects everything from the whole workspace with the features of tests, which `--examples` includes.
pub(crate) const AS_FOR_TESTS: [&str; 2] = ["--workspace", "--examples"];

/// Returns the folder of the built programs, which contains this one.
pub(crate) fn folder() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().context("program has a folder")?.to_owned())
}

/// Builds programs by name into `target/debug`.
pub(crate) fn build(names: &[&str]) -> Result<()> {
    let mut command = shell::workspace_cargo();
    command.current_dir(tree::root()).args(["build", "--quiet"]).args(AS_FOR_TESTS);
    shell::run(command.args(names.iter().flat_map(|name| ["--bin", name])))
}

/// Builds every program and example. If the gate lints its builds, a warning fails it.
pub(crate) fn build_all() -> Result<()> {
    let mut command = shell::workspace_cargo();
    command.current_dir(tree::root()).args(["build", "--quiet", "--message-format=json", "--bins"]);
    binaries::compile(command.args(AS_FOR_TESTS)).map(|_| ())
}
