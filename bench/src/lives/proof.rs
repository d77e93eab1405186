//! How long `verify` takes, and how much memory: for each of its parts.

use std::path::Path;
use std::time::{Duration, Instant};

use onceward_engine::{Report, Watch, verify};
use onceward_store::{Clock, Difference, PostgresView, SqliteView};

use crate::engine::{self, Steps};
use crate::machine;
use crate::place::Place;
use crate::reports::{BATCH, Done, print_machine, round};

/// Whole lives in a database that is kept: a path, or the name of a database on the given server.
pub(crate) fn fill(place: &Place, jobs: usize, database: &str) -> Done {
    let runtime = place.runtime()?;
    let engine = place.engine_at(&runtime, database)?;
    let began = Instant::now();
    round(&runtime, &engine, jobs / BATCH * BATCH, 1, Steps::Three)?;
    runtime.block_on(engine::create(&engine, jobs % BATCH))?;
    runtime.block_on(engine.close());
    println!("{jobs} jobs in {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// The time that each part took.
struct Parts {
    parts: Vec<(&'static str, Duration)>,
    since: Instant,
}

impl Watch for Parts {
    fn progress(&mut self, what: &'static str, _: u64, _: u64) {
        let took = self.since.elapsed();
        self.since = Instant::now();
        match self.parts.iter_mut().find(|(part, _)| *part == what) {
            Some((_, spent)) => *spent += took,
            None => self.parts.push((what, took)),
        }
    }

    fn difference(&mut self, difference: &Difference) {
        println!("{difference}");
    }
}

pub(crate) fn proof(place: &Place, database: &str) -> Done {
    let runtime = place.runtime()?;
    print_machine(place)?;
    let (began, before) = (Instant::now(), machine::processor_seconds()?);
    let mut parts = Parts { parts: Vec::new(), since: began };
    let now = Clock::machine().now();
    let report: Report = runtime.block_on(async {
        if database.contains("://") {
            verify(&PostgresView::open(database).await?, now, &mut parts).await
        } else {
            verify(&SqliteView::open(Path::new(database))?, now, &mut parts).await
        }
    })?;
    let (took, worked) = (began.elapsed().as_secs_f64(), machine::processor_seconds()? - before);
    for (part, spent) in &parts.parts {
        println!("{part:<12} {:>8.1} s", spent.as_secs_f64());
    }
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let rate = report.entries as f64 / took;
    println!(
        "{} records, {} entries in {took:.0} s: {rate:.0} a second, {worked:.0} s of processor; at most {} MB",
        report.records,
        report.entries,
        machine::most_memory()? >> 20
    );
    if report.is_clean() { Ok(()) } else { Err("found wanting".into()) }
}
