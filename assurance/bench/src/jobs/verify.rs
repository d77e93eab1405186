//! Measures the time and memory of `verify`, phase by phase.

use std::path::Path;
use std::time::{Duration, Instant};

use onceward_engine::{ProgressObserver, VerifyReport, verify};
use onceward_store::{Clock, PostgresScanner, SqliteScanner, TableDifference};

use crate::bench_database::BenchDatabase;
use crate::engine::{self, JobSteps};
use crate::machine;
use crate::reports::{BATCH_OPERATIONS, BenchResult, print_machine, run_round};

/// Runs jobs in a database that is kept: a path, or a database name on the given server.
pub(crate) fn fill(bench_db: &BenchDatabase, jobs: usize, database: &str) -> BenchResult {
    let runtime = bench_db.runtime()?;
    let engine = bench_db.engine_at(&runtime, database)?;
    let began = Instant::now();
    run_round(&runtime, &engine, jobs / BATCH_OPERATIONS * BATCH_OPERATIONS, 1, JobSteps::Three)?;
    runtime.block_on(engine::create_jobs(&engine, jobs % BATCH_OPERATIONS))?;
    runtime.block_on(engine.close());
    println!("{jobs} jobs in {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// The duration of each phase.
struct PhaseTimes {
    phases: Vec<(&'static str, Duration)>,
    phase_started: Instant,
}

impl ProgressObserver for PhaseTimes {
    fn on_progress(&mut self, what: &'static str, _: u64, _: u64) {
        let took = self.phase_started.elapsed();
        self.phase_started = Instant::now();
        match self.phases.iter_mut().find(|(part, _)| *part == what) {
            Some((_, spent)) => *spent += took,
            None => self.phases.push((what, took)),
        }
    }

    fn on_difference(&mut self, difference: &TableDifference) {
        println!("{difference}");
    }
}

pub(crate) fn measure_verify(bench_db: &BenchDatabase, database: &str) -> BenchResult {
    let runtime = bench_db.runtime()?;
    print_machine(bench_db)?;
    let (began, before) = (Instant::now(), machine::process_cpu_seconds()?);
    let mut phase_times = PhaseTimes { phases: Vec::new(), phase_started: began };
    let now = Clock::machine().now();
    let report: VerifyReport = runtime.block_on(async {
        if database.contains("://") {
            verify(&PostgresScanner::open(database).await?, now, &mut phase_times).await
        } else {
            verify(&SqliteScanner::open(Path::new(database))?, now, &mut phase_times).await
        }
    })?;
    let (took, worked) = (began.elapsed().as_secs_f64(), machine::process_cpu_seconds()? - before);
    for (part, spent) in &phase_times.phases {
        println!("{part:<12} {:>8.1} s", spent.as_secs_f64());
    }
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let rate = report.entries as f64 / took;
    println!(
        "{} records, {} entries in {took:.0} s: {rate:.0} a second, {worked:.0} s of processor; at most {} MB",
        report.records,
        report.entries,
        machine::peak_memory_bytes()? >> 20
    );
    if report.is_clean() { Ok(()) } else { Err("differences found".into()) }
}
