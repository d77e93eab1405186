//! Runs many random cases of a theme, each with its own seed.

use std::fmt::Write as _;

use super::lifecycle_generator::{GeneratorOptions, generate_lifecycles};
use super::property::Property;
use super::simulation::{OperationCounts, Simulation, compile_definitions};

/// Totals over all cases of a theme.
#[derive(Clone, Copy, Debug, Default)]
pub struct CasesReport {
    pub cases: u64,
    pub sound_cases: u64,
    pub counts: OperationCounts,
}

impl CasesReport {
    pub fn sound_percent(&self) -> u64 {
        100 * self.sound_cases / self.cases.max(1)
    }

    pub fn changed_percent(&self) -> u64 {
        100 * self.counts.changed / self.counts.operations.max(1)
    }
}

/// Returns the number of cases: `ONCEWARD_CASES` for a long run, or else the default.
pub fn case_count(default_count: u64) -> u64 {
    std::env::var("ONCEWARD_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default_count)
}

/// Returns the seeds of a theme. They are fixed, so that the gate never fails at random. `ONCEWARD_SEED` selects one
/// seed, and `ONCEWARD_BASE` selects others.
pub fn theme_seeds(theme: &str, default_count: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("ONCEWARD_SEED") {
        return vec![seed];
    }
    // FNV-1a, so that the seeds of different themes are far apart.
    let start = theme
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let start = start.wrapping_add(number("ONCEWARD_BASE").unwrap_or(0)) >> 16;
    (0..case_count(default_count)).map(|case| start + case).collect()
}

/// Prints the seed if a test panics within a case.
struct CaseSeedOnPanic<'a> {
    seed: u64,
    files: &'a [(String, String)],
}

impl Drop for CaseSeedOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut text = String::new();
            for (name, file) in self.files {
                let _ = writeln!(text, "# {name}\n{file}");
            }
            eprintln!("{text}\nrepeat with ONCEWARD_SEED={}", self.seed);
        }
    }
}

/// Runs the cases of a theme against its properties. Panics at the first violation, with the seed and the files.
pub fn run_cases(
    theme: &str,
    default_count: u64,
    operations: usize,
    options: GeneratorOptions,
    properties: impl Fn() -> Vec<Box<dyn Property>>,
    mut on_finished: impl FnMut(&Simulation),
) -> CasesReport {
    let mut report = CasesReport::default();
    for seed in theme_seeds(theme, default_count) {
        let files = generate_lifecycles(seed, options);
        let _running = CaseSeedOnPanic { seed, files: &files };
        let (definitions, sound) = compile_definitions(&files);
        let mut simulation = Simulation::new(definitions, sound, seed);
        if let Err(violation) = simulation.run_operations(operations, &mut properties()) {
            panic!("seed {seed}: {}: violated: {}", violation.property, violation.detail);
        }
        on_finished(&simulation);
        report.cases += 1;
        report.sound_cases += u64::from(sound);
        report.counts.operations += simulation.counts.operations;
        report.counts.changed += simulation.counts.changed;
        report.counts.refused += simulation.counts.refused;
        report.counts.no_ops += simulation.counts.no_ops;
        report.counts.endless_timers += simulation.counts.endless_timers;
    }
    println!(
        "{theme}: {} sets of lifecycles, {} % sound; {} operations, {} % applied ({} refused, {} no-ops, {} endless)",
        report.cases,
        report.sound_percent(),
        report.counts.operations,
        report.changed_percent(),
        report.counts.refused,
        report.counts.no_ops,
        report.counts.endless_timers
    );
    report
}
