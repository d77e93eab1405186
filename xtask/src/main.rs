//! The project's own commands, such as the gate and the generators: one module per command.

mod bench;
mod contract;
mod copy;
mod deny;
mod fuzz;
mod lab;
mod mutants;
mod packages;
mod pictures;
mod postgres;
mod programs;
mod prove;
mod purity;
mod rules;
mod sdk;
mod shell;
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

  test                 the gate: all tests, and the short form of everything below
  nightly              the long forms: torture, mutants, fuzzing, simulation, contract, benchmark; hours
  tidy                 file lengths, leftovers, links of the documentation
  purity               core does no I/O, reads no clock, draws no lots
  deny                 dependencies: bans, licenses, sources; records for which Cargo.lock it passed
  rules [--check]      write docs/rules.md; --check: fail if it is stale
  rules --prove [--rows | --code] [--sample N] [--seed N] [--only ID]
                       take away each row and each piece of code that cites a rule, and expect a test of it to fail
  bench [--short | --record]
                       what an operation costs; --short: as in the gate; --record: write bench/baseline.toml
  bench --lives        whole job lives a second on SQLite, beside a floor; minutes
  torture [--short] [--kills N] [--races N] [--seed N]
                       real engine processes killed at random moments, raced, and given broken disks and servers, on both
                       databases: 1,000 kills and 10,000 races; --short: 50 and 500, as in the gate
  sdk [--seed N] [--jobs N] [--kills N]
                       the worker libraries for Python and TypeScript: types, tests against the real server, and the server
                       killed under workers of all languages, on both databases
  contract [--seed N] [--examples N]
                       Schemathesis against the real server on both databases: no server error, no answer outside the contract
  lab [--only FM-1]    every failure mode: the damage without its guard, prevented with it, recovered
  fuzz [--seconds N] [--short] [TARGET]
                       libFuzzer on files, expressions and operations; --short: the kept corpus, as in the gate
  mutants [--short] [--system NAME] [--find TEXT] [--diff]
                       break each shipped lifecycle file in every systematic way, say who notices, write docs/mutants.md;
                       --short: a sample, as in the gate; --find: those whose name has the text; --diff: show each
  mutants --code [--shard K/N] [--list] [FILE]
                       change the core's Rust code in small ways and expect a test to notice each; hours
  pictures [--check]   write docs/pictures/; --check: fail if one is stale
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
        ["purity"] => purity::run(),
        ["deny"] => deny::run(),
        ["rules"] => rules::write(),
        ["rules", "--check"] => rules::check(),
        ["rules", "--prove", options @ ..] => prove::run(&prove::ProofOptions::parse(options)?),
        ["bench"] => bench::run(bench::BenchForm::Long),
        ["bench", "--short"] => bench::run(bench::BenchForm::Short),
        ["bench", "--record"] => bench::run(bench::BenchForm::Record),
        ["bench", "--lives"] => bench::jobs::run(),
        ["lab", words @ ..] => lab::run(words),
        ["torture", words @ ..] => torture::run(words),
        ["sdk", words @ ..] => sdk::run(words),
        ["contract", words @ ..] => contract::run(words),
        ["fuzz", options @ ..] => fuzz::run(&fuzz::FuzzOptions::parse(options)?),
        ["mutants", "--code", options @ ..] => mutants::code::run(&mutants::code::CodeMutantOptions::parse(options)?),
        ["mutants", words @ ..] => mutants::run_with_args(words),
        ["pictures"] => pictures::write(),
        ["pictures", "--check"] => pictures::check(),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        other => bail!("no such command: {}\n\n{HELP}", other.join(" ")),
    }
}
