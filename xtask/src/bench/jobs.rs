//! `cargo xtask bench --jobs`: measures job throughput on SQLite, next to a baseline that writes the same rows.
//!
//! Takes about five minutes on a quiet machine. Only a wrong number of transactions fails it: times depend on the load
//! of the machine, so only ratios within one run are comparable.

use anyhow::Result;

use super::{binary_path, path_str};
use crate::{shell, tree};

const JOB_REPORTS: &[(&str, &[&str])] = &[
    ("baseline and engine, alternating", &["beside", "20000", "7"]),
    ("baseline without each of its parts", &["rows", "20000", "5"]),
    ("256 callers, one call at a time each", &["callers", "51200"]),
    ("one job at a time", &["single", "500"]),
    ("a million ready jobs", &["waiting", "1000000", "20000"]),
    ("latency at 100 jobs a second", &["latency", "30"]),
    ("sustained for a minute", &["minute", "60"]),
];

pub(crate) fn run() -> Result<()> {
    let mut build = shell::command("cargo");
    build.current_dir(tree::root());
    shell::run(build.args(["build", "--quiet", "--profile", "dist", "--package", "onceward-bench", "--bin", "jobs"]))?;
    let program = binary_path("dist", "jobs")?;
    for (title, words) in JOB_REPORTS {
        println!("\n# {title}");
        shell::run(shell::command(path_str(&program)?).args(*words))?;
    }
    Ok(())
}
