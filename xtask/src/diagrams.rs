//! Generates `docs/diagrams/`: every shipped lifecycle, drawn by `onceward draw`.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};

use crate::{programs, shell, tree};

const DIAGRAMS_DIR: &str = "docs/diagrams";

pub(crate) fn write() -> Result<()> {
    draw_all(false)
}

pub(crate) fn check() -> Result<()> {
    draw_all(true)
}

fn draw_all(only_check: bool) -> Result<()> {
    programs::build(&["onceward"])?;
    let onceward = tree::root().join("target/debug/onceward");
    let mut written = BTreeSet::new();
    for name in lifecycle_names()? {
        let svg = shell::output(shell::command(&onceward.to_string_lossy()).args(["draw", "--svg", &name]))
            .with_context(|| format!("cannot draw {name}"))?;
        let path = format!("{DIAGRAMS_DIR}/{name}.svg");
        tree::generate(&path, &svg, only_check, "cargo xtask diagrams")?;
        written.insert(path);
    }
    for path in tree::paths()?.into_iter().filter(|path| path.starts_with(DIAGRAMS_DIR) && !written.contains(path)) {
        if only_check {
            bail!("{path} shows no shipped lifecycle; run `cargo xtask diagrams` and commit it");
        }
        std::fs::remove_file(tree::root().join(path))?;
    }
    println!("{} diagrams", written.len());
    Ok(())
}

/// Returns the names of the shipped lifecycles, from the files' first keys.
fn lifecycle_names() -> Result<Vec<String>> {
    let files = tree::sources(|path| {
        path.starts_with("systems/") && path.split('/').count() == 3 && tree::has_extension(path, "toml")
    })?;
    let mut names = Vec::new();
    for file in files.iter().filter(|file| !file.path.ends_with("/Cargo.toml")) {
        let table: toml::Table = toml::from_str(&file.text).with_context(|| file.path.clone())?;
        let name = table.get("lifecycle").and_then(toml::Value::as_str);
        names.push(name.with_context(|| format!("{} names no lifecycle", file.path))?.to_owned());
    }
    names.sort();
    Ok(names)
}
