//! The workspace's test binaries, built once, and the tests inside each.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::rules::rust_file::Test;
use crate::shell;

pub(crate) struct Binary {
    pub(crate) executable: PathBuf,
    /// The folder that cargo runs its tests in.
    pub(crate) package: PathBuf,
    /// Its main file, from the root.
    pub(crate) main: String,
    pub(crate) tests: Vec<String>,
}

/// Builds the tests of these packages (or of all) without running them.
pub(crate) fn build(root: &Path, target: &Path, packages: &[String]) -> Result<Vec<Binary>> {
    build_as(root, target, packages, "dev")
}

/// The same by a profile of the workspace.
pub(crate) fn build_as(root: &Path, target: &Path, packages: &[String], profile: &str) -> Result<Vec<Binary>> {
    let mut command = shell::command("cargo");
    command.current_dir(root).env("CARGO_TARGET_DIR", target);
    command.args(["test", "--quiet", "--no-run", "--tests", "--message-format=json"]);
    command.args(["--profile", profile]);
    if packages.is_empty() {
        command.arg("--workspace");
    }
    for package in packages {
        command.args(["-p", package]);
    }
    let mut artifacts: Vec<Value> = Vec::new();
    let mut errors = String::new();
    let built = shell::lines(&mut command, |line| {
        let Ok(message) = serde_json::from_str::<Value>(line) else { return };
        if message["reason"] == "compiler-artifact" && message["profile"]["test"] == true {
            artifacts.push(message);
        } else if message["message"]["level"] == "error" {
            errors.push_str(message["message"]["rendered"].as_str().unwrap_or_default());
        }
    })?;
    if !built {
        bail!("does not compile:\n{errors}");
    }
    artifacts.iter().filter(|artifact| artifact["executable"].is_string()).map(|found| binary(root, found)).collect()
}

fn binary(root: &Path, artifact: &Value) -> Result<Binary> {
    let path = |value: &Value| value.as_str().map(PathBuf::from).context("cargo names no path");
    let executable = path(&artifact["executable"])?;
    let package = path(&artifact["manifest_path"])?.parent().context("a manifest stands in a folder")?.to_path_buf();
    let main = path(&artifact["target"]["src_path"])?;
    let main = main.strip_prefix(root).unwrap_or(&main).to_string_lossy().into_owned();
    let listing = shell::output(
        shell::command(&executable.to_string_lossy()).current_dir(&package).args(["--list", "--format=terse"]),
    )?;
    let tests = listing.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect();
    Ok(Binary { executable, package, main, tests })
}

/// The binary that holds a test, and the test's full name there.
pub(crate) fn find(binaries: &[Binary], test: &Test) -> Option<(usize, String)> {
    let mut best: Option<(u8, usize, String)> = None;
    for (at, binary) in binaries.iter().enumerate() {
        for name in binary.tests.iter().filter(|name| name.rsplit("::").next() == Some(&test.name)) {
            let score = likeness(binary, test, name);
            if score > best.as_ref().map_or(0, |best| best.0) {
                best = Some((score, at, name.clone()));
            }
        }
    }
    best.map(|(_, at, name)| (at, name))
}

/// How surely this name in this binary is the test of that file; 0: it is not.
fn likeness(binary: &Binary, test: &Test, name: &str) -> u8 {
    if binary.main == test.path {
        return 3;
    }
    let folder = Path::new(&binary.main).parent().unwrap_or(Path::new(""));
    let Ok(module) = Path::new(&test.path).strip_prefix(folder) else { return 0 };
    let module = module.with_extension("").to_string_lossy().replace('/', "::");
    let module = module.trim_end_matches("::mod");
    if name.starts_with(&format!("{module}::")) {
        return 2;
    }
    let last = module.rsplit("::").next().unwrap_or(module);
    u8::from(name.split("::").any(|part| part == last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_found_by_its_file_and_name() {
        let binary = |main: &str, tests: &[&str]| Binary {
            executable: PathBuf::new(),
            package: PathBuf::new(),
            main: main.into(),
            tests: tests.iter().map(|name| (*name).to_owned()).collect(),
        };
        let binaries = [
            binary("crates/core/src/lib.rs", &["decide::lease::tests::works", "decide::fail::tests::works"]),
            binary("systems/image/tests/job.rs", &["works"]),
        ];
        let find = |path: &str| {
            let test = Test { path: path.into(), line: 1, name: "works".into(), rules: Vec::new() };
            super::find(&binaries, &test)
        };
        assert_eq!(find("crates/core/src/decide/fail.rs"), Some((0, "decide::fail::tests::works".into())));
        assert_eq!(find("systems/image/tests/job.rs"), Some((1, "works".into())));
        assert_eq!(find("crates/other/src/lib.rs"), None);
    }
}
