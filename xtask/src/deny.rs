//! Checks dependencies with cargo-deny: no banned crates, known licenses, the default source only. Advisories are not checked:
//! they need a database fetched at every run, which would let the gate fail without a change of ours.

use anyhow::{Context, Result};

use crate::{shell, tree};

/// Pinned, so that the gate gives the same result on every machine.
const VERSION: &str = "0.20.2";

/// Hashes of [`INPUTS`] when cargo-deny last passed. Building cargo-deny takes minutes, so the gate runs it only for new inputs.
const PASSED: &str = "xtask/deny.passed";

const INPUTS: [&str; 2] = ["Cargo.lock", "deny.toml"];

/// Runs cargo-deny and records for which inputs it passed.
pub(crate) fn run() -> Result<()> {
    let program = find_or_install()?;
    let mut command = shell::command(&program);
    command.current_dir(tree::root()).args(["--log-level", "warn", "check", "bans", "licenses", "sources"]);
    shell::run(&mut command)?;
    std::fs::write(tree::root().join(PASSED), input_hashes()?).with_context(|| format!("cannot write {PASSED}"))
}

/// Runs cargo-deny unless it has passed for these inputs.
pub(crate) fn run_if_changed() -> Result<()> {
    let passed = std::fs::read_to_string(tree::root().join(PASSED)).unwrap_or_default();
    if passed == input_hashes()? {
        println!("{} have not changed since cargo-deny passed ({PASSED})", INPUTS.join(" and "));
        return Ok(());
    }
    run()?;
    println!("commit {PASSED}, so that the next run need not build cargo-deny");
    Ok(())
}

fn input_hashes() -> Result<String> {
    let mut command = shell::command("git");
    shell::output(command.current_dir(tree::root()).arg("hash-object").args(INPUTS))
}

fn find_or_install() -> Result<String> {
    if shell::can_run(shell::command("cargo-deny").arg("--version")) {
        return Ok("cargo-deny".to_owned());
    }
    let installed = tree::root().join("target/tools/bin/cargo-deny");
    if !installed.is_file() {
        println!("cargo-deny is missing; installing it into target/tools (takes a few minutes, once)");
        let mut install = shell::command("cargo");
        install.current_dir(tree::root());
        install.args(["install", "cargo-deny", "--quiet", "--locked", "--version", VERSION, "--root", "target/tools"]);
        // It runs once on a small graph: a fast build matters more than a fast program.
        install.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0").env("CARGO_PROFILE_RELEASE_LTO", "off");
        install.env("CARGO_PROFILE_RELEASE_DEBUG", "false");
        shell::run(&mut install).context("cargo-deny is missing and could not be installed")?;
    }
    Ok(installed.to_string_lossy().into_owned())
}
