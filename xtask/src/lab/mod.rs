//! The lab: each failure mode without its guard, with it, and recovered from.

pub(crate) mod guards;
mod server;
mod trial;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::copy::{self, Copy};
use crate::packages;
use crate::prove::binaries::{self, Binary};
use crate::rules::id::RuleId;
use crate::rules::index::Index;
use crate::workers::at_once;
use guards::{Guards, Page, VARIABLE, Without};
use server::Server;
use trial::Trial;

/// The lab's tests, chosen as the gate chooses what it builds.
const TESTS: [&str; 3] = ["--workspace", "--test", "lab"];

/// A folder with files of shipped systems that stand in for those of the repository, read by testkit.
const LIFECYCLES: &str = "ONCEWARD_MUTANT";

pub(crate) fn run(words: &[&str]) -> Result<()> {
    let only = match words {
        [] => None,
        ["--only", rule] => Some(RuleId::parse(rule).context("--only wants an id, as FM-1")?),
        other => bail!("lab knows no {}", other.join(" ")),
    };
    packages::have_postgres()?;
    packages::have_strace()?;
    let guards = Guards::read()?;
    let pages: Vec<&Page> =
        guards.pages.iter().filter(|page| only.as_ref().is_none_or(|id| page.rule == *id)).collect();
    if pages.is_empty() {
        bail!("no such page in {}", guards::FILE);
    }
    let bench = Bench::build(&guards)?;
    let shown = at_once(&pages, |page| {
        let mut wrong = Vec::new();
        Ok((bench.show(page, &mut wrong)?, wrong))
    })?;
    let (shown, wrong): (Vec<Shown>, Vec<Vec<String>>) = shown.into_iter().unzip();
    let wrong = wrong.concat();
    print(&shown);
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("the lab does not show what it should:\n  {}", wrong.join("\n  "))
}

/// The lab's tests on the engine as it is, and on one whose guards can be taken out.
struct Bench<'a> {
    guards: &'a Guards,
    folder: PathBuf,
    whole: Binary,
    guardless: Binary,
    server: Server,
}

/// What a page has shown, for the table.
struct Shown {
    rule: String,
    name: String,
    /// By kind: what the tests say they saw.
    seen: [Vec<String>; 3],
    /// By kind: tests that came out as they should, and tests that there are.
    counts: [(usize, usize); 3],
    /// The same of tests that must fail without their guard.
    missed: (usize, usize),
    took: Duration,
}

impl Shown {
    fn of(page: &Page) -> Self {
        Self {
            rule: page.rule.to_string(),
            name: page.name.clone(),
            seen: [Vec::new(), Vec::new(), Vec::new()],
            counts: [(0, 0); 3],
            missed: (0, 0),
            took: Duration::ZERO,
        }
    }

    /// A test that must pass has ended.
    fn add(&mut self, kind: Kind, trial: &Trial) {
        let (good, all) = &mut self.counts[kind as usize];
        *good += usize::from(trial.passed);
        *all += 1;
        if trial.passed {
            self.seen[kind as usize].extend(trial.seen.clone());
        }
        self.took += trial.took;
    }
}

impl<'a> Bench<'a> {
    fn build(guards: &'a Guards) -> Result<Self> {
        let tests = TESTS.map(str::to_owned);
        let whole = only(binaries::build_here(&tests, "dev")?)?;
        let guardless = only(Copy::of(&Index::gather()?, guards)?.build(&tests)?)?;
        let folder = copy::folder()?;
        let server = Server::find(&whole)?;
        Ok(Self { guards, folder, whole, guardless, server })
    }

    fn trial(&self, binary: &Binary, test: &str, variables: &[(&str, &str)]) -> Result<Trial> {
        let variables = [variables, &[(server::VARIABLE, self.server.url.as_str())]].concat();
        trial::run(binary, test, &variables, &self.folder.join(format!("{}.txt", test.replace("::", "."))))
    }

