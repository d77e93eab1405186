//! Checks that core and draw stay pure: no I/O, no clock, no randomness, no async. For core, clippy also rejects single
//! functions and types (`crates/core/clippy.toml`). This check rejects whole modules, and dependencies that are not on the list.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::rules::rust_file;
use crate::tidy::has_word;
use crate::{shell, tree};

/// Source folders and packages that must be pure.
const PURE_SOURCES: &[&str] = &["crates/core/src/", "crates/draw/src/"];
const PURE_PACKAGES: &[&str] = &["onceward-core", "onceward-draw"];

/// Allowed direct dependencies of a pure package. A new one must bring no I/O, clock or randomness into `decide`.
const ALLOWED_DEPENDENCIES: &[&str] = &[
    "cel",
    "jiff",
    "onceward-core",
    "regex",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
    "toml",
    "unicode-width",
    "uuid",
];

/// Banned even as indirect dependencies.
const BANNED_DEPENDENCIES: &[&str] = &[
    "async-std",
    "fastrand",
    "getrandom",
    "mio",
    "rand",
    "rand_core",
    "reqwest",
    "rusqlite",
    "smol",
    "socket2",
    "tokio",
];

/// Paths that pure code must not name.
const IMPURE_PATHS: &[&str] = &[
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "SystemTime",
    "Instant::now",
    "Timestamp::now",
    "Zoned::now",
    "RandomState",
    "thread_rng",
    "new_v4",
    "now_v7",
    "async fn",
    "async move",
    ".await",
];

/// Exceptions: file, path and reason.
const PURITY_EXCEPTIONS: &[(&str, &str, &str)] = &[(
    "crates/core/src/expr/parse.rs",
    "std::thread",
    "the parser recurses, so it runs on a thread with a stack of known size, which is joined",
)];

pub(crate) fn run() -> Result<()> {
    let metadata = shell::output(shell::command("cargo").current_dir(tree::root()).args([
        "metadata",
        "--format-version=1",
        "--locked",
    ]))?;
    let metadata = serde_json::from_str(&metadata)?;
    let mut problems = Vec::new();
    for package in PURE_PACKAGES {
        problems.extend(disallowed_dependencies(&metadata, package)?);
    }
    let is_pure = |path: &str| PURE_SOURCES.iter().any(|folder| path.starts_with(folder));
    for source in tree::sources(|path| is_pure(path) && tree::has_extension(path, "rs"))? {
        problems.extend(impure_lines(&source.path, &source.text));
    }
    let lib = std::fs::read_to_string(tree::root().join("crates/core/src/lib.rs"))?;
    if !lib.contains("deny(clippy::disallowed_methods, clippy::disallowed_types)") {
        problems.push("crates/core/src/lib.rs no longer denies the lints of crates/core/clippy.toml".into());
    }
    if problems.is_empty() {
        return Ok(());
    }
    bail!("core or draw is not pure:\n  {}", problems.join("\n  "))
}

/// Returns direct dependencies that are not allowed, and banned ones anywhere below `package`.
fn disallowed_dependencies(metadata: &Value, package: &str) -> Result<Vec<String>> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let name_of = |id: &Value| packages.iter().find(|package| package["id"] == *id).and_then(|p| p["name"].as_str());
    let nodes = metadata["resolve"]["nodes"].as_array().context("cargo metadata has no graph")?;
    let normal = |id: &Value| -> Vec<Value> {
        let node = nodes.iter().find(|node| node["id"] == *id);
        let dependencies = node.and_then(|node| node["deps"].as_array()).cloned().unwrap_or_default();
        dependencies
            .into_iter()
            .filter(|dependency| {
                dependency["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
            })
            .map(|dependency| dependency["pkg"].clone())
            .collect()
    };
    let root = packages
        .iter()
        .find(|entry| entry["name"] == package)
        .with_context(|| format!("cargo metadata lists no package {package}"))?;
    let mut wrong = Vec::new();
    for id in normal(&root["id"]) {
        let name = name_of(&id).unwrap_or("?");
        if !ALLOWED_DEPENDENCIES.contains(&name) {
            wrong.push(format!("{package} depends on {name}, which is not in the list of xtask/src/purity.rs"));
        }
    }
    let (mut seen, mut open) = (vec![root["id"].clone()], vec![root["id"].clone()]);
    while let Some(id) = open.pop() {
        for below in normal(&id) {
            if seen.contains(&below) {
                continue;
            }
            let name = name_of(&below).unwrap_or("?");
            if BANNED_DEPENDENCIES.contains(&name) {
                wrong.push(format!("{package} depends on {name} through {}", name_of(&id).unwrap_or("?")));
            }
            seen.push(below.clone());
            open.push(below);
        }
    }
    Ok(wrong)
}

/// Returns lines outside of tests that name an impure path. Splits grouped imports, so it finds `std::{fs, fmt}`, too.
fn impure_lines(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for line in rust_file::code_outside_tests(path, text) {
        let grouped = line.code.trim_start().strip_prefix("use std::{").map(|rest| {
            rest.split([',', '{', '}', ';']).map(|name| format!("std::{}", name.trim())).collect::<Vec<_>>()
        });
        let named = |impure: &str| {
            has_word(line.code, impure)
                || grouped
                    .iter()
                    .flatten()
                    .any(|name| name == impure || name.strip_prefix(impure).is_some_and(|rest| rest.starts_with("::")))
        };
        let excepted = |impure: &str| PURITY_EXCEPTIONS.iter().any(|(file, name, _)| *file == path && impure == *name);
        for impure in IMPURE_PATHS.iter().filter(|impure| named(impure) && !excepted(impure)) {
            wrong.push(format!("{path}:{} names {impure}", line.number));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impure_code_is_reported_outside_tests_only() {
        let text = "use std::{fs, fmt};\n// SystemTime is fine in a comment\nfn f() { std::thread::sleep(d); x.awaiting() }\n\n\
                    #[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        let wrong = impure_lines("crates/core/src/x.rs", text);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].contains("x.rs:1 names std::fs"), "{wrong:?}");
        assert!(wrong[1].contains("x.rs:3 names std::thread"), "{wrong:?}");
    }

    #[test]
    fn unlisted_direct_and_banned_transitive_dependencies_are_reported() -> Result<()> {
        let normal = serde_json::json!([{ "kind": null }]);
        let metadata = serde_json::json!({
            "packages": [
                { "id": "a", "name": "onceward-core" }, { "id": "b", "name": "serde" },
                { "id": "c", "name": "tokio" }, { "id": "d", "name": "chrono" }, { "id": "e", "name": "proptest" },
            ],
            "resolve": { "nodes": [
                { "id": "a", "deps": [
                    { "pkg": "b", "dep_kinds": normal }, { "pkg": "d", "dep_kinds": normal },
                    { "pkg": "e", "dep_kinds": [{ "kind": "dev" }] },
                ] },
                { "id": "b", "deps": [{ "pkg": "c", "dep_kinds": normal }] },
            ] },
        });
        let wrong = disallowed_dependencies(&metadata, "onceward-core")?;
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].contains("chrono") && wrong[1].contains("onceward-core depends on tokio through serde"));
        Ok(())
    }
}
