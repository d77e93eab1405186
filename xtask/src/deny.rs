//! Dependencies: no banned ones, only known licences, only the default source. Advisories need a database fetched from the
//! network at every run, which would let the gate fail with no change of ours.

use anyhow::{Context, Result, anyhow};

use crate::{shell, tree};

/// Pinned, so that the gate says the same on every machine.
const VERSION: &str = "0.20.2";

pub(crate) fn run() -> Result<()> {
    check(&program("0")?)
}

/// cargo-deny, being built where the machine lacks it: with what others leave of the processors.
pub(crate) struct Meanwhile(std::thread::JoinHandle<Result<String>>);

impl Meanwhile {
    pub(crate) fn begin() -> Self {
        Self(std::thread::spawn(|| program("19")))
    }

    /// Waits for it and runs it.
    pub(crate) fn run(self) -> Result<()> {
        check(&self.0.join().map_err(|_| anyhow!("installing cargo-deny panicked"))??)
    }
}

/// cargo-deny as it is installed, or installed now, as politely towards others as this.
fn program(nice: &str) -> Result<String> {
    let installed = tree::root().join("target/tools/bin/cargo-deny");
    if shell::is_there(shell::command("cargo-deny").arg("--version")) {
        return Ok("cargo-deny".to_owned());
    }
    if !installed.is_file() {
        println!("cargo-deny is missing: installing it into target/tools (a few minutes, once)");
        let cargo = shell::command("cargo");
        let mut install = shell::command("nice");
        install.args(["-n", nice]).arg(cargo.get_program()).current_dir(tree::root());
        install.args(["install", "cargo-deny", "--quiet", "--locked", "--version", VERSION, "--root", "target/tools"]);
        // Run once on a small graph: building it fast matters more than running it fast.
        install.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0").env("CARGO_PROFILE_RELEASE_LTO", "off");
        install.env("CARGO_PROFILE_RELEASE_DEBUG", "false");
        shell::run(&mut install).context("cargo-deny is missing and could not be installed")?;
    }
    Ok(installed.to_string_lossy().into_owned())
}

fn check(program: &str) -> Result<()> {
    shell::run(shell::command(program).current_dir(tree::root()).args([
        "--log-level",
        "warn",
        "check",
        "bans",
        "licenses",
        "sources",
    ]))
}
