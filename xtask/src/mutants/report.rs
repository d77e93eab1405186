//! Reports which tests catch which mutants, on the terminal and as docs/generated/mutants.md.

use std::fmt::Write as _;

use anyhow::{Result, bail};

use super::analysis::AnalysisVerdict;
use super::file::LifecycleFile;
use super::generator::LifecycleMutant;
use super::operator::MutationOperator;
use super::survivors::KnownSurvivors;
use super::trial::SuiteOutcome;
use super::{TestedMutant, system_names};
use crate::tree;

const PAGE_INTRODUCTION: &str = "\
<!-- Written by `cargo xtask mutants`; do not edit. -->
# Lifecycle mutants

`cargo xtask mutants` changes every lifecycle file of `systems/` in each systematic way listed below, one change at a time. The page shows which
changes are caught: by the **checker** (`onceward check` rejects the file), by a **scenario test** of the system, or by its **properties**
(invariants under random operations of all kinds of callers).

A mutant whose compiled form equals the original is not counted. Every other mutant is. The reviewed matrix of a system would catch nearly every
change, because it records the file's behavior; so it does not count. Two more columns do not count either: a **warning** of the checker, and
**typed transitions**, the list of allowed transitions that a matrix is compared with. Scenarios, properties and typed transitions each run on
every mutant that the checker accepts, so a mutant can appear in several of these columns.

Some scenario tests enumerate all states, events and callers of a system and compare each with a handwritten **table**. Tables assert rules by
name, so they count. They run only if no other scenario fails. *Tables alone*: caught by a table, but by no other scenario and no property.
*Without tables*: the score without tables. `TABLES` in `xtask/src/mutants/trial.rs` lists them.

If no test fails, but the tests crash or take longer than 40 seconds, the mutant is tested once more, alone, for up to 15 minutes. A second crash
counts as caught. A **timeout** does not: the mutant counts as a survivor.
";

const TABLE_HEADER: &str = "mutants | identical | checker | scenarios | tables alone | properties | properties alone | crashed | timed out | warned | typed transitions | without tables | caught";

struct ReportLine {
    total: usize,
    identical: usize,
    checker: usize,
    scenarios: usize,
    tables: usize,
    properties: usize,
    properties_alone: usize,
    died: usize,
    endless: usize,
    warned: usize,
    typed_transitions: usize,
    survivors: usize,
    score_without_tables: f64,
    score: f64,
}

impl ReportLine {
    fn from_tested(tried: &[&TestedMutant]) -> Self {
        let count = |fits: &dyn Fn(&TestedMutant) -> bool| tried.iter().filter(|tried| fits(tried)).count();
        Self {
            total: tried.len(),
            identical: count(&|tried| !tried.is_real_mutant()),
            checker: count(&TestedMutant::is_refused),
            scenarios: count(&|tried| tried.scenario.is_failed()),
            tables: count(&|tried| tried.is_caught() && !tried.is_caught_without_tables()),
            properties: count(&|tried| tried.property.is_failed()),
            properties_alone: count(&|tried| {
                tried.property.is_failed() && !tried.scenario.is_failed() && !tried.table.is_failed()
            }),
            died: count(&TestedMutant::has_crashed),
            endless: count(&TestedMutant::has_timed_out),
            warned: count(&|tried| matches!(tried.verdict, AnalysisVerdict::Warned(_))),
            typed_transitions: count(&|tried| tried.typed_transitions.is_failed()),
            survivors: count(&TestedMutant::survives),
            score_without_tables: percent_of_real(tried.iter().copied(), TestedMutant::is_caught_without_tables),
            score: caught_percent(tried.iter().copied()),
        }
    }

    fn cells(&self) -> [String; 13] {
        [
            self.total.to_string(),
            self.identical.to_string(),
            self.checker.to_string(),
            self.scenarios.to_string(),
            self.tables.to_string(),
            self.properties.to_string(),
            self.properties_alone.to_string(),
            self.died.to_string(),
            self.endless.to_string(),
            self.warned.to_string(),
            self.typed_transitions.to_string(),
            format!("{:.1} %", self.score_without_tables),
            format!("{:.1} %", self.score),
        ]
    }
}

/// Returns the percentage of real mutants that are caught.
pub(super) fn caught_percent<'a>(tried: impl Iterator<Item = &'a TestedMutant>) -> f64 {
    percent_of_real(tried, TestedMutant::is_caught)
}

