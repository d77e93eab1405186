//! The project's own commands, such as the gate and the generators: one module per command.

mod bench;
mod contract;
mod copy;
mod deny;
mod diagrams;
mod errors;
mod fuzz;
mod lab;
mod mutants;
mod packages;
mod postgres;
mod programs;
mod purity;
mod rule_proofs;
mod rules;
mod sdk;
mod shell;
mod steps;
mod suite;
mod test;
mod tidy;
mod torture;
mod tree;
mod workers;

use std::process::ExitCode;

use anyhow::{Result, bail};

const HELP: &str = "\
cargo xtask COMMAND

  test                 run the gate: all tests, and the short form of every check below
  nightly              run the long forms: torture, mutants, fuzzing, simulation, contract, benchmark; hours
  tidy                 check file lengths, leftovers, links, names, wording and commit subjects
  purity               check that core and draw use no I/O, no clock and no randomness
  deny                 check dependencies: bans, licenses, sources; records the Cargo.lock that passed
  docs                 build the API documentation; a warning fails it
  errors [--check]     generate docs/errors/ from docs/errors/errors.toml; --check: fail if a page is stale
  diagrams [--check]   generate docs/diagrams/; --check: fail if a diagram is stale
  rules [--check]      generate docs/generated/rules.md; --check: fail if it is stale
  rules --prove [--transitions | --code] [--sample N] [--seed N] [--only ID]
                       remove each transition and each piece of code that cites a rule, and expect a test of the rule to fail
  rules --prove --build
                       only build the copy of the repository in which proofs and the lab run
  bench [--short | --record]
                       count the instructions of an operation; --short: as in the gate; --record: write
                       assurance/bench/baseline.toml
  bench --jobs         measure job throughput on SQLite next to a baseline; minutes
  torture [--short] [--kills N] [--races N] [--seed N]
                       kill real engine processes at random moments, race them, and break their disks and servers, on both
                       databases: 1,000 kills and 10,000 races; --short: 50 and 500, as in the gate
  sdk [--seed N] [--jobs N] [--kills N]
                       check the Python and TypeScript worker libraries: types, tests against the real server, and server
                       kills under workers of all languages, on both databases
  contract [--seed N] [--examples N]
                       run Schemathesis against the real server on both databases: no server error, no answer outside the
                       contract
  lab [--only FM-1]    show each failure mode: the damage without its safeguard, the prevention with it, the recovery
  fuzz [--seconds N] [--short] [TARGET]
                       run libFuzzer on files, expressions and operations; --short: replay the stored corpus
  mutants [--short] [--system NAME] [--find TEXT] [--diff]
                       change each shipped lifecycle file in every systematic way, report which test notices, and generate
                       docs/generated/mutants.md; --short: a sample, as in the gate; --find: mutants whose name contains the
                       text; --diff: show each change
  mutants --code [--shard K/N] [--list] [FILE]
                       change the core's Rust code in small ways and expect a test to notice each; hours
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["test"] => test::run(),
        ["nightly"] => test::nightly(),
        ["tidy"] => tidy::run(),
        ["docs"] => test::document(),
        ["purity"] => purity::run(),
        ["deny"] => deny::run(),
        ["errors"] => errors::write(),
        ["errors", "--check"] => errors::check(),
        ["rules"] => rules::write(),
        ["rules", "--check"] => rules::check(),
        ["rules", "--prove", "--build"] => rule_proofs::build_copy(),
        ["rules", "--prove", options @ ..] => rule_proofs::run(&rule_proofs::ProofOptions::parse(options)?),
        ["bench"] => bench::run(bench::BenchForm::Long),
        ["bench", "--short"] => bench::run(bench::BenchForm::Short),
        ["bench", "--record"] => bench::run(bench::BenchForm::Record),
        ["bench", "--jobs"] => bench::jobs::run(),
        ["lab", words @ ..] => lab::run(words),
        ["torture", words @ ..] => torture::run(words),
        ["sdk", words @ ..] => sdk::run(words),
        ["contract", words @ ..] => contract::run(words),
        ["fuzz", options @ ..] => fuzz::run(&fuzz::FuzzOptions::parse(options)?),
        ["mutants", "--code", options @ ..] => mutants::code::run(&mutants::code::CodeMutantOptions::parse(options)?),
        ["mutants", words @ ..] => mutants::run_with_args(words),
        ["diagrams"] => diagrams::write(),
        ["diagrams", "--check"] => diagrams::check(),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        other => bail!("no such command: {}\n\n{HELP}", other.join(" ")),
    }
}
