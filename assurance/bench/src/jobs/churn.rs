//! Measures the effects of many jobs and of time: a million ready jobs, an old snapshot, a long run.

use std::time::{Duration, Instant};

use crate::bench_database::BenchDatabase;
use crate::engine::{self, JobSteps};
use crate::machine::{self, BenchRuns, measure_run};
use crate::reports::{BATCH_OPERATIONS, BenchResult, print_headers, print_machine, print_runs, run_round};

/// Measures with many ready jobs, with none, and while another connection holds a snapshot open for `seconds`.
pub(crate) fn with_waiting_jobs(bench_db: &BenchDatabase, jobs: usize, job_count: usize, seconds: u64) -> BenchResult {
    let runtime = bench_db.runtime()?;
    print_machine(bench_db)?;
    let none = bench_db.new_engine(&runtime, "none")?;
    run_round(&runtime, &none, BATCH_OPERATIONS * 4, 2, JobSteps::Three)?;
    let memory = machine::memory_bytes()?;
    let database = bench_db.new_database("many");
    let many = bench_db.engine_at(&runtime, &database)?;
    let began = Instant::now();
    let mut remaining = jobs;
    while remaining > 0 {
        let size = remaining.min(BATCH_OPERATIONS);
        runtime.block_on(engine::create_jobs(&many, size))?;
        remaining -= size;
    }
    let memory_growth = machine::memory_bytes()?.saturating_sub(memory);
    println!(
        "created {jobs} jobs in {:.0} s; the process grew by {} MB",
        began.elapsed().as_secs_f64(),
        memory_growth >> 20
    );
    let mut runs: [BenchRuns; 4] = Default::default();
    for _ in 0..5 {
        runs[0].0.push(measure_run(bench_db, job_count, || run_round(&runtime, &none, job_count, 2, JobSteps::Three))?);
        runs[1].0.push(measure_run(bench_db, job_count, || run_round(&runtime, &many, job_count, 2, JobSteps::Three))?);
    }
    let snapshot = bench_db.hold_snapshot(&runtime, &database)?;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        runs[2].0.push(measure_run(bench_db, job_count, || run_round(&runtime, &none, job_count, 2, JobSteps::Three))?);
        runs[3].0.push(measure_run(bench_db, job_count, || run_round(&runtime, &many, job_count, 2, JobSteps::Three))?);
    }
    let sizes = bench_db.table_sizes(&database);
    drop(snapshot);
    run_round(&runtime, &many, BATCH_OPERATIONS * 4, 2, JobSteps::Three)?;
    print_headers();
    let [none, many, none_held, many_held] = &runs;
    print_runs("no ready jobs", none, None);
    print_runs(&format!("{jobs} waiting"), many, Some(none));
    print_runs("no ready jobs, next to the following", none_held, None);
    print_runs(&format!("{jobs} ready, with an open snapshot"), many_held, Some(none_held));
    if let (Some(first), Some(last)) = (many_held.0.first(), many_held.0.last()) {
        let work = |run: &machine::BenchRun| run.cpu_micros + run.server_cpu_micros;
        println!(
            "with the snapshot, {} rounds: {:.0} µs per job in the first, {:.0} in the last",
            many_held.0.len(),
            work(first),
            work(last)
        );
    }
    println!("after {seconds} s with the snapshot:\n{sizes}");
    Ok(())
}

/// Measures a long run part by part, to show whether the throughput holds.
pub(crate) fn sustained(bench_db: &BenchDatabase, seconds: u64) -> BenchResult {
    let runtime = bench_db.runtime()?;
    print_machine(bench_db)?;
    let texts = bench_db.job_log_texts(&runtime)?;
    let mut baseline = bench_db.new_baseline("floor", &texts, "", 1)?;
    let database = bench_db.new_database("minute");
    let engine = bench_db.engine_at(&runtime, &database)?;
    println!("{:>10} {:>12} {:>10} {:>10} {:>10}", "jobs", "engine", "baseline", "ratio", "of CPU");
    let (mut done, mut spent) = (0, Duration::ZERO);
    let part = 50_000;
    while spent < Duration::from_secs(seconds) {
        let began = Instant::now();
        let engine_run = measure_run(bench_db, part, || run_round(&runtime, &engine, part, 2, JobSteps::Three))?;
        spent += began.elapsed();
        let baseline_run = measure_run(bench_db, part, || baseline.run_jobs(50_000, 1_000))?;
        done += part;
        let work = (baseline_run.cpu_micros + baseline_run.server_cpu_micros)
            / (engine_run.cpu_micros + engine_run.server_cpu_micros);
        println!(
            "{done:>10} {:>12.0} {:>10.0} {:>10.2} {work:>10.2}",
            engine_run.jobs_per_second,
            baseline_run.jobs_per_second,
            engine_run.jobs_per_second / baseline_run.jobs_per_second
        );
    }
    println!("{}", bench_db.table_sizes(&database));
    Ok(())
}

/// Prints the size of tables and indexes after each part.
pub(crate) fn table_growth(bench_db: &BenchDatabase, job_count: usize, parts: usize) -> BenchResult {
    let runtime = bench_db.runtime()?;
    print_machine(bench_db)?;
    let database = bench_db.new_database("churn");
    let engine = bench_db.engine_at(&runtime, &database)?;
    let part = job_count / parts.max(1);
    for number in 1..=parts {
        let engine_run = measure_run(bench_db, part, || run_round(&runtime, &engine, part, 2, JobSteps::Three))?;
        let (rate, client, server) = (engine_run.jobs_per_second, engine_run.cpu_micros, engine_run.server_cpu_micros);
        println!(
            "{} jobs, {rate:.0} a second, {client:.1} + {server:.1} µs CPU\n{}",
            number * part,
            bench_db.table_sizes(&database)
        );
    }
    Ok(())
}

/// Prints the server's cost of each statement, for the engine and for the baseline.
pub(crate) fn statement_costs(bench_db: &BenchDatabase, job_count: usize) -> BenchResult {
    let runtime = bench_db.runtime()?;
    let database = bench_db.new_database("engine");
    let engine = bench_db.engine_at(&runtime, &database)?;
    run_round(&runtime, &engine, BATCH_OPERATIONS * 4, 1, JobSteps::Three)?;
    bench_db.reset_statement_stats(&database);
    let before = engine.counters();
    run_round(&runtime, &engine, job_count, 1, JobSteps::Three)?;
    let batches = engine.counters().batches - before.batches;
    println!(
        "the engine, {job_count} jobs in {batches} batches; microseconds per job:\n{}",
        BenchDatabase::statement_costs(&database, job_count)
    );
    let texts = bench_db.job_log_texts(&runtime)?;
    let database = bench_db.new_database("floor");
    let mut baseline = bench_db.baseline_at(&database, &texts, "", 1)?;
    baseline.run_jobs(4_000, 1_000)?;
    bench_db.reset_statement_stats(&database);
    baseline.run_jobs(i64::try_from(job_count)?, 1_000)?;
    println!("the baseline:\n{}", BenchDatabase::statement_costs(&database, job_count));
    Ok(())
}
