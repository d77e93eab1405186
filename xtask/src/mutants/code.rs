//! `cargo xtask mutants --code`: mutates the Rust code of the deciding core with cargo-mutants. A test must catch each
//! mutant.
//!
//! The whole run takes hours; `--shard K/N` runs one of N parts. The gate uses the edits of `xtask/rule_removals.toml`
//! instead.

use anyhow::{Context, Result, bail};

use crate::{shell, tree};

/// Pinned, so that runs are comparable.
const CARGO_MUTANTS_VERSION: &str = "27.1.0";

/// The code that decides transitions.
const DEFAULT_FILES: [&str; 4] = [
    "crates/core/src/decide/**/*.rs",
    "crates/core/src/projection.rs",
    "crates/core/src/expr/eval/**/*.rs",
    "crates/core/src/analysis/**/*.rs",
];

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CodeMutantOptions {
    shard: Option<String>,
    files: Vec<String>,
    list_only: bool,
}

impl CodeMutantOptions {
    pub(crate) fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self { shard: None, files: Vec::new(), list_only: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--list" => options.list_only = true,
                "--shard" => options.shard = Some((*words.next().context("--shard needs K/N")?).to_owned()),
                other if other.starts_with('-') => bail!("mutants --code has no option {other}"),
                file => options.files.push(file.to_owned()),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(options: &CodeMutantOptions) -> Result<()> {
    let program = tree::root().join("target/tools/bin/cargo-mutants");
    if !program.is_file() {
        println!("cargo-mutants is missing; installing it into target/tools (takes a few minutes, once)");
        shell::run(shell::command("cargo").current_dir(tree::root()).args([
            "install",
            "cargo-mutants",
            "--locked",
            "--version",
            CARGO_MUTANTS_VERSION,
            "--root",
            "target/tools",
        ]))?;
    }
    let mut command = shell::command(&program.to_string_lossy());
    command.current_dir(tree::root()).args(["mutants", "--package", "onceward-core"]);
    // The systems' tests catch mutants of the core, too.
    command.args(["--test-workspace=true", "--output", "target/mutants"]);
    let default_files = DEFAULT_FILES.map(str::to_owned);
    let files = if options.files.is_empty() { &default_files[..] } else { &options.files[..] };
    for file in files {
        command.args(["--file", file]);
    }
    if let Some(shard) = &options.shard {
        command.args(["--shard", shard]);
    }
    if options.list_only {
        command.arg("--list");
    }
    shell::run(&mut command).context("no test noticed some mutants; see target/mutants/mutants.out/missed.txt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_parse_and_reject_unknown() -> Result<()> {
        let options = CodeMutantOptions::parse(&["--shard", "0/8", "--list", "crates/core/src/projection.rs"])?;
        assert_eq!(options.shard.as_deref(), Some("0/8"));
        assert!(options.list_only && options.files == ["crates/core/src/projection.rs"]);
        assert!(CodeMutantOptions::parse(&["--what"]).is_err());
        assert!(CodeMutantOptions::parse(&["--shard"]).is_err());
        Ok(())
    }
}
