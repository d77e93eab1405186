//! Tests the worker SDKs of other languages: type-checks them, installs them as users do, runs their tests against a
//! real server, and kills the server under workers of all languages at once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::postgres::TestPostgres;
use crate::shell::run_captured;
use crate::workers::at_once;
use crate::{packages, programs, shell, tree};

/// The oldest Node version that the SDK supports.
const MIN_NODE_MAJOR: u32 = 20;

/// In `target`, so that only npm's own files are left in the tree.
const SDK_DIR: &str = "target/sdk";

pub(crate) fn run(words: &[&str]) -> Result<()> {
    packages::have_python()?;
    packages::have_node()?;
    packages::have_postgres()?;
    programs::build(&["onceward", "test_postgres"])?;
    let tools = SdkTools::find()?;
    let suites = [SdkSuite::Python, SdkSuite::TypeScript];
    let done = at_once(&suites, |suite| {
        let began = Instant::now();
        let tests = match suite {
            SdkSuite::Python => tools.test_python()?,
            SdkSuite::TypeScript => tools.test_typescript()?,
        };
        Ok((tests, began.elapsed().as_secs_f64()))
    })?;
    for (suite, (tests, seconds)) in suites.iter().zip(done) {
        println!("  {tests:>4} passed in {seconds:>5.1} s: {suite:?}");
    }
    tools.run_kill_test(words)
}

#[derive(Clone, Copy, Debug)]
enum SdkSuite {
    Python,
    TypeScript,
}

struct SdkTools {
    /// The folder of the built programs.
    programs: PathBuf,
    /// Python of a virtual environment with the type checker and the SDK.
    python: PathBuf,
    node: PathBuf,
    typescript: PathBuf,
}

impl SdkTools {
    fn find() -> Result<Self> {
        let root = tree::root();
        let programs = programs::folder()?;
        std::fs::create_dir_all(root.join(SDK_DIR))?;
        Ok(Self {
            programs,
            python: root.join(SDK_DIR).join("venv/bin/python"),
            node: find_node(&root)?,
            typescript: root.join("sdk/typescript"),
        })
    }

    /// Checks, installs and tests the Python SDK. Returns the number of tests.
    fn test_python(&self) -> Result<u64> {
        let root = tree::root();
        let library = root.join("sdk/python");
        let marker = root.join(SDK_DIR).join("venv/complete");
        if !marker.exists() {
            let venv = root.join(SDK_DIR).join("venv");
            run_captured(shell::command("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
            let mut pip = shell::command(&self.python.to_string_lossy());
            run_captured(pip.args(["-m", "pip", "install", "--quiet", "mypy==2.4.1", "setuptools>=64", "wheel"]))?;
            std::fs::write(&marker, "")?;
        }
        // Without isolation; otherwise each run downloads the build backend again.
        let mut install = self.python_command(&library);
        let words = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--force-reinstall", "."];
        run_captured(install.args(words))?;
        run_captured(self.python_command(&library).args(["-m", "mypy"]))?;
        let output = run_captured(self.python_command(&library).args([
            "-m",
            "unittest",
            "discover",
            "--top-level-directory",
            ".",
        ]))?;
        number_after(&output, "Ran ").context("the tests of sdk/python printed no count")
    }

    /// Checks, builds and tests the TypeScript SDK. Returns the number of tests.
    fn test_typescript(&self) -> Result<u64> {
        let installed = self.typescript.join("node_modules/.package-lock.json");
        if is_outdated(&installed, &self.typescript.join("package-lock.json")) {
            run_captured(self.node_command("npm").args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]))?;
        }
        // Install it into a program as a user does, which also builds it.
        let program = tree::root().join(SDK_DIR).join("app");
        std::fs::create_dir_all(&program)?;
        std::fs::write(program.join("package.json"), r#"{ "name": "app", "private": true }"#)?;
        let mut install = self.node_command("npm");
        run_captured(install.current_dir(&program).args(["install", "--no-audit", "--no-fund"]).arg(&self.typescript))?;
        let mut import = self.node_command(&self.node.to_string_lossy());
        run_captured(import.current_dir(&program).args([
            "--input-type=module",
            "-e",
            "new (await import('onceward')).Worker()",
        ]))?;
        let tsc = self.typescript.join("node_modules/typescript/bin/tsc");
        run_captured(self.node_command(&self.node.to_string_lossy()).arg(tsc))?;
        let mut test = self.node_command(&self.node.to_string_lossy());
        let tests = ["client", "worker", "faults", "stream_faults", "api_keys", "kill"]
            .map(|name| format!("built/test/{name}.test.js"));
        let output = run_captured(test.args(["--test", "--test-reporter=tap"]).args(tests))?;
        number_after(&output, "# pass ").context("the tests of sdk/typescript printed no count")
    }

    /// Runs workers of all languages at once, on both databases.
    fn run_kill_test(&self, words: &[&str]) -> Result<()> {
        let postgres = TestPostgres::start(&self.programs)?;
        let mut driver = self.python_command(&tree::root().join("sdk/tests"));
        driver.args(["kill_test.py", "--db", "sqlite", "--db", &postgres.url]).arg("--node").arg(&self.node);
        shell::run(driver.args(words))
    }

    fn python_command(&self, folder: &Path) -> Command {
        let mut command = shell::command(&self.python.to_string_lossy());
        command.current_dir(folder).env("ONCEWARD_BIN", self.programs.join("onceward"));
        // Keeps cache files out of the tree.
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("MYPY_CACHE_DIR", tree::root().join(SDK_DIR).join("mypy"));
        command
    }

    fn node_command(&self, program: &str) -> Command {
        let mut command = shell::command(program);
        command.current_dir(&self.typescript).env("ONCEWARD_BIN", self.programs.join("onceward"));
        command
    }
}

/// Returns the machine's Node, or one installed with npm if that is too old.
fn find_node(root: &Path) -> Result<PathBuf> {
    let version = shell::output(shell::command("node").arg("--version"))?;
    let major = version.trim().trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major >= MIN_NODE_MAJOR) {
        return Ok("node".into());
    }
    let folder = root.join(SDK_DIR).join("node");
    let node = folder.join("node_modules/node/bin/node");
    if !node.exists() {
        std::fs::create_dir_all(&folder)?;
        run_captured(
            shell::command("npm").arg("install").arg("--prefix").arg(&folder).arg(format!("node@{MIN_NODE_MAJOR}")),
        )?;
    }
    Ok(node)
}

fn is_outdated(file: &Path, than: &Path) -> bool {
    let modified = |path: &Path| std::fs::metadata(path).and_then(|found| found.modified()).ok();
    modified(file) < modified(than) || !file.exists()
}

/// Returns the number after the last line start that matches `words`.
fn number_after(output: &str, words: &str) -> Option<u64> {
    let rest = output.lines().rev().find_map(|line| line.strip_prefix(words))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::number_after;

    #[test]
    fn test_count_is_parsed_from_output() {
        assert_eq!(number_after("....\nRan 31 tests in 4.2s\n\nOK\n", "Ran "), Some(31));
        assert_eq!(number_after("# tests 30\n# pass 29\n# fail 1\n", "# pass "), Some(29));
        assert_eq!(number_after("nothing", "Ran "), None);
    }
}
