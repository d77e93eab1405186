//! `cargo xtask fuzz`: runs libFuzzer on parsers of untrusted input. `--short` only replays the stored corpus with
//! small changes (`crates/testkit/tests/fuzz_corpus.rs`), as the gate does, and needs no libFuzzer.

use anyhow::{Context, Result, bail};

use crate::{shell, tree};

/// Pinned, so that a finding is reproducible with the same tool.
const CARGO_FUZZ_VERSION: &str = "0.13.2";

const FUZZ_TARGETS: [&str; 3] = ["lifecycle_file", "expression", "decide"];

/// A lifecycle file may have 256 KB. Longer inputs would only exercise that limit.
const MAX_INPUT_ARG: &str = "-max_len=300000";
const MEMORY_LIMIT_ARG: &str = "-rss_limit_mb=1024";
/// Seconds for one input, with a reserve for a busy machine.
const INPUT_TIMEOUT_ARG: &str = "-timeout=20";

pub(crate) struct FuzzOptions {
    seconds: u32,
    replay_only: bool,
    target: Option<String>,
}

impl FuzzOptions {
    pub(crate) fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self { seconds: 300, replay_only: false, target: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--short" => options.replay_only = true,
                "--seconds" => {
                    let number = words.next().context("--seconds needs a number")?;
                    options.seconds = number.parse().with_context(|| format!("{number} is not a number of seconds"))?;
                }
                target if FUZZ_TARGETS.contains(&target) => options.target = Some(target.to_owned()),
                other => bail!("{other} is neither an option nor one of {}", FUZZ_TARGETS.join(", ")),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(options: &FuzzOptions) -> Result<()> {
    if options.replay_only {
        return shell::run(shell::command("cargo").current_dir(tree::root()).args([
            "test",
            "--package",
            "onceward-testkit",
            "--test",
            "fuzz_corpus",
        ]));
    }
    if !shell::can_run(shell::command("cargo").args(["fuzz", "--version"])) {
        println!("cargo-fuzz is missing; installing it (takes a few minutes, once)");
        shell::run(shell::command("cargo").args([
            "install",
            "cargo-fuzz",
            "--locked",
            "--version",
            CARGO_FUZZ_VERSION,
        ]))?;
    }
    for target in FUZZ_TARGETS.iter().filter(|target| options.target.as_deref().is_none_or(|only| only == **target)) {
        println!("── {target}, {} s", options.seconds);
        // New inputs go to a working folder. People minimize them and add them to the stored corpus (assurance/fuzz/README.md).
        let working_corpus = tree::root().join("assurance/fuzz/found").join(target);
        std::fs::create_dir_all(&working_corpus)?;
        let mut command = cargo_fuzz_command("run", target);
        command.arg(&working_corpus).arg(tree::root().join("assurance/fuzz/corpus").join(target));
        command.args(["--", MAX_INPUT_ARG, MEMORY_LIMIT_ARG, INPUT_TIMEOUT_ARG, "-print_final_stats=1"]);
        command.arg(format!("-max_total_time={}", options.seconds));
        shell::run(&mut command).with_context(|| format!("{target} failed: see assurance/fuzz/artifacts/{target}"))?;
    }
    Ok(())
}

fn cargo_fuzz_command(verb: &str, target: &str) -> std::process::Command {
    let mut command = shell::command("cargo");
    command
        .current_dir(tree::root().join("assurance/fuzz"))
        // Coverage counters need a nightly flag; this variable makes the stable compiler accept it.
        .env("RUSTC_BOOTSTRAP", "1")
        // The workspace forbids unsafe code, so the address sanitizer would only slow it down.
        .args(["fuzz", verb, "--fuzz-dir", ".", "--sanitizer", "none", target]);
    command
}
