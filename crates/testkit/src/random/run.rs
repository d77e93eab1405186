//! Many cases of one theme, each from its own seed.

use std::fmt::Write as _;

use super::lifecycle::{Taste, lifecycles};
use super::play::{Play, Tally, definitions};
use super::property::Property;

/// What came of all cases of a theme.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub cases: u64,
    pub sound: u64,
    pub tally: Tally,
}

impl Report {
    pub fn sound_percent(&self) -> u64 {
        100 * self.sound / self.cases.max(1)
    }

    pub fn taken_percent(&self) -> u64 {
        100 * self.tally.taken / self.tally.operations.max(1)
    }
}

/// How many cases to play: as many as the test says, or as `ONCEWARD_CASES` does for a long run.
pub fn cases(usual: u64) -> u64 {
    std::env::var("ONCEWARD_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// The seeds of a theme: always the same, so that the gate never fails by chance; one alone with `ONCEWARD_SEED`, others
/// with `ONCEWARD_BASE`.
pub fn seeds(theme: &str, usual: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("ONCEWARD_SEED") {
        return vec![seed];
    }
    // FNV-1a: themes start far from each other.
    let start = theme
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let start = start.wrapping_add(number("ONCEWARD_BASE").unwrap_or(0)) >> 16;
    (0..cases(usual)).map(|case| start + case).collect()
}

/// Says which seed it was when a test dies in the middle of a case.
struct Running<'a> {
    seed: u64,
    files: &'a [(String, String)],
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut text = String::new();
            for (name, file) in self.files {
                let _ = writeln!(text, "# {name}\n{file}");
            }
            eprintln!("{text}\nplay it again with ONCEWARD_SEED={}", self.seed);
        }
    }
}

/// Play the cases of a theme against its properties. Panics at the first that is broken, with the seed and the files.
pub fn run(
    theme: &str,
    usual: u64,
    operations: usize,
    taste: Taste,
    properties: impl Fn() -> Vec<Box<dyn Property>>,
    mut finished: impl FnMut(&Play),
) -> Report {
    let mut report = Report::default();
    for seed in seeds(theme, usual) {
        let files = lifecycles(seed, taste);
        let _running = Running { seed, files: &files };
        let (definitions, sound) = definitions(&files);
        let mut play = Play::new(definitions, sound, seed);
        if let Err(broken) = play.play(operations, &mut properties()) {
            panic!("seed {seed}: {} — broken: {}", broken.property, broken.detail);
        }
        finished(&play);
        report.cases += 1;
        report.sound += u64::from(sound);
        report.tally.operations += play.tally.operations;
        report.tally.taken += play.tally.taken;
        report.tally.refused += play.tally.refused;
        report.tally.no_ops += play.tally.no_ops;
        report.tally.endless += play.tally.endless;
    }
    println!(
        "{theme}: {} sets of lifecycles, {} % sound; {} operations, {} % taken ({} refused, {} without change, {} endless)",
        report.cases,
        report.sound_percent(),
        report.tally.operations,
        report.taken_percent(),
        report.tally.refused,
        report.tally.no_ops,
        report.tally.endless
    );
    report
}
