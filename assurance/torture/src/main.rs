//! Torture tests: kills real engine processes on real databases, races them against each other, and breaks disks and
//! servers. Afterwards the database must contain everything they acknowledged, once, and nothing they refused.
//!
//! `cargo xtask torture` builds and runs it. The printed seed reproduces all choices except thread scheduling.

mod ack_ledger;
mod client;
mod faults;
mod kills;
mod process;
mod races;
mod relay;
mod requests;
mod verify;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

struct TortureOptions {
    kills: usize,
    races: usize,
    seed: u64,
}

fn main() -> ExitCode {
    match parse_options().and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("torture: FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn parse_options() -> Result<TortureOptions> {
    let mut options = TortureOptions { kills: 1_000, races: 10_000, seed: 75 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} what?"))?;
        match word.as_str() {
            "--kills" => options.kills = value.parse()?,
            "--races" => options.races = value.parse()?,
            "--seed" => options.seed = value.parse()?,
            _ => bail!("torture [--kills N] [--races N] [--seed S]"),
        }
    }
    Ok(options)
}

fn run(options: &TortureOptions) -> Result<()> {
    let TortureOptions { kills, races, seed } = *options;
    println!("seed {seed}");
    faults::run(seed)?;
    // Half of the kills on each database; the odd one on PostgreSQL.
    run_kills("SQLite, 1 process", |count| kills::on_files(kills / 2, seed, count))?;
    run_kills("PostgreSQL, 3 processes", |count| kills::on_server(kills - kills / 2, seed, count))?;
    run_races("SQLite, 16 tasks", || races::on_file(races / 2))?;
    run_races("PostgreSQL, 3 processes of 16 tasks", || races::on_server(races - races / 2))?;
    Ok(())
}

fn run_races(name: &str, race: impl FnOnce() -> Result<races::RaceCounts>) -> Result<()> {
    let began = Instant::now();
    let count = race().with_context(|| name.to_owned())?;
    println!("{name}: {count} ({:.1} s)", began.elapsed().as_secs_f64());
    Ok(())
}

fn run_kills(name: &str, kill: impl FnOnce(&mut kills::KillCounts) -> Result<()>) -> Result<()> {
    let (began, mut count) = (Instant::now(), kills::KillCounts::default());
    let done = kill(&mut count);
    println!("{name}: {count} ({:.1} s)", began.elapsed().as_secs_f64());
    done.with_context(|| format!("{name}, after {} kills", count.kills))
}
