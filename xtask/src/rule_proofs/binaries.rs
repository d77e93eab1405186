//! Builds the workspace's test binaries once and lists their tests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::rules::rust_file::TestFunction;
use crate::{shell, tree};

pub(crate) struct Binary {
    pub(crate) executable: PathBuf,
    /// The folder in which cargo runs the tests.
    pub(crate) package: PathBuf,
    /// The main file, from the root.
    pub(crate) main: String,
    pub(crate) tests: Vec<String>,
}

/// Selects the tests to build.
pub(crate) struct Build<'a> {
    /// The repository or a copy of it.
    pub(crate) root: &'a Path,
    /// The folder for built programs. Everything else goes into one shared folder, so that dependencies are built once.
    pub(crate) programs: &'a Path,
    /// Cargo arguments that select tests.
    pub(crate) what: &'a [String],
    pub(crate) profile: &'a str,
}

/// Builds tests of the repository without running them.
pub(crate) fn build_here(what: &[String], profile: &str) -> Result<Vec<Binary>> {
    let root = tree::root();
    build(&Build { root: &root, programs: &root.join("target"), what, profile })
}

/// Returns the cargo arguments that select these packages.
pub(crate) fn packages<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let words = names.into_iter().flat_map(|name| ["-p", name]);
    ["--tests"].into_iter().chain(words).map(str::to_owned).collect()
}

/// Returns the cargo arguments that select the test binaries of these files. Selects from the whole workspace: cargo
/// enables features by the selected packages, so another selection would rebuild most of the gate's build.
pub(crate) fn targets<'a>(files: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let targets: BTreeSet<String> = files.into_iter().map(target).collect();
    let words = targets.iter().flat_map(|target| target.split(' '));
    ["--workspace"].into_iter().chain(words).map(str::to_owned).collect()
}

/// Returns the cargo target of a file: `crates/core/tests/fold/log.rs` belongs to `--test fold`.
fn target(path: &str) -> String {
    match path.split_once("/tests/") {
        Some((_, rest)) if !path.contains("/src/") => {
            let name = rest.split('/').next().unwrap_or(rest);
            format!("--test {}", name.trim_end_matches(".rs"))
        }
        _ if tree::root().join(path.split("/src/").next().unwrap_or(path)).join("src/lib.rs").exists() => {
            "--lib".into()
        }
        _ => "--bins".into(),
    }
}

pub(crate) fn build(wanted: &Build<'_>) -> Result<Vec<Binary>> {
    // The gate lints its own build, but not a copy with several bodies per function.
    let is_own = wanted.root == tree::root() && wanted.profile == "dev";
    let mut command = if is_own { shell::workspace_cargo() } else { shell::command("cargo") };
    command.current_dir(wanted.root).env("CARGO_TARGET_DIR", wanted.programs);
    command.env("CARGO_BUILD_BUILD_DIR", tree::root().join("target"));
    command
        .args(["test", "--quiet", "--no-run", "--message-format=json", "--profile", wanted.profile])
        .args(wanted.what);
    let artifacts = compile(&mut command)?;
    artifacts
        .iter()
        .filter(|artifact| artifact["profile"]["test"] == true && artifact["executable"].is_string())
        .map(|found| binary(wanted.root, found))
        .collect()
}

/// Runs a cargo command that builds and prints JSON. Returns what it built. An error fails it, and so does a warning if the
/// command lints: cargo repeats the warnings of what is already built.
pub(crate) fn compile(command: &mut Command) -> Result<Vec<Value>> {
    let is_linting = command.get_envs().any(|(name, value)| name == "RUSTC_WORKSPACE_WRAPPER" && value.is_some());
    let (mut artifacts, mut diagnostics, mut warnings) = (Vec::new(), String::new(), 0);
    let succeeded = shell::for_each_line(command, |line| {
        let Ok(message) = serde_json::from_str::<Value>(line) else { return };
        let level = message["message"]["level"].as_str().unwrap_or_default();
        if message["reason"] == "compiler-artifact" {
            artifacts.push(message);
        } else if level == "error" || (is_linting && level == "warning") {
            diagnostics.push_str(message["message"]["rendered"].as_str().unwrap_or_default());
            warnings += usize::from(level == "warning");
        }
    })?;
    if !succeeded {
        bail!("does not compile:\n{diagnostics}");
    }
    if warnings > 0 {
        bail!("rustc and clippy warn:\n{diagnostics}");
    }
    Ok(artifacts)
}

fn binary(root: &Path, artifact: &Value) -> Result<Binary> {
    let path = |value: &Value| value.as_str().map(PathBuf::from).context("cargo gives no path");
    let executable = path(&artifact["executable"])?;
    let package = path(&artifact["manifest_path"])?.parent().context("manifest has a folder")?.to_path_buf();
    let main = path(&artifact["target"]["src_path"])?;
    let main = main.strip_prefix(root).unwrap_or(&main).to_string_lossy().into_owned();
    let listing = shell::output(
        shell::command(&executable.to_string_lossy()).current_dir(&package).args(["--list", "--format=terse"]),
    )?;
    let tests = listing.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect();
    Ok(Binary { executable, package, main, tests })
}

/// Returns the index of the binary that contains a test, and the test's full name.
pub(crate) fn find(binaries: &[Binary], test: &TestFunction) -> Option<(usize, String)> {
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

/// Scores how certainly this name in this binary is the given test; 0 means that it is not.
fn likeness(binary: &Binary, test: &TestFunction, name: &str) -> u8 {
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
            let test = TestFunction { path: path.into(), line: 1, name: "works".into(), rules: Vec::new() };
            super::find(&binaries, &test)
        };
        assert_eq!(find("crates/core/src/decide/fail.rs"), Some((0, "decide::fail::tests::works".into())));
        assert_eq!(find("systems/image/tests/job.rs"), Some((1, "works".into())));
        assert_eq!(find("crates/other/src/lib.rs"), None);
    }

    #[test]
    fn a_test_is_in_the_program_of_its_file() {
        assert_eq!(target("crates/core/tests/fold/log.rs"), "--test fold");
        assert_eq!(target("crates/core/tests/quiet.rs"), "--test quiet");
        assert_eq!(target("crates/core/src/decide/tests/lease.rs"), "--lib");
        assert_eq!(target("crates/onceward/src/main.rs"), "--bins");
    }
}
