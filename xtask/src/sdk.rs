//! The worker libraries for other languages: their types checked, installed as users install them, their tests run against the real
//! server, and the server killed under the workers of all languages at once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::postgres::Postgres;
use crate::shell::quiet;
use crate::workers::at_once;
use crate::{packages, programs, shell, tree};

/// The oldest Node that the library is for.
const NODE: u32 = 20;

/// Into `target`, so that nothing is left in the tree but what npm wants there.
const FOLDER: &str = "target/sdk";

pub(crate) fn run(words: &[&str]) -> Result<()> {
    packages::have_python()?;
    packages::have_node()?;
    packages::have_postgres()?;
    programs::build(&["onceward", "test_postgres"])?;
    let tools = Tools::find()?;
    let suites = [Suite::Python, Suite::TypeScript];
    let done = at_once(&suites, |suite| {
        let began = Instant::now();
        let tests = match suite {
            Suite::Python => tools.python()?,
            Suite::TypeScript => tools.typescript()?,
        };
        Ok((tests, began.elapsed().as_secs_f64()))
    })?;
    for (suite, (tests, seconds)) in suites.iter().zip(done) {
        println!("  {tests:>4} passed in {seconds:>5.1} s: {suite:?}");
    }
    tools.killing(words)
}

#[derive(Clone, Copy, Debug)]
enum Suite {
    Python,
    TypeScript,
}

struct Tools {
    /// Where cargo has put our own programs.
    programs: PathBuf,
    /// In an environment of ours, with the checker and the library.
    python: PathBuf,
    node: PathBuf,
    typescript: PathBuf,
}

impl Tools {
    fn find() -> Result<Self> {
        let root = tree::root();
        let programs = programs::folder()?;
        std::fs::create_dir_all(root.join(FOLDER))?;
        Ok(Self {
            programs,
            python: root.join(FOLDER).join("venv/bin/python"),
            node: node(&root)?,
            typescript: root.join("sdk/typescript"),
        })
    }

    /// Checks, installs and tests the Python library; how many tests there were.
    fn python(&self) -> Result<u64> {
        let root = tree::root();
        let library = root.join("sdk/python");
        let marker = root.join(FOLDER).join("venv/complete");
        if !marker.exists() {
            let venv = root.join(FOLDER).join("venv");
            quiet(shell::command("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
            let mut pip = shell::command(&self.python.to_string_lossy());
            quiet(pip.args(["-m", "pip", "install", "--quiet", "mypy==2.4.1", "setuptools>=64", "wheel"]))?;
            std::fs::write(&marker, "")?;
        }
        // Without isolation, or each run would fetch the builder again.
        let mut install = self.in_python(&library);
        let words = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--force-reinstall", "."];
        quiet(install.args(words))?;
        quiet(self.in_python(&library).args(["-m", "mypy"]))?;
        let told = quiet(self.in_python(&library).args(["-m", "unittest", "discover", "--top-level-directory", "."]))?;
        number_after(&told, "Ran ").context("the tests of sdk/python tell no count")
    }

    /// Checks, builds and tests the TypeScript library; how many tests there were.
    fn typescript(&self) -> Result<u64> {
        let installed = self.typescript.join("node_modules/.package-lock.json");
        if is_older(&installed, &self.typescript.join("package-lock.json")) {
            quiet(self.in_node("npm").args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]))?;
        }
        // As a user installs it into a program, which builds it, too.
        let program = tree::root().join(FOLDER).join("app");
        std::fs::create_dir_all(&program)?;
        std::fs::write(program.join("package.json"), r#"{ "name": "app", "private": true }"#)?;
        let mut install = self.in_node("npm");
        quiet(install.current_dir(&program).args(["install", "--no-audit", "--no-fund"]).arg(&self.typescript))?;
        let mut import = self.in_node(&self.node.to_string_lossy());
        quiet(import.current_dir(&program).args([
            "--input-type=module",
            "-e",
            "new (await import('onceward')).Worker()",
        ]))?;
        let tsc = self.typescript.join("node_modules/typescript/bin/tsc");
        quiet(self.in_node(&self.node.to_string_lossy()).arg(tsc))?;
        let mut test = self.in_node(&self.node.to_string_lossy());
        let tests = ["client", "worker", "trouble", "keys", "kill"].map(|name| format!("built/test/{name}.test.js"));
        let told = quiet(test.args(["--test", "--test-reporter=tap"]).args(tests))?;
        number_after(&told, "# pass ").context("the tests of sdk/typescript tell no count")
    }

    /// All languages at once, on both databases.
    fn killing(&self, words: &[&str]) -> Result<()> {
        let postgres = Postgres::start(&self.programs)?;
        let mut driver = self.in_python(&tree::root().join("sdk/tests"));
        driver.args(["killing.py", "--db", "sqlite", "--db", &postgres.url]).arg("--node").arg(&self.node);
        shell::run(driver.args(words))
    }

    fn in_python(&self, folder: &Path) -> Command {
        let mut command = shell::command(&self.python.to_string_lossy());
        command.current_dir(folder).env("ONCEWARD_BIN", self.programs.join("onceward"));
        // Neither should end up in the tree.
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("MYPY_CACHE_DIR", tree::root().join(FOLDER).join("mypy"));
        command
    }

    fn in_node(&self, program: &str) -> Command {
        let mut command = shell::command(program);
        command.current_dir(&self.typescript).env("ONCEWARD_BIN", self.programs.join("onceward"));
        command
    }
}

/// The machine's Node, or, where that is too old, one that npm brings.
fn node(root: &Path) -> Result<PathBuf> {
    let version = shell::output(shell::command("node").arg("--version"))?;
    let major = version.trim().trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major >= NODE) {
        return Ok("node".into());
    }
    let folder = root.join(FOLDER).join("node");
    let node = folder.join("node_modules/node/bin/node");
    if !node.exists() {
        std::fs::create_dir_all(&folder)?;
        quiet(shell::command("npm").arg("install").arg("--prefix").arg(&folder).arg(format!("node@{NODE}")))?;
    }
    Ok(node)
}

fn is_older(file: &Path, than: &Path) -> bool {
    let modified = |path: &Path| std::fs::metadata(path).and_then(|found| found.modified()).ok();
    modified(file) < modified(than) || !file.exists()
}

/// The number behind the last of these words at a line's begin.
fn number_after(told: &str, words: &str) -> Option<u64> {
    let rest = told.lines().rev().find_map(|line| line.strip_prefix(words))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::number_after;

    #[test]
    fn counts_are_read_from_what_the_tests_tell() {
        assert_eq!(number_after("....\nRan 31 tests in 4.2s\n\nOK\n", "Ran "), Some(31));
        assert_eq!(number_after("# tests 30\n# pass 29\n# fail 1\n", "# pass "), Some(29));
        assert_eq!(number_after("nothing", "Ran "), None);
    }
}
