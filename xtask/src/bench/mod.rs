//! `cargo xtask bench`: what an operation costs, in instructions (which repeat) and in time (which depends on the
//! machine and on who else uses it; no figure of time fails anything).

mod callgrind;
pub(crate) mod lives;
mod spread;
mod table;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::workers::at_once;
use crate::{packages, programs, shell, tree};
use callgrind::Profile;

/// How much more than recorded is too much. Counts repeat to the last digit on one toolchain and differ by some percent
/// between compilers and C libraries; half as much again is a change of the code.
const CEILING: f64 = 1.5;

const BASELINE: &str = "bench/baseline.toml";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Optimised, with nanoseconds and where the instructions go.
    Long,
    /// As the gate has built it anyway: proves that the benchmark works and that no count has run away.
    Short,
    /// The long form, then both forms' counts into the baseline.
    Record,
}

/// One measured case.
struct Line {
    name: String,
    profile: Profile,
    /// Median and least.
    nanoseconds: Option<(f64, f64)>,
}

pub(crate) fn run(form: Form) -> Result<()> {
    packages::have_valgrind()?;
    let mut recorded = recorded()?;
    if form != Form::Short {
        let lines = measured("release", 500, Form::Long)?;
        table::print(&lines);
        let program = binary("release", "spread")?;
        spread::print(path(&program)?)?;
        spread::linear(path(&program)?)?;
        if form == Form::Record {
            record(&mut recorded, "release", &lines)?;
        } else {
            compare(&recorded, "release", &lines)?;
        }
    }
    if form != Form::Long {
        let lines = measured("dev", 20, Form::Short)?;
        if form == Form::Record {
            record(&mut recorded, "dev", &lines)?;
        } else {
            compare(&recorded, "dev", &lines)?;
            spread::linear(path(&binary("dev", "spread")?)?)?;
            println!("{} cases counted, none above its ceiling", lines.len());
        }
    }
    Ok(())
}

fn measured(profile: &str, rounds: u32, form: Form) -> Result<Vec<Line>> {
    if profile == "dev" {
        programs::build(&["hotpath", "spread"])?;
    } else {
        let mut build = shell::command("cargo");
        build.current_dir(tree::root()).args(["build", "--quiet", "--profile", profile, "--package", "onceward-bench"]);
        shell::run(&mut build)?;
    }
    let program = binary(profile, "hotpath")?;
    let mut nanoseconds: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let long = form == Form::Long;
    if long {
        let printed = shell::output(shell::command(path(&program)?).args(["time", "100", "3"]))?;
        for line in printed.lines() {
            let [name, median, least] = line.split('\t').collect::<Vec<_>>()[..] else {
                bail!("hotpath should print a name and two times: {line}");
            };
            nanoseconds.insert(name.to_owned(), (median.parse()?, least.parse()?));
        }
    }
    let names = shell::output(shell::command(path(&program)?).arg("list"))?;
    // Unoptimised code is slow under callgrind: the short form leaves out what only comparisons need.
    let names: Vec<&str> =
        names.lines().filter(|name| long || name.contains("partial") || name.contains("ours")).collect();
    let lines = at_once(&names, |name| {
        let profile = callgrind::count(path(&program)?, name, rounds, long)?;
        Ok(Line { name: (*name).to_owned(), profile, nanoseconds: nanoseconds.get(*name).copied() })
    })?;
    if lines.is_empty() {
        bail!("hotpath knows no case");
    }
    Ok(lines)
}

fn binary(profile: &str, name: &str) -> Result<PathBuf> {
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

fn path(program: &Path) -> Result<&str> {
    program.to_str().context("a path in UTF-8")
}

/// Instructions a round, by build profile and case.
type Recorded = BTreeMap<String, BTreeMap<String, u64>>;

fn recorded() -> Result<Recorded> {
    match std::fs::read_to_string(tree::root().join(BASELINE)) {
        Ok(text) => toml::from_str(&text).context(BASELINE),
        Err(_) => Ok(Recorded::new()),
    }
}

fn compare(recorded: &Recorded, profile: &str, lines: &[Line]) -> Result<()> {
    let known = recorded.get(profile).with_context(|| format!("{BASELINE} has no [{profile}]"))?;
    let mut wrong = Vec::new();
    for line in lines.iter().filter(|line| !line.name.contains(" in cel")) {
        let count = line.profile.instructions;
        match known.get(&line.name) {
            None => wrong.push(format!("`{}` is not recorded", line.name)),
            #[expect(clippy::cast_precision_loss, reason = "counts of thousands")]
            Some(before) if count as f64 > *before as f64 * CEILING => {
                wrong.push(format!("`{}` takes {count} instructions, recorded are {before}", line.name));
            }
            Some(_) => {}
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{}\nif that is meant, run `cargo xtask bench --record`", wrong.join("\n"))
}

fn record(recorded: &mut Recorded, profile: &str, lines: &[Line]) -> Result<()> {
    let counts = lines.iter().filter(|line| !line.name.contains(" in cel"));
    recorded.insert(profile.to_owned(), counts.map(|line| (line.name.clone(), line.profile.instructions)).collect());
    let mut text = String::from(
        "# Instructions a round, by build profile, as `cargo xtask bench --record` counted them. `cargo xtask bench` fails\n\
         # on half as much again; docs/performance.md says what the cases are.\n",
    );
    for (profile, cases) in recorded {
        let _ = write!(text, "\n[{profile}]\n");
        for (name, count) in cases {
            let _ = writeln!(text, "{name:?} = {count}");
        }
    }
    std::fs::write(tree::root().join(BASELINE), text).with_context(|| format!("cannot write {BASELINE}"))
}
