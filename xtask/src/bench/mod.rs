//! `cargo xtask bench`: measures the cost of an operation in instructions, which are reproducible, and in time, which
//! depends on the machine and never fails the run.

mod callgrind;
mod fanout;
pub(crate) mod jobs;
mod table;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::workers::at_once;
use crate::{packages, programs, shell, tree};
use callgrind::CallgrindProfile;

/// The largest accepted ratio to the recorded count. Counts are exact on one toolchain and differ by a few percent
/// between compilers and C libraries, so 1.5 means that the code changed.
const MAX_INSTRUCTION_RATIO: f64 = 1.5;

const BASELINE_FILE: &str = "assurance/bench/baseline.toml";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchForm {
    /// An optimized build, with times and a profile of the instructions.
    Long,
    /// The gate's own build. Shows that the benchmark works and that no count has exploded.
    Short,
    /// The long form, which then records the counts of both forms in the baseline.
    Record,
}

struct BenchLine {
    name: String,
    profile: CallgrindProfile,
    /// Median and minimum.
    nanos_median_and_min: Option<(f64, f64)>,
}

pub(crate) fn run(form: BenchForm) -> Result<()> {
    packages::have_valgrind()?;
    let mut baseline = read_baseline()?;
    if form != BenchForm::Short {
        let lines = measure_cases("dist", 500, BenchForm::Long)?;
        table::print(&lines);
        let program = binary_path("dist", "fanout")?;
        fanout::print(path_str(&program)?)?;
        fanout::assert_linear_cost(path_str(&program)?)?;
        if form == BenchForm::Record {
            write_baseline(&mut baseline, "dist", &lines)?;
        } else {
            compare_with_baseline(&baseline, "dist", &lines)?;
        }
    }
    if form != BenchForm::Long {
        let lines = measure_cases("dev", 20, BenchForm::Short)?;
        if form == BenchForm::Record {
            write_baseline(&mut baseline, "dev", &lines)?;
        } else {
            compare_with_baseline(&baseline, "dev", &lines)?;
            fanout::assert_linear_cost(path_str(&binary_path("dev", "fanout")?)?)?;
            println!("{} cases counted, none above its limit", lines.len());
        }
    }
    Ok(())
}

fn measure_cases(profile: &str, rounds: u32, form: BenchForm) -> Result<Vec<BenchLine>> {
    if profile == "dev" {
        programs::build(&["hotpath", "fanout"])?;
    } else {
        let mut build = shell::command("cargo");
        build.current_dir(tree::root()).args(["build", "--quiet", "--profile", profile, "--package", "onceward-bench"]);
        shell::run(&mut build)?;
    }
    let program = binary_path(profile, "hotpath")?;
    let mut nanoseconds: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let long = form == BenchForm::Long;
    if long {
        let printed = shell::output(shell::command(path_str(&program)?).args(["time", "100", "3"]))?;
        for line in printed.lines() {
            let [name, median, least] = line.split('\t').collect::<Vec<_>>()[..] else {
                bail!("hotpath should print a name and two times: {line}");
            };
            nanoseconds.insert(name.to_owned(), (median.parse()?, least.parse()?));
        }
    }
    let names = shell::output(shell::command(path_str(&program)?).arg("list"))?;
    // Unoptimized code is slow under callgrind, so the short form skips the cases for comparison.
    let names: Vec<&str> =
        names.lines().filter(|name| long || name.contains("partial") || name.contains("ours")).collect();
    let lines = at_once(&names, |name| {
        let profile = callgrind::count_instructions(path_str(&program)?, name, rounds, long)?;
        Ok(BenchLine { name: (*name).to_owned(), profile, nanos_median_and_min: nanoseconds.get(*name).copied() })
    })?;
    if lines.is_empty() {
        bail!("hotpath has no case");
    }
    Ok(lines)
}

fn binary_path(profile: &str, name: &str) -> Result<PathBuf> {
    let metadata = shell::output(shell::command("cargo").current_dir(tree::root()).args([
        "metadata",
        "--format-version=1",
        "--no-deps",
    ]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
    let target = metadata["target_directory"].as_str().context("cargo names no target directory")?;
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(Path::new(target).join(folder).join(name))
}

fn path_str(program: &Path) -> Result<&str> {
    program.to_str().context("a path in UTF-8")
}

/// Instructions per round, by build profile and case.
type RecordedBaseline = BTreeMap<String, BTreeMap<String, u64>>;

fn read_baseline() -> Result<RecordedBaseline> {
    match std::fs::read_to_string(tree::root().join(BASELINE_FILE)) {
        Ok(text) => toml::from_str(&text).context(BASELINE_FILE),
        Err(_) => Ok(RecordedBaseline::new()),
    }
}

fn compare_with_baseline(baseline: &RecordedBaseline, profile: &str, lines: &[BenchLine]) -> Result<()> {
    let known = baseline.get(profile).with_context(|| format!("{BASELINE_FILE} has no [{profile}]"))?;
    let mut problems = Vec::new();
    for line in lines.iter().filter(|line| !line.name.contains(" in cel")) {
        let count = line.profile.instructions;
        match known.get(&line.name) {
            None => problems.push(format!("`{}` is not recorded", line.name)),
            #[expect(clippy::cast_precision_loss, reason = "counts of thousands")]
            Some(before) if count as f64 > *before as f64 * MAX_INSTRUCTION_RATIO => {
                problems.push(format!("`{}` takes {count} instructions; the recorded count is {before}", line.name));
            }
            Some(_) => {}
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    bail!("{}\nif the change is intended, run `cargo xtask bench --record`", problems.join("\n"))
}

fn write_baseline(baseline: &mut RecordedBaseline, profile: &str, lines: &[BenchLine]) -> Result<()> {
    let counts = lines.iter().filter(|line| !line.name.contains(" in cel"));
    baseline.insert(profile.to_owned(), counts.map(|line| (line.name.clone(), line.profile.instructions)).collect());
    let mut text = String::from(
        "# Instructions a round, by build profile, as `cargo xtask bench --record` counted them. `cargo xtask bench` fails\n\
         # on half as much again; docs/performance.md says what the cases are.\n",
    );
    for (profile, cases) in baseline {
        let _ = write!(text, "\n[{profile}]\n");
        for (name, count) in cases {
            let _ = writeln!(text, "{name:?} = {count}");
        }
    }
    std::fs::write(tree::root().join(BASELINE_FILE), text).with_context(|| format!("cannot write {BASELINE_FILE}"))
}
