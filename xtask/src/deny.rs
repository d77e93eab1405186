//! Dependencies: no banned ones, only known licences, only the default source. Advisories need a database fetched from the
//! network at every run, which would let the gate fail with no change of ours.

use anyhow::Result;

use crate::{shell, tree};

/// Pinned, so that the gate says the same on every machine.
const VERSION: &str = "0.20.2";

pub(crate) fn run() -> Result<()> {
    let installed = tree::root().join("target/tools/bin/cargo-deny");
    let program = if shell::is_there(shell::command("cargo-deny").arg("--version")) {
        "cargo-deny".to_owned()
    } else {
        let program = installed.to_string_lossy().into_owned();
        if !installed.is_file() {
            println!("cargo-deny is missing: installing it into target/tools (a few minutes, once)");
            shell::run(
                shell::command("cargo")
                    .current_dir(tree::root())
                    .args(["install", "cargo-deny", "--locked", "--version", VERSION, "--root", "target/tools"])
                    // Run once on a small graph: building it fast matters more than running it fast.
                    .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
                    .env("CARGO_PROFILE_RELEASE_LTO", "off"),
            )?;
        }
        program
    };
    shell::run(shell::command(&program).current_dir(tree::root()).args([
        "--log-level",
        "warn",
        "check",
        "bans",
        "licenses",
        "sources",
    ]))
}
