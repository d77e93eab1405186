//! Measures and prints results in process.

use std::error::Error;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::bench_database::BenchDatabase;
use crate::engine::{self, BenchEngine, JobSteps};
use crate::machine::{self, BenchRuns, measure_run};

/// The engine's default `max_batch_operations`.
pub(crate) const BATCH_OPERATIONS: usize = 1_000;

const CONCURRENT_CALLERS: usize = 256;

pub(crate) type BenchResult = Result<(), Box<dyn Error>>;

/// Prints the duration of an fsync on this machine.
pub(crate) fn print_machine(bench_db: &BenchDatabase) -> BenchResult {
    let (median, min) = machine::measure_fsync(&bench_db.dir.file("fsync"))?;
    println!("one fsync takes {:.2} ms (median; minimum {:.2})", to_millis(median), to_millis(min));
    let load = std::fs::read_to_string("/proc/loadavg")?;
    println!("on {}, load {}", bench_db.name(), load.split_whitespace().take(3).collect::<Vec<_>>().join(" "));
    Ok(())
}

pub(crate) fn to_millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(crate) fn print_runs(name: &str, runs: &BenchRuns, baseline: Option<&BenchRuns>) {
    let ratio = baseline.map_or(String::new(), |floor| {
        let work = floor.median_total_cpu_micros() / runs.median_total_cpu_micros();
        format!(
            "{:.2} / {:.2} / {work:.2}",
            runs.median_rate() / floor.median_rate(),
            runs.best_rate() / floor.best_rate()
        )
    });
    let (median, best) = (runs.median_rate(), runs.best_rate());
    println!(
        "{name:<34} {median:>9.0} {best:>9.0} {:>9.1} {:>9.1} {ratio:>20}",
        runs.median_cpu_micros(),
        runs.median_server_cpu_micros()
    );
}

/// Prints the headers: ratios to the baseline by median, by best, and by processor time of both processes.
pub(crate) fn print_headers() {
    println!(
        "{:<34} {:>9} {:>9} {:>9} {:>9} {:>20}",
        "jobs a second", "median", "best", "µs CPU", "µs server", "of baseline"
    );
}

/// Runs the engine's jobs of one round.
pub(crate) fn run_round(
    runtime: &Runtime,
    engine: &BenchEngine,
    job_count: usize,
    drivers: usize,
    steps: JobSteps,
) -> BenchResult {
    runtime.block_on(engine::run_jobs(engine, job_count, BATCH_OPERATIONS, drivers, steps))?;
    Ok(())
}

/// Alternates baseline and engine, so that other load on the machine slows both.
pub(crate) fn against_baseline(bench_db: &BenchDatabase, job_count: usize, rounds: usize) -> BenchResult {
    let runtime = bench_db.runtime()?;
    print_machine(bench_db)?;
    let texts = bench_db.job_log_texts(&runtime)?;
    println!("rows of a job in the baseline, with texts of {} bytes:", texts.iter().map(String::len).sum::<usize>());
    for (part, what) in bench_db.baseline_parts() {
        println!("  {part}: {what}");
    }
    println!("  state counts and the end of the log: 1 to 3 rows per batch");
    let count = i64::try_from(job_count)?;
    let mut baselines = [
        bench_db.new_baseline("floor", &texts, "", 1)?,
        bench_db.new_baseline("pair", &texts, "", bench_db.baseline_connections())?,
        bench_db.new_baseline("writes", &texts, "loads", 1)?,
    ];
    let engines = [
        bench_db.new_engine(&runtime, "one")?,
        bench_db.new_engine(&runtime, "two")?,
        bench_db.new_engine(&runtime, "five")?,
    ];
    let ways = [(1, JobSteps::Three), (2, JobSteps::Three), (2, JobSteps::Five)];
    let mut runs: [BenchRuns; 6] = Default::default();
    for _ in 0..rounds {
        for (floor, runs) in baselines.iter_mut().zip(&mut runs) {
            runs.0.push(measure_run(bench_db, job_count, || floor.run_jobs(count, 1_000))?);
        }
        for ((engine, (drivers, steps)), runs) in engines.iter().zip(ways).zip(&mut runs[3..]) {
            runs.0.push(measure_run(bench_db, job_count, || run_round(&runtime, engine, job_count, drivers, steps))?);
        }
    }
    print_headers();
    let [bare, pair, writes, one, two, five] = &runs;
    print_runs("floor", bare, None);
    if bench_db.baseline_connections() > 1 {
        print_runs("baseline on two connections", pair, Some(bare));
    }
    print_runs("baseline without loads", writes, Some(bare));
    print_runs("engine, one driver", one, Some(bare));
    print_runs("engine, two drivers", two, Some(bare));
    print_runs("engine, two drivers, five steps", five, Some(bare));
    if let Some((statements, trips)) = baselines[0].wire_counts() {
        let batches = u64::try_from(job_count.div_ceil(BATCH_OPERATIONS) * rounds)? * 3;
        println!("the baseline sent {statements} statements in {trips} round trips for {batches} batches");
    }
    for (name, engine) in ["one driver", "two drivers", "five steps"].iter().zip(&engines) {
        let tally = engine.counters();
        println!("{name}: {} operations in {} batches, {} conflicts", tally.operations, tally.batches, tally.conflicts);
    }
    Ok(())
}

