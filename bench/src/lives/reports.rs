//! What is measured and printed.

use std::error::Error;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::engine::{self, Lives, Steps};
use crate::machine::{self, Runs, run};
use crate::place::Place;

/// Operations in a batch: the engine's own most.
pub(crate) const BATCH: usize = 1_000;

const CALLERS: usize = 256;

pub(crate) type Done = Result<(), Box<dyn Error>>;

/// What the machine is like just now.
pub(crate) fn print_machine(place: &Place) -> Done {
    let (median, least) = machine::fsync(&place.folder.file("fsync"))?;
    println!("a bare fsync here takes {:.2} ms (median; least {:.2})", millis(median), millis(least));
    let load = std::fs::read_to_string("/proc/loadavg")?;
    println!("on {}, load {}", place.name(), load.split_whitespace().take(3).collect::<Vec<_>>().join(" "));
    Ok(())
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(crate) fn print_runs(name: &str, runs: &Runs, floor: Option<&Runs>) {
    let ratio = floor.map_or(String::new(), |floor| {
        let work = floor.work() / runs.work();
        format!("{:.2} / {:.2} / {work:.2}", runs.median() / floor.median(), runs.best() / floor.best())
    });
    let (median, best) = (runs.median(), runs.best());
    println!("{name:<34} {median:>9.0} {best:>9.0} {:>9.1} {:>9.1} {ratio:>20}", runs.processor(), runs.server());
}

/// Of the floor: by the median, by the best, and by the processor time of both sides.
pub(crate) fn print_heads() {
    println!(
        "{:<34} {:>9} {:>9} {:>9} {:>9} {:>20}",
        "lives a second", "median", "best", "µs CPU", "µs server", "of the floor"
    );
}

/// What one round of the engine does.
pub(crate) fn round(runtime: &Runtime, on: &Lives, lives: usize, drivers: usize, steps: Steps) -> Done {
    runtime.block_on(engine::lives(on, lives, BATCH, drivers, steps))?;
    Ok(())
}

/// Floor and engine turn and turn about: whoever else uses the machine slows both.
pub(crate) fn beside(place: &Place, lives: usize, rounds: usize) -> Done {
    let runtime = place.runtime()?;
    print_machine(place)?;
    let texts = place.texts(&runtime)?;
    println!("rows of a life in the floor, with texts of {} bytes:", texts.iter().map(String::len).sum::<usize>());
    for (part, what) in place.parts() {
        println!("  {part}: {what}");
    }
    println!("  tallies, and the end of the log: 1 to 3 rows a batch");
    let count = i64::try_from(lives)?;
    let mut floors = [
        place.floor("floor", &texts, "", 1)?,
        place.floor("pair", &texts, "", place.connections())?,
        place.floor("writes", &texts, "loads", 1)?,
    ];
    let engines = [place.engine(&runtime, "one")?, place.engine(&runtime, "two")?, place.engine(&runtime, "five")?];
    let ways = [(1, Steps::Three), (2, Steps::Three), (2, Steps::Five)];
    let mut runs: [Runs; 6] = Default::default();
    for _ in 0..rounds {
        for (floor, runs) in floors.iter_mut().zip(&mut runs) {
            runs.0.push(run(place, lives, || floor.lives(count, 1_000))?);
        }
        for ((engine, (drivers, steps)), runs) in engines.iter().zip(ways).zip(&mut runs[3..]) {
            runs.0.push(run(place, lives, || round(&runtime, engine, lives, drivers, steps))?);
        }
    }
    print_heads();
    let [bare, pair, writes, one, two, five] = &runs;
    print_runs("floor", bare, None);
    if place.connections() > 1 {
        print_runs("floor on two connections", pair, Some(bare));
    }
    print_runs("floor that loads nothing", writes, Some(bare));
    print_runs("engine, one driver", one, Some(bare));
    print_runs("engine, two drivers", two, Some(bare));
    print_runs("engine, two drivers, five steps", five, Some(bare));
    if let Some((statements, trips)) = floors[0].sent() {
        let batches = u64::try_from(lives.div_ceil(BATCH) * rounds)? * 3;
        println!("the floor sent {statements} statements in {trips} round trips for {batches} batches");
    }
    for (name, engine) in ["one driver", "two drivers", "five steps"].iter().zip(&engines) {
        let tally = engine.tally();
        println!("{name}: {} operations in {} batches, {} conflicts", tally.operations, tally.batches, tally.conflicts);
    }
    Ok(())
}

pub(crate) fn rows(place: &Place, lives: usize, rounds: usize) -> Done {
    let runtime = place.runtime()?;
    print_machine(place)?;
    let texts = place.texts(&runtime)?;
    let count = i64::try_from(lives)?;
    let mut floors = vec![(place.floor("all", &texts, "", 1)?, Runs::default())];
    for (part, _) in place.parts() {
        floors.push((place.floor(part, &texts, part, 1)?, Runs::default()));
    }
    for _ in 0..rounds {
        for (floor, runs) in &mut floors {
            runs.0.push(run(place, lives, || floor.lives(count, 1_000))?);
        }
    }
    print_heads();
    let all = &floors[0].1;
    print_runs("floor", all, None);
    for ((part, _), (_, runs)) in place.parts().iter().zip(&floors[1..]) {
        print_runs(&format!("without {part}"), runs, Some(all));
    }
    Ok(())
}

/// Lives whose every call comes alone. Batches form by themselves.
pub(crate) fn callers(place: &Place, lives: usize) -> Done {
    let runtime = place.runtime()?;
    print_machine(place)?;
    let engine = place.engine(&runtime, "callers")?;
    let mut runs = Runs::default();
    for _ in 0..5 {
        runs.0.push(run(place, lives, || Ok(runtime.block_on(engine::callers(&engine, CALLERS, lives / CALLERS))?))?);
    }
    print_heads();
    print_runs("256 callers", &runs, None);
    let tally = engine.tally();
    println!("{} operations in {} transactions, {} conflicts", tally.operations, tally.batches, tally.conflicts);
    Ok(())
}

/// One job at a time: each durable step is one transaction, and a transaction is one fsync.
pub(crate) fn single(place: &Place, lives: usize) -> Done {
    let runtime = place.runtime()?;
    print_machine(place)?;
    let engine = place.engine(&runtime, "single")?;
    let before = engine.tally();
    let began = Instant::now();
    runtime.block_on(engine::callers(&engine, 1, lives))?;
    let took = began.elapsed() / u32::try_from(lives * 3)?;
    let after = engine.tally();
    println!("{} lives: {} transactions, {:.2} ms a step", lives, after.batches - before.batches, millis(took));
    if after.batches - before.batches != u64::try_from(lives * 3)? {
        return Err("a step took more or less than one transaction".into());
    }
    Ok(())
}

pub(crate) fn print_times(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 1000).map_or(0.0, |time| millis(*time));
    println!("{} jobs: {what} p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms", times.len(), at(500), at(900), at(990));
}