    /// Everything that a page promises.
    fn show(&self, page: &Page, wrong: &mut Vec<String>) -> Result<Shown> {
        let mut shown = Shown::of(page);
        let tests = self.tests(page, wrong);
        for test in &tests {
            let trial = self.trial(&self.whole, test, &[])?;
            match kind(test) {
                Kind::Damage => {
                    shown.took += trial.took;
                    if trial.passed {
                        wrong.push(format!("{test} passes with every guard in"));
                    }
                }
                kind => {
                    shown.add(kind, &trial);
                    if !trial.passed {
                        wrong.push(format!("{test} fails:\n{}", indented(&trial.printed)));
                    }
                }
            }
        }
        // With every guard in, the copy must be as good as the original, or what fails in it would prove nothing.
        for test in tests.iter().filter(|test| page.without.iter().any(|without| names(&without.fails, test))) {
            let trial = self.trial(&self.guardless, test, &[])?;
            shown.took += trial.took;
            if !trial.passed {
                wrong.push(format!("{test} fails in the copy with every guard in:\n{}", indented(&trial.printed)));
            }
        }
        for without in &page.without {
            let lifecycles = self.lifecycles(page, without)?;
            let guards = without.guards.join(",");
            let mut variables = vec![(VARIABLE, guards.as_str())];
            if let Some(folder) = &lifecycles {
                variables.push((LIFECYCLES, folder));
            }
            for test in tests.iter().filter(|test| names(&without.damage, test)) {
                let trial = self.trial(&self.guardless, test, &variables)?;
                shown.add(Kind::Damage, &trial);
                if !trial.passed {
                    let printed = indented(&trial.printed);
                    wrong.push(format!("without {guards}, {test} finds no damage:\n{printed}"));
                }
            }
            for test in tests.iter().filter(|test| names(&without.fails, test)) {
                let trial = self.trial(&self.guardless, test, &variables)?;
                shown.took += trial.took;
                shown.missed.0 += usize::from(!trial.passed);
                shown.missed.1 += 1;
                if trial.passed {
                    wrong.push(format!("without {guards}, {test} passes all the same"));
                }
            }
        }
        Ok(shown)
    }

    /// The page's tests by their full names. What the page names must be there, and what is there must be named.
    fn tests(&self, page: &Page, wrong: &mut Vec<String>) -> Vec<String> {
        let own = format!("{}::", page.folder);
        let tests: Vec<String> = self.whole.tests.iter().filter(|test| test.starts_with(&own)).cloned().collect();
        let named: Vec<&String> =
            page.without.iter().flat_map(|without| without.damage.iter().chain(&without.fails)).collect();
        for name in &named {
            if !tests.iter().any(|test| last(test) == name.as_str()) {
                wrong.push(format!("{} names `{name}`, which {} has not", guards::FILE, page.folder));
            }
        }
        for test in tests.iter().filter(|test| kind(test) != Kind::Recovered) {
            if !named.iter().any(|name| last(test) == name.as_str()) {
                wrong.push(format!("{} does not name {test}: nobody knows what it shows", guards::FILE));
            }
        }
        tests
    }

    /// A folder with the lifecycle files that these guards were taken out of, where they live in such files.
    fn lifecycles(&self, page: &Page, without: &Without) -> Result<Option<String>> {
        let changed = self.guards.lifecycles(&without.guards)?;
        if changed.is_empty() {
            return Ok(None);
        }
        let folder = self.folder.join(&page.folder).join(without.guards.join("-").replace(' ', "_"));
        for (name, text) in changed {
            let file = folder.join(name);
            std::fs::create_dir_all(file.parent().unwrap_or(&folder))?;
            std::fs::write(file, text)?;
        }
        Ok(Some(folder.to_string_lossy().into_owned()))
    }
}

fn only(binaries: Vec<Binary>) -> Result<Binary> {
    binaries.into_iter().find(|binary| Path::new(&binary.main).ends_with("lab/lab.rs")).context("the lab has no tests")
}

/// What a test shows, by its name; also the number of its column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Damage,
    Prevented,
    Recovered,
}

fn kind(test: &str) -> Kind {
    match last(test).split('_').next() {
        Some("damage") => Kind::Damage,
        Some("recovered") => Kind::Recovered,
        _ => Kind::Prevented,
    }
}

fn last(test: &str) -> &str {
    test.rsplit("::").next().unwrap_or(test)
}

fn names(list: &[String], test: &str) -> bool {
    list.iter().any(|name| last(test) == name)
}

fn indented(printed: &str) -> String {
    let lines = printed.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| format!("      {line}")).collect::<Vec<_>>().join("\n")
}

/// What was seen, then the table.
fn print(shown: &[Shown]) {
    for page in shown {
        println!("{} {}", page.rule, page.name);
        for (name, seen) in ["without its guard", "with it", "recovered"].iter().zip(&page.seen) {
            for (number, line) in seen.iter().enumerate() {
                println!("  {:<18} {line}", if number == 0 { name } else { "" });
            }
        }
    }
    println!(
        "\n| | failure mode | damage without its guard | prevented with it | missed without it | recovered | time |"
    );
    println!("| --- | --- | --- | --- | --- | --- | ---: |");
    for page in shown {
        let [damage, prevented, recovered] = page.counts.map(counted);
        let (missed, seconds) = (counted(page.missed), page.took.as_secs_f64());
        let Shown { rule, name, .. } = page;
        println!("| {rule} | {name} | {damage} | {prevented} | {missed} | {recovered} | {seconds:.1} s |");
    }
}

fn counted((good, all): (usize, usize)) -> String {
    if all == 0 { "-".to_owned() } else { format!("{good} of {all}") }
}