fn percent_of_real<'a>(tried: impl Iterator<Item = &'a TestedMutant>, fits: fn(&TestedMutant) -> bool) -> f64 {
    let (mut all, mut caught) = (0_u32, 0_u32);
    for tried in tried.filter(|tried| tried.is_real_mutant()) {
        all += 1;
        caught += u32::from(fits(tried));
    }
    if all == 0 { 100.0 } else { 100.0 * f64::from(caught) / f64::from(all) }
}

/// Returns a hash (FNV-1a) that changes with the files, the operators or the list of mutants.
pub(super) fn fingerprint(mutants: &[LifecycleMutant]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for mutant in mutants {
        for byte in mutant.file.bytes().chain(mutant.name.bytes()).chain(mutant.text.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{} mutants, fingerprint {hash:016x}", mutants.len())
}

/// Fails if docs/generated/mutants.md was written for other files.
pub(super) fn ensure_page_current(fingerprint: &str) -> Result<()> {
    let text = std::fs::read_to_string(tree::root().join("docs/generated/mutants.md")).unwrap_or_default();
    if !text.contains(fingerprint) {
        bail!(
            "docs/generated/mutants.md does not describe the current {fingerprint}; run `cargo xtask mutants` and commit it"
        );
    }
    Ok(())
}

fn lines_by_operator(tried: &[TestedMutant]) -> Vec<(&'static str, ReportLine)> {
    let of = |operator| tried.iter().filter(|tried| tried.mutant.operator == operator).collect::<Vec<_>>();
    let lines =
        MutationOperator::ALL.iter().map(|operator| (operator.label(), ReportLine::from_tested(&of(*operator))));
    lines.filter(|(_, line)| line.total > 0).collect()
}

fn lines_by_system<'f>(tried: &[TestedMutant], files: &'f [LifecycleFile]) -> Vec<(&'f str, ReportLine)> {
    let of = |system: &str| tried.iter().filter(|tried| tried.mutant.system == system).collect::<Vec<_>>();
    let lines = system_names(files).into_iter().map(|system| (system, ReportLine::from_tested(&of(system))));
    lines.filter(|(_, line)| line.total > 0).collect()
}

/// Formats the report for the terminal.
pub(super) fn terminal_report(tried: &[TestedMutant], files: &[LifecycleFile], survivors: &KnownSurvivors) -> String {
    let mut out = String::new();
    for tried in tried.iter().filter(|tried| tried.survives()) {
        let _ = write!(out, "{}", describe_mutant(tried, files));
        let _ = writeln!(
            out,
            "    {}\n",
            survivors.reason(&tried.mutant).unwrap_or("NOT CAUGHT, and xtask/survivors.toml gives no reason")
        );
    }
    let _ = write!(out, "{:<24}", "");
    for name in TABLE_HEADER.split(" | ") {
        let _ = write!(out, "{name:>17}");
    }
    out.push('\n');
    let all: Vec<&TestedMutant> = tried.iter().collect();
    let lines = lines_by_operator(tried)
        .into_iter()
        .chain(lines_by_system(tried, files))
        .chain([("all", ReportLine::from_tested(&all))]);
    for (name, line) in lines {
        let cells = line.cells().map(|cell| format!("{cell:>17}")).concat();
        let _ = writeln!(out, "{name:<24}{cells}");
    }
    let _ = writeln!(
        out,
        "{} survive; {:.1} % caught",
        ReportLine::from_tested(&all).survivors,
        caught_percent(tried.iter())
    );
    out
}

/// Describes a mutant as a diff, with the results of the tests.
pub(super) fn describe_mutant(tried: &TestedMutant, files: &[LifecycleFile]) -> String {
    let mutant = &tried.mutant;
    let mut out = format!("{} · {} · {}\n", mutant.file, mutant.operator.label(), mutant.name);
    let _ = write!(out, "{}", diff_lines(mutant, files));
    let test = |name: &str, outcome: &SuiteOutcome| match outcome {
        SuiteOutcome::Passed => String::new(),
        SuiteOutcome::Failed(test) => format!("{name} {test}"),
        SuiteOutcome::Crashed => format!("{name}: the tests crashed"),
        SuiteOutcome::TimedOut => format!("{name}: timed out, not caught"),
    };
    let verdict_text = match tried.verdict {
        AnalysisVerdict::Identical => "identical".to_owned(),
        AnalysisVerdict::Refused(code) => format!("checker {code}"),
        AnalysisVerdict::Warned(code) => format!("warned {code}"),
        AnalysisVerdict::Sound => String::new(),
    };
    let catchers = [
        verdict_text,
        test("scenario", &tried.scenario),
        test("table", &tried.table),
        test("property", &tried.property),
        test("typed", &tried.typed_transitions),
    ];
    let _ = writeln!(
        out,
        "    caught by: {}",
        catchers.iter().filter(|catcher| !catcher.is_empty()).cloned().collect::<Vec<_>>().join("; ")
    );
    out
}

/// Returns the lines that differ.
fn diff_lines(mutant: &LifecycleMutant, files: &[LifecycleFile]) -> String {
    let Some(file) = files.iter().find(|file| file.path == mutant.file) else { return String::new() };
    let (old, new): (Vec<&str>, Vec<&str>) = (file.text.lines().collect(), mutant.text.lines().collect());
    let same = |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| pairs.take_while(|(old, new)| old == new).count();
    let start = same(&mut old.iter().zip(&new));
    let max_suffix = old.len().min(new.len()) - start;
    let end = same(&mut old.iter().rev().zip(new.iter().rev())).min(max_suffix);
    let mut out = String::new();
    for (sign, lines) in [("-", &old[start..old.len() - end]), ("+", &new[start..new.len() - end])] {
        for line in lines.iter().filter(|line| !line.trim().is_empty()) {
            let _ = writeln!(out, "{sign} {line}");
        }
    }
    out
}

/// Formats docs/generated/mutants.md.
pub(super) fn report_page(
    tried: &[TestedMutant],
    files: &[LifecycleFile],
    survivors: &KnownSurvivors,
    fingerprint: &str,
) -> String {
    let all: Vec<&TestedMutant> = tried.iter().collect();
    let total = ReportLine::from_tested(&all);
    let warned_survivors =
        all.iter().filter(|tried| tried.survives() && matches!(tried.verdict, AnalysisVerdict::Warned(_))).count();
    let mut out = PAGE_INTRODUCTION.to_owned();
    let _ = writeln!(
        out,
        "\n**{:.1} %** of {} mutants are caught ({:.1} % without tables); {} survive. The command fails below 95 %. Of the survivors, {warned_survivors} have a checker warning\n\
         and {} differ in typed transitions; the score counts neither. ({fingerprint})\n",
        total.score,
        total.total - total.identical,
        total.score_without_tables,
        total.survivors,
        all.iter().filter(|tried| tried.survives() && tried.typed_transitions.is_failed()).count(),
    );
    if !survivors.pending_systems.is_empty() {
        let _ = writeln!(
            out,
            "**Not reviewed yet, and not in these figures: {}.**\n",
            survivors.pending_systems.join(", ")
        );
    }
    write_table(
        &mut out,
        "system",
        lines_by_system(tried, files).into_iter().chain([("all", total)]).map(|(name, line)| (name.to_owned(), line)),
    );
    out.push_str("\n## Mutation operators\n");
    let about = |name: &str| {
        MutationOperator::ALL
            .iter()
            .find(|operator| operator.label() == name)
            .map_or("", |operator| operator.description())
    };
    write_table(
        &mut out,
        "operator",
        lines_by_operator(tried)
            .into_iter()
            .map(|(name, line)| (format!("**{name}**: {}", about(name).replace('|', "\\|")), line)),
    );
    out.push_str("\n## Survivors\nNo caller, worker or operator can see a difference. `xtask/survivors.toml` lists the reasons.\n");
    let mut by_reason: Vec<(&str, Vec<&LifecycleMutant>)> = Vec::new();
    for tried in all.iter().filter(|tried| tried.survives()) {
        let why = survivors.reason(&tried.mutant).unwrap_or("Not explained yet.");
        match by_reason.iter_mut().find(|(known, _)| *known == why) {
            Some((_, mutants)) => mutants.push(&tried.mutant),
            None => by_reason.push((why, vec![&tried.mutant])),
        }
    }
    for (why, mutants) in by_reason {
        let _ = writeln!(out, "\n{why}\n");
        for mutant in mutants {
            let _ = writeln!(out, "- `{}` {}", mutant.file, mutant.name);
        }
    }
    out.push_str(
        "\n## Run it\n\
         `cargo xtask mutants` tests all mutants and writes this page. `--system image` and `--find on.fail` (repeatable) select mutants; `--diff` shows\n\
         each change. The gate tests a fixed sample (`--short`). It fails if a sampled mutant survives without a reason in `xtask/survivors.toml`, and if\n\
         this page describes other files. `cargo xtask mutants --code` mutates the Rust code of the core instead.\n",
    );
    out
}

fn write_table(out: &mut String, what: &str, lines: impl Iterator<Item = (String, ReportLine)>) {
    let _ = writeln!(out, "| {what} | {TABLE_HEADER} |\n| --- {}|", "| ---: ".repeat(13));
    for (name, line) in lines {
        let _ = writeln!(out, "| {name} | {} |", line.cells().join(" | "));
    }
}
