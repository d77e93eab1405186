//! Runs other programs.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

/// Creates a command. `cargo` is the one that started this program, so that the toolchain stays the same.
pub(crate) fn command(program: &str) -> Command {
    if program == "cargo" {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // Code edited for a proof must compile, not pass the lints of the caller's environment.
        cargo.env_remove("RUSTC_WORKSPACE_WRAPPER");
        return cargo;
    }
    Command::new(program)
}

/// The compiler that also lints, for the gate's builds. A step that is a process of its own gets it from the gate.
const LINTING_COMPILER_ENV_VAR: &str = "ONCEWARD_LINTING_COMPILER";

static LINTING_COMPILER: OnceLock<String> = OnceLock::new();

/// From here on, builds of the workspace run clippy, so that linting and code generation are one pass.
pub(crate) fn lint_builds() -> Result<()> {
    let sysroot = output(command("rustc").args(["--print", "sysroot"]))?;
    LINTING_COMPILER.get_or_init(|| format!("{}/bin/clippy-driver", sysroot.trim()));
    Ok(())
}

fn linting_compiler() -> Option<String> {
    LINTING_COMPILER.get().cloned().or_else(|| std::env::var(LINTING_COMPILER_ENV_VAR).ok())
}

/// Makes a command of xtask share the linted builds.
pub(crate) fn pass_on_linting(command: &mut Command) {
    if let Some(compiler) = linting_compiler() {
        command.env(LINTING_COMPILER_ENV_VAR, compiler);
    }
}

/// Creates the cargo command for the workspace's own development build, which the gate lints.
pub(crate) fn workspace_cargo() -> Command {
    let mut command = command("cargo");
    if let Some(compiler) = linting_compiler() {
        command.env("RUSTC_WORKSPACE_WRAPPER", compiler);
    }
    command
}

fn display_command(command: &Command) -> String {
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .map(|word| word.rsplit('/').next().filter(|_| word.ends_with("cargo")).unwrap_or(&word).to_owned())
        .collect();
    words.join(" ")
}

/// Runs a command with inherited input and output. An exit code other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", display_command(command)))?;
    if !status.success() {
        bail!("`{}` failed ({status})", display_command(command));
    }
    Ok(())
}

/// Returns the command's standard output. Standard error is inherited.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let result = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", display_command(command)))?;
    if !result.status.success() {
        bail!("`{}` failed ({})", display_command(command), result.status);
    }
    String::from_utf8(result.stdout).with_context(|| format!("`{}` did not print UTF-8", display_command(command)))
}

/// Calls `on_line` for each line of standard output as it arrives. Returns whether the program succeeded.
pub(crate) fn for_each_line(command: &mut Command, mut on_line: impl FnMut(&str)) -> Result<bool> {
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {}", display_command(command)))?;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            on_line(&line?);
        }
    }
    Ok(child.wait()?.success())
}

/// Returns whether a command runs and succeeds.
pub(crate) fn can_run(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Returns the command's output, which becomes part of the error if it fails.
pub(crate) fn run_captured(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        println!("{text}");
        bail!("{command:?} failed ({})", output.status);
    }
    Ok(text)
}
