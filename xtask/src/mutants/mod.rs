//! `cargo xtask mutants`: every shipped lifecycle file, broken in every systematic way. The checker, a scenario test or a
//! property must notice each; docs/mutants.md tells who does. `--code` does the same to the Rust code of the core.

pub(crate) mod code;
mod declarations;
mod expression;
mod file;
mod judge;
mod maker;
mod operator;
mod report;
mod rows;
mod survivors;
mod trial;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use self::file::File;
use self::judge::{Judge, Verdict};
use self::maker::Mutant;
use self::operator::Operator;
use self::survivors::Survivors;
use self::trial::{LIMIT, Outcome, PATIENCE, Part, Suite};
use crate::prove::binaries::{self, Binary};
use crate::workers::at_once;
use crate::{shell, tree};

/// Trials at a time.
const WORKERS: usize = 2;
/// Of a hundred mutants, so many must be noticed.
const LEAST: f64 = 95.0;
/// What the gate tries: always the same ones, so that it never fails by chance.
const SAMPLE: usize = 40;
const SEED: u64 = 7;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    short: bool,
    diff: bool,
    system: Option<String>,
    /// Any of these words in its file or name; none wants all.
    find: Vec<String>,
}

impl Options {
    pub(crate) fn short() -> Self {
        Self { short: true, ..Self::default() }
    }

    pub(crate) fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value =
                || words.next().map(|word| (*word).to_owned()).with_context(|| format!("{word} wants a value"));
            match *word {
                "--short" => options.short = true,
                "--diff" => options.diff = true,
                "--system" => options.system = Some(value()?),
                "--find" => options.find.push(value()?),
                other => bail!("mutants knows no {other}"),
            }
        }
        Ok(options)
    }

    fn wants(&self, mutant: &Mutant) -> bool {
        self.system.as_ref().is_none_or(|system| *system == mutant.system)
            && (self.find.is_empty()
                || self.find.iter().any(|text| format!("{} {}", mutant.file, mutant.name).contains(text)))
    }

    fn whole(&self) -> bool {
        !self.short && self.system.is_none() && self.find.is_empty()
    }
}

/// A mutant and who noticed it.
struct Tried {
    mutant: Mutant,
    verdict: Verdict,
    /// What each kind of test made of it.
    scenario: Outcome,
    /// Of the tables, which are played only where no scenario fails.
    table: Outcome,
    property: Outcome,
    typed: Outcome,
}

impl Tried {
    fn counts(&self) -> bool {
        self.verdict != Verdict::Identical
    }

    fn is_refused(&self) -> bool {
        matches!(self.verdict, Verdict::Refused(_))
    }

    fn is_caught(&self) -> bool {
        self.is_caught_without_tables() || self.table.failed()
    }

    fn is_caught_without_tables(&self) -> bool {
        self.is_refused() || self.scenario.failed() || self.property.failed() || self.died()
    }

    /// What may notice it, the warnings and the typed moves apart.
    const fn played(&self) -> [&Outcome; 3] {
        [&self.scenario, &self.table, &self.property]
    }

    /// No test failed, but the tests could not be played to their end.
    fn is_unclear(&self) -> bool {
        let played = self.played();
        !played.iter().any(|outcome| outcome.failed()) && played.iter().any(|outcome| outcome.is_unclear())
    }

    /// The tests died of it, again when it was tried alone.
    fn died(&self) -> bool {
        self.is_unclear() && !self.is_endless()
    }

    /// The tests came to no end, not even alone and with much time. That is no notice: it might be the machine.
    fn is_endless(&self) -> bool {
        self.is_unclear() && self.played().contains(&&Outcome::Endless)
    }

    fn survives(&self) -> bool {
        self.counts() && !self.is_caught()
    }
}

/// Thousands of trials are worth a build that runs faster; `Cargo.toml` has a profile for it. The few of the gate use
/// what the gate has built anyway.
const PROFILE: &str = "mutants";

/// `cargo xtask mutants`, with its words: the long form runs in a faster build of this program.
pub(crate) fn run_words(words: &[&str]) -> Result<()> {
    let options = Options::parse(words)?;
    let folder = tree::root().join("target").join(PROFILE);
    if options.short || std::env::current_exe().is_ok_and(|own| own.starts_with(folder)) {
        return run(&options);
    }
    let mut again = shell::command("cargo");
    again.current_dir(tree::root()).args([
        "run",
        "--quiet",
        "--profile",
        PROFILE,
        "--package",
        "xtask",
        "--",
        "mutants",
    ]);
    shell::run(again.args(words))
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let survivors = Survivors::read()?;
    let mut files = files()?;
    // A system that waits is tried when it is asked for by name.
    files.retain(|file| options.system.as_ref() == Some(&file.system) || !survivors.waiting.contains(&file.system));
    let all: Vec<Mutant> = files.iter().flat_map(maker::mutants).collect();
    if options.system.is_none() {
        survivors.check(&all)?;
    }
    let print = report::fingerprint(&all);
    if options.short {
        report::is_current(&print)?;
    }
    let mut chosen: Vec<Mutant> = all.into_iter().filter(|mutant| options.wants(mutant)).collect();
    if options.short {
        chosen = sample(chosen);
    }
    let tried = try_all(&files, chosen, options)?;
    if options.diff {
        for tried in &tried {
            print!("{}", report::shown(tried, &files));
        }
    }
    let text = report::document(&tried, &files, &survivors, &print);
    if options.whole() {
        tree::generate("docs/mutants.md", &text, false, "cargo xtask mutants")?;
    }
    print!("{}", report::terminal(&tried, &files, &survivors));
    verdict(&tried, &survivors, options)
}

