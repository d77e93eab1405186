//! Runs inputs through a fuzz target. Prints the name of each input first, so that a crash, a hang or a stack overflow
//! names its input. `tests/fuzz_corpus.rs` runs it; run it by hand to reproduce a finding:
//!
//! ```text
//! cargo run -p onceward-testkit --bin fuzz_replay -- TARGET FILE          as it is
//! cargo run -p onceward-testkit --bin fuzz_replay -- TARGET FILE --seed 7 changed as by that seed
//! cargo run -p onceward-testkit --bin fuzz_replay -- TARGET FOLDER --mutations 20
//! ```

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use onceward_testkit::fuzz::{FuzzTarget, mutate_input};

/// Default stack size of a thread. The engine's threads have no more.
const STACK_BYTES: usize = 2 * 1024 * 1024;

/// Maximum additional memory for one input.
const MAX_MEMORY_GROWTH_KB: u64 = 256 * 1024;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (target, path, seeds) = match words.as_slice() {
        [target, path] => (target, path, Vec::new()),
        [target, path, "--seed", seed] => (target, path, vec![seed.parse::<u64>().ok()]),
        [target, path, "--mutations", count] => {
            let Ok(count) = count.parse::<u64>() else { return usage() };
            (target, path, std::iter::once(None).chain((0..count).map(Some)).collect())
        }
        _ => return usage(),
    };
    let Some(target) = FuzzTarget::from_name(target) else { return usage() };
    let seeds = if seeds.is_empty() { vec![None] } else { seeds };
    for file in input_files(Path::new(path)) {
        let input = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for seed in &seeds {
            let seed_words = seed.map_or_else(String::new, |seed| format!(" --seed {seed}"));
            println!("{} {}{seed_words}", target.name(), file.display());
            let _ = std::io::stdout().flush();
            let bytes = seed.map_or_else(|| input.clone(), |seed| mutate_input(&input, seed));
            let before = peak_kb();
            let done = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || target.run(&bytes));
            if done.map(std::thread::JoinHandle::join).is_ok_and(|done| done.is_err()) {
                return ExitCode::FAILURE;
            }
            let growth = peak_kb().saturating_sub(before);
            assert!(growth <= MAX_MEMORY_GROWTH_KB, "the input used {growth} KB of memory");
        }
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    let targets: Vec<_> = FuzzTarget::ALL.map(FuzzTarget::name).into();
    eprintln!("usage: fuzz_replay {} FILE|FOLDER [--seed N | --mutations N]", targets.join("|"));
    ExitCode::FAILURE
}

fn input_files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_path_buf()];
    }
    let entries = std::fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut files: Vec<_> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// Returns the peak memory of this process, or 0 if the system does not report it.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
