//! Measures the effect of delayed jobs on ready ones.

use std::time::Instant;

use onceward_core::time::{Duration, Time};
use onceward_store::Clock;

use crate::bench_database::BenchDatabase;
use crate::engine::{self, JobSteps};
use crate::machine::{BenchRuns, measure_run};
use crate::reports::{BATCH_OPERATIONS, BenchResult, print_headers, print_machine, print_runs, run_round};

/// Measures with many jobs for tomorrow, with none, and with these jobs in the ready table, as before delayed jobs had
/// a table of their own.
pub(crate) fn with_delayed_jobs(bench_db: &BenchDatabase, jobs: usize, job_count: usize) -> BenchResult {
    let runtime = bench_db.runtime()?;
    print_machine(bench_db)?;
    let none = bench_db.new_engine(&runtime, "none")?;
    let tomorrow = Clock::machine().now().checked_add(Duration::from_secs(86_400)).unwrap_or(Time::MAX);
    let databases = [bench_db.new_database("later"), bench_db.new_database("among")];
    for database in &databases {
        let engine = bench_db.engine_at(&runtime, database)?;
        let began = Instant::now();
        let mut remaining = jobs;
        while remaining > 0 {
            let size = remaining.min(BATCH_OPERATIONS);
            runtime.block_on(engine::create_delayed_jobs(&engine, size, tomorrow))?;
            remaining -= size;
        }
        println!("created {jobs} delayed jobs in {:.0} s", began.elapsed().as_secs_f64());
        runtime.block_on(engine.close());
    }
    bench_db.move_delayed_to_ready(&databases[1])?;
    let later = bench_db.engine_at(&runtime, &databases[0])?;
    let among = bench_db.engine_at(&runtime, &databases[1])?;
    let mut runs: [BenchRuns; 3] = Default::default();
    for _ in 0..5 {
        for (engine, runs) in [&none, &later, &among].into_iter().zip(&mut runs) {
            runs.0
                .push(measure_run(bench_db, job_count, || run_round(&runtime, engine, job_count, 2, JobSteps::Three))?);
        }
    }
    print_headers();
    print_runs("no delayed jobs", &runs[0], None);
    print_runs(&format!("{jobs} delayed jobs"), &runs[1], Some(&runs[0]));
    print_runs("the same jobs in the ready table", &runs[2], Some(&runs[0]));
    Ok(())
}