fn verdict(tried: &[Tried], survivors: &Survivors, options: &Options) -> Result<()> {
    let unknown = tried.iter().filter(|tried| tried.survives() && survivors.why(&tried.mutant).is_none()).count();
    if unknown > 0 {
        bail!(
            "{unknown} mutants that nobody notices and nobody explains: test them, or say why in xtask/survivors.toml"
        );
    }
    if let Some(caught) = tried.iter().find(|tried| !tried.survives() && survivors.why(&tried.mutant).is_some()) {
        bail!("xtask/survivors.toml excuses a mutant that is noticed: {} {}", caught.mutant.file, caught.mutant.name);
    }
    let score = report::score(tried.iter());
    if options.whole() && score < LEAST {
        bail!("{score:.1} % noticed: at least {LEAST} % must be");
    }
    Ok(())
}

/// The lifecycle files of all folders of `systems/`.
fn files() -> Result<Vec<File>> {
    let is_lifecycle = |path: &str| {
        let parts: Vec<&str> = path.split('/').collect();
        parts.len() == 3 && parts[0] == "systems" && parts[2] != "Cargo.toml" && tree::has_extension(path, "toml")
    };
    tree::sources(is_lifecycle)?
        .into_iter()
        .map(|source| {
            let system = source.path.split('/').nth(1).unwrap_or_default().to_owned();
            File::read(&system, &source.path, source.text)
        })
        .collect()
}

fn systems(files: &[File]) -> Vec<&str> {
    let mut systems: Vec<&str> = files.iter().map(|file| file.system.as_str()).collect();
    systems.dedup();
    systems
}

/// A few of each operator first, then whatever chance brings; always the same.
fn sample(mut all: Vec<Mutant>) -> Vec<Mutant> {
    let mut state = SEED;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut keyed: Vec<(u64, Mutant)> = all.drain(..).map(|mutant| (draw(), mutant)).collect();
    keyed.sort_by_key(|(key, _)| *key);
    let mut seen = std::collections::BTreeSet::new();
    let (mut first, rest): (Vec<_>, Vec<_>) =
        keyed.into_iter().map(|(_, mutant)| mutant).partition(|mutant| seen.insert(mutant.operator));
    first.extend(rest);
    first.truncate(SAMPLE);
    first
}

fn try_all(files: &[File], mutants: Vec<Mutant>, options: &Options) -> Result<Vec<Tried>> {
    let systems = systems(files);
    let wanted: Vec<&str> =
        systems.iter().copied().filter(|system| mutants.iter().any(|mutant| mutant.system == **system)).collect();
    let target = tree::root().join("target");
    let binaries = build(&wanted, options)?;
    let mut judges = BTreeMap::new();
    for system in wanted {
        let own: Vec<&File> = files.iter().filter(|file| file.system == system).collect();
        judges.insert(system.to_owned(), (Judge::new(&own)?, Suite::of(system, &binaries)));
    }
    let folder = target.join("lifecycle-mutants");
    baseline(&judges, &folder, options)?;
    let (next, count) = (AtomicUsize::new(0), mutants.len());
    let slots: Vec<Mutex<Option<Mutant>>> = mutants.into_iter().map(|mutant| Mutex::new(Some(mutant))).collect();
    let done = Mutex::new(Vec::new());
    let work = |worker: usize| -> Result<()> {
        let folder = folder.join(format!("worker-{worker}"));
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = slots.get(at) else { return Ok(()) };
            let Some(mutant) = slot.lock().map_err(|_| anyhow!("a worker panicked"))?.take() else { continue };
            let (judge, suite) = judges.get(&mutant.system).context("every system has a judge")?;
            let tried = attempt(mutant, (judge, suite), &folder, LIMIT, options)?;
            if tried.survives() && !tried.is_unclear() {
                eprintln!("  survives: {} {}", tried.mutant.file, tried.mutant.name);
            }
            if at % 100 == 99 {
                eprintln!("  {} of {count}", at + 1);
            }
            done.lock().map_err(|_| anyhow!("a worker panicked"))?.push((at, tried));
        }
    };
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..WORKERS).map(|worker| scope.spawn(move || work(worker))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow!("a worker panicked"))?)
    })?;
    let mut done: Vec<(usize, Tried)> = done.into_inner().map_err(|_| anyhow!("a worker panicked"))?;
    done.sort_by_key(|(at, _)| *at);
    // Alone, and with time: what is unclear then is not so because the machine was busy.
    let again = |(_, tried): (usize, Tried)| {
        if !tried.is_unclear() {
            return Ok(tried);
        }
        eprintln!("  again, alone: {} {}", tried.mutant.file, tried.mutant.name);
        let (judge, suite) = judges.get(&tried.mutant.system).context("every system has a judge")?;
        attempt(tried.mutant, (judge, suite), &folder.join("alone"), PATIENCE, options)
    };
    done.into_iter().map(again).collect()
}