pub(crate) fn without_each_part(bench_db: &BenchDatabase, job_count: usize, rounds: usize) -> BenchResult {
    let runtime = bench_db.runtime()?;
    print_machine(bench_db)?;
    let texts = bench_db.job_log_texts(&runtime)?;
    let count = i64::try_from(job_count)?;
    let mut baselines = vec![(bench_db.new_baseline("all", &texts, "", 1)?, BenchRuns::default())];
    for (part, _) in bench_db.baseline_parts() {
        baselines.push((bench_db.new_baseline(part, &texts, part, 1)?, BenchRuns::default()));
    }
    for _ in 0..rounds {
        for (floor, runs) in &mut baselines {
            runs.0.push(measure_run(bench_db, job_count, || floor.run_jobs(count, 1_000))?);
        }
    }
    print_headers();
    let all = &baselines[0].1;
    print_runs("floor", all, None);
    for ((part, _), (_, runs)) in bench_db.baseline_parts().iter().zip(&baselines[1..]) {
        print_runs(&format!("without {part}"), runs, Some(all));
    }
    Ok(())
}

/// Measures callers that submit single operations. The engine's group commit forms the batches.
pub(crate) fn many_callers(bench_db: &BenchDatabase, job_count: usize) -> BenchResult {
    let runtime = bench_db.runtime()?;
    print_machine(bench_db)?;
    let engine = bench_db.new_engine(&runtime, "callers")?;
    let mut runs = BenchRuns::default();
    for _ in 0..5 {
        runs.0.push(measure_run(bench_db, job_count, || {
            Ok(runtime.block_on(engine::run_callers(&engine, CONCURRENT_CALLERS, job_count / CONCURRENT_CALLERS))?)
        })?);
    }
    print_headers();
    print_runs("256 callers", &runs, None);
    let tally = engine.counters();
    println!("{} operations in {} transactions, {} conflicts", tally.operations, tally.batches, tally.conflicts);
    Ok(())
}

/// Measures one job at a time. Each durable step is one transaction with one fsync.
pub(crate) fn one_at_a_time(bench_db: &BenchDatabase, job_count: usize) -> BenchResult {
    let runtime = bench_db.runtime()?;
    print_machine(bench_db)?;
    let engine = bench_db.new_engine(&runtime, "single")?;
    let before = engine.counters();
    let began = Instant::now();
    runtime.block_on(engine::run_callers(&engine, 1, job_count))?;
    let took = began.elapsed() / u32::try_from(job_count * 3)?;
    let after = engine.counters();
    println!("{} jobs: {} transactions, {:.2} ms a step", job_count, after.batches - before.batches, to_millis(took));
    if after.batches - before.batches != u64::try_from(job_count * 3)? {
        return Err("a step did not take exactly one transaction".into());
    }
    Ok(())
}

pub(crate) fn print_times(label: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let percentile = |share: usize| times.get(times.len() * share / 1000).map_or(0.0, |time| to_millis(*time));
    println!(
        "{} jobs: {label} p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms",
        times.len(),
        percentile(500),
        percentile(900),
        percentile(990)
    );
}
