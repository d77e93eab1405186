//! Tests the HTTP API against its OpenAPI document with Schemathesis, on both databases.
//!
//! Schemathesis generates valid and invalid requests and judges every reply. Afterwards `onceward verify` must pass.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::postgres::TestPostgres;
use crate::shell::{self, run_captured};
use crate::workers::at_once;
use crate::{packages, programs, tree};

const SCHEMATHESIS_PACKAGE: &str = "schemathesis==4.32.5";

/// In `target`, so that the run leaves no files in the tree.
const CONTRACT_DIR: &str = "target/contract";

/// The gate sends the same few requests each time.
const DEFAULT_SEED: &str = "7171";
const DEFAULT_MAX_EXAMPLES: &str = "12";

#[derive(Debug)]
struct ContractOptions<'a> {
    seed: &'a str,
    max_examples: &'a str,
}

impl<'a> ContractOptions<'a> {
    fn parse(words: &[&'a str]) -> Result<Self> {
        let mut options = Self { seed: DEFAULT_SEED, max_examples: DEFAULT_MAX_EXAMPLES };
        for pair in words.chunks(2) {
            match pair {
                ["--seed", seed] => options.seed = seed,
                ["--examples", examples] => options.max_examples = examples,
                other => bail!("unknown option {}; usage: `contract [--seed N] [--examples N]`", other.join(" ")),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(words: &[&str]) -> Result<()> {
    let options = ContractOptions::parse(words)?;
    packages::have_python()?;
    packages::have_postgres()?;
    programs::build(&["onceward", "test_postgres"])?;
    let programs = programs::folder()?;
    let schemathesis = install_schemathesis()?;
    let postgres = TestPostgres::start(&programs)?;
    let file = tree::root().join(CONTRACT_DIR).join("contract.db");
    for leftover in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{leftover}", file.display()));
    }
    let databases = [("SQLite", format!("sqlite:{}", file.display())), ("PostgreSQL", postgres.url.clone())];
    let summaries = at_once(&databases, |(name, url)| {
        let began = Instant::now();
        let summary = test_contract(&programs, &schemathesis, url, &options).with_context(|| format!("on {name}"))?;
        Ok((summary, began.elapsed().as_secs_f64()))
    })?;
    for ((name, _), (told, seconds)) in databases.iter().zip(summaries) {
        println!("  {name}: {told} in {seconds:.0} s, seed {}", options.seed);
    }
    Ok(())
}

/// Installs Schemathesis in a virtual environment of its own.
fn install_schemathesis() -> Result<PathBuf> {
    let folder = tree::root().join(CONTRACT_DIR);
    std::fs::create_dir_all(&folder)?;
    let (venv, marker) = (folder.join("venv"), folder.join("venv/installed"));
    if std::fs::read_to_string(&marker).ok().as_deref() != Some(SCHEMATHESIS_PACKAGE) {
        run_captured(shell::command("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
        let mut pip = shell::command(&venv.join("bin/python").to_string_lossy());
        run_captured(pip.args(["-m", "pip", "install", "--quiet", SCHEMATHESIS_PACKAGE]))?;
        std::fs::write(&marker, SCHEMATHESIS_PACKAGE)?;
    }
    Ok(venv.join("bin/schemathesis"))
}

/// Runs Schemathesis on one database and returns its summary line.
fn test_contract(programs: &Path, schemathesis: &Path, url: &str, options: &ContractOptions<'_>) -> Result<String> {
    let onceward = programs.join("onceward");
    let create_api_key = |owner: &str, roles: &[&str]| {
        let mut create = shell::command(&onceward.to_string_lossy());
        create.args(["key", "create", "--db", url, "--owner", owner]);
        create.args(roles.iter().flat_map(|role| ["--role", role]));
        shell::output(create.stderr(Stdio::null())).map(|key| key.trim().to_owned())
    };
    let own_key = create_api_key("contract", &["operator", "producer", "worker"])?;
    // A key that requests may revoke. Revoking the run's own key would end the run.
    let spare_key = create_api_key("spare", &["viewer"])?;
    let spare = spare_key.split('_').nth(1).context("a key has an id")?;
    let server = ContractServer::start(&onceward, url)?;
    let mut run = shell::command(&schemathesis.to_string_lossy());
    run.current_dir(tree::root().join("xtask/contract"));
    run.args([
        "run",
        &format!("{}/openapi.json", server.url),
        "--seed",
        options.seed,
        "--max-examples",
        options.max_examples,
    ]);
    run.env("ONCEWARD_CONTRACT_URL", &server.url)
        .env("ONCEWARD_CONTRACT_KEY", &own_key)
        .env("ONCEWARD_CONTRACT_SPARE", spare)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let output = run_captured(&mut run)?;
    server.stop()?;
    run_captured(shell::command(&onceward.to_string_lossy()).args(["verify", "--db", url]))?;
    let last = output.lines().rev().find(|line| line.contains("passed") || line.contains("generated"));
    Ok(last.unwrap_or("nothing found").trim().trim_matches('=').trim().to_owned())
}

/// A running server, killed on drop.
struct ContractServer {
    url: String,
    process: Child,
}

impl ContractServer {
    fn start(onceward: &Path, database: &str) -> Result<Self> {
        let mut command = shell::command(&onceward.to_string_lossy());
        command.args(["serve", "--listen", "127.0.0.1:0", "--db", database]).env("ONCEWARD_LOG", "warn");
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut out = BufReader::new(process.stdout.take().context("a pipe")?);
        let mut line = String::new();
        while out.read_line(&mut line)? > 0 {
            if let Some(url) = line.trim().strip_prefix("listening on ") {
                let url = url.to_owned();
                // Drain standard output, so that the server never blocks on a full pipe.
                std::thread::spawn(move || out.read_to_end(&mut Vec::new()));
                return Ok(Self { url, process });
            }
            line.clear();
        }
        bail!("the server did not start ({})", process.wait()?)
    }

    /// Sends SIGTERM and expects a clean exit.
    fn stop(mut self) -> Result<()> {
        shell::run(shell::command("kill").args(["-TERM", &self.process.id().to_string()]))?;
        let status = self.process.wait()?;
        if !status.success() {
            bail!("the server failed ({status})");
        }
        Ok(())
    }
}

impl Drop for ContractServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::ContractOptions;

    #[test]
    fn options_parse_and_reject_unknown() {
        let options = ContractOptions::parse(&["--seed", "5", "--examples", "100"]).expect("right");
        assert_eq!((options.seed, options.max_examples), ("5", "100"));
        assert!(ContractOptions::parse(&["--seed"]).is_err() && ContractOptions::parse(&["--sed", "5"]).is_err());
    }
}