/// The tests of these systems: in the gate as it has built them anyway.
fn build(systems: &[&str], options: &Options) -> Result<Vec<Binary>> {
    if options.short {
        let is_test = |path: &&String| systems.iter().any(|name| path.starts_with(&format!("systems/{name}/tests/")));
        let paths = tree::paths()?;
        let tests = paths.iter().filter(is_test).filter(|path| tree::has_extension(path, "rs"));
        return binaries::build_here(&binaries::targets(tests.map(String::as_str)), "dev");
    }
    let packages: Vec<String> = systems.iter().map(|system| format!("onceward-system-{system}")).collect();
    binaries::build_here(&binaries::packages(packages.iter().map(String::as_str)), PROFILE)
}

/// With the files as they stand all must pass, or a failure would say nothing.
fn baseline(judges: &BTreeMap<String, (Judge, Suite)>, folder: &Path, options: &Options) -> Result<()> {
    let nothing = folder.join("nothing");
    std::fs::create_dir_all(&nothing)?;
    let mut parts = vec![Part::Scenarios, Part::Tables, Part::Properties];
    if !options.short {
        parts.push(Part::TypedMoves);
    }
    let systems: Vec<(&String, &Suite)> = judges.iter().map(|(system, (_, suite))| (system, suite)).collect();
    let played = at_once(&systems, |(system, suite)| {
        for part in &parts {
            match suite.noticed(*part, &nothing, PATIENCE)? {
                Outcome::Passed => {}
                outcome => bail!("{system}: with nothing changed its tests do not pass: {outcome:?}"),
            }
        }
        Ok(())
    });
    played.map(drop)
}

fn attempt(
    mutant: Mutant,
    (judge, suite): (&Judge, &Suite),
    folder: &Path,
    limit: Duration,
    options: &Options,
) -> Result<Tried> {
    let verdict = judge.judge(&mutant);
    let mut tried = Tried {
        mutant,
        verdict,
        scenario: Outcome::Passed,
        table: Outcome::Passed,
        property: Outcome::Passed,
        typed: Outcome::Passed,
    };
    if !tried.counts() || tried.is_refused() {
        return Ok(tried);
    }
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    let file = folder.join(tried.mutant.file.trim_start_matches("systems/"));
    std::fs::create_dir_all(file.parent().context("a file stands in a folder")?)?;
    std::fs::write(&file, &tried.mutant.text)?;
    tried.scenario = suite.noticed(Part::Scenarios, folder, limit)?;
    // What goes in a circle for one kind of test does for the others, and takes as long.
    if options.short && tried.scenario.failed() || tried.scenario == Outcome::Endless {
        return Ok(tried);
    }
    if !tried.scenario.failed() {
        tried.table = suite.noticed(Part::Tables, folder, limit)?;
    }
    tried.property = suite.noticed(Part::Properties, folder, limit)?;
    if !options.short {
        tried.typed = suite.noticed(Part::TypedMoves, folder, limit)?;
    }
    Ok(tried)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_unknown_ones_refused() -> Result<()> {
        let options = Options::parse(&["--short", "--system", "image", "--find", "on.fail", "--find", "on.lease"])?;
        assert!(options.short && options.system.as_deref() == Some("image") && options.find == ["on.fail", "on.lease"]);
        assert!(Options::parse(&["--what"]).is_err());
        assert!(Options::parse(&["--system"]).is_err());
        Ok(())
    }

    /// Every operator finds something to break in the shipped files, and no two mutants have one name.
    #[test]
    fn every_operator_is_of_use() -> Result<()> {
        let all: Vec<Mutant> = files()?.iter().flat_map(maker::mutants).collect();
        for operator in Operator::ALL {
            assert!(all.iter().any(|mutant| mutant.operator == operator), "{} breaks nothing", operator.name());
        }
        let names: std::collections::BTreeSet<_> = all.iter().map(|mutant| (&mutant.file, &mutant.name)).collect();
        assert_eq!(names.len(), all.len());
        Ok(())
    }
}
