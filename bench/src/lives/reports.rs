//! What is measured and printed.

use std::error::Error;
use std::time::{Duration, Instant};

use onceward_engine::Wanted;
use rusqlite::Connection;
use tokio::runtime::{Builder, Runtime};

use crate::engine::{self, JOB, Lives, Steps};
use crate::floor::{Floor, PARTS};
use crate::machine::{self, Folder, Runs, run};

/// Operations in a batch: the engine's own most.
const BATCH: usize = 1_000;

const CALLERS: usize = 256;

type Done = Result<(), Box<dyn Error>>;

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().enable_time().build()
}

fn print_fsync(folder: &Folder) -> Done {
    let (median, least) = machine::fsync(&folder.file("fsync"))?;
    println!("a bare fsync here takes {:.2} ms (median; least {:.2})", millis(median), millis(least));
    Ok(())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn print_runs(name: &str, runs: &Runs, floor: Option<&Runs>) {
    let ratio = floor.map_or(String::new(), |floor| {
        format!("{:.2} / {:.2}", runs.median() / floor.median(), runs.best() / floor.best())
    });
    println!("{name:<34} {:>9.0} {:>9.0} {:>9.1} {ratio:>14}", runs.median(), runs.best(), runs.processor());
}

fn print_heads() {
    println!("{:<34} {:>9} {:>9} {:>9} {:>14}", "lives a second", "median", "best", "µs CPU", "of the floor");
}

/// What one round of the engine does.
fn round(runtime: &Runtime, on: &Lives, lives: usize, drivers: usize, steps: Steps) -> Done {
    runtime.block_on(engine::lives(on, lives, BATCH, drivers, steps))?;
    Ok(())
}

/// Floor and engine turn and turn about: whoever else uses the machine slows both.
pub(crate) fn beside(lives: usize, rounds: usize) -> Done {
    let (folder, runtime) = (Folder::new()?, runtime()?);
    print_fsync(&folder)?;
    let texts = runtime.block_on(engine::texts(&folder.file("texts.db")))?;
    println!("rows of a life in the floor, with texts of {} bytes:", texts.iter().map(String::len).sum::<usize>());
    for (part, what) in PARTS {
        println!("  {part}: {what}");
    }
    println!("  tallies, counter: 1 to 3 updates a batch");
    let count = i64::try_from(lives)?;
    let mut bare = Floor::open(&folder.file("floor.db"), &texts, "")?;
    let mut writes = Floor::open(&folder.file("writes.db"), &texts, "loads")?;
    let (one, two, five) = (folder.file("one.db"), folder.file("two.db"), folder.file("five.db"));
    let (one, two, five) = runtime.block_on(async {
        Ok::<_, onceward_engine::EngineError>((
            engine::open(&one).await?,
            engine::open(&two).await?,
            engine::open(&five).await?,
        ))
    })?;
    let mut runs: [Runs; 5] = Default::default();
    for _ in 0..rounds {
        runs[0].0.push(run(lives, || bare.lives(count, 1_000))?);
        runs[1].0.push(run(lives, || writes.lives(count, 1_000))?);
        runs[2].0.push(run(lives, || round(&runtime, &one, lives, 1, Steps::Three))?);
        runs[3].0.push(run(lives, || round(&runtime, &two, lives, 2, Steps::Three))?);
        runs[4].0.push(run(lives, || round(&runtime, &five, lives, 2, Steps::Five))?);
    }
    print_heads();
    let [bare, writes, one, two, five] = &runs;
    print_runs("floor", bare, None);
    print_runs("floor that loads nothing", writes, Some(bare));
    print_runs("engine, one driver", one, Some(bare));
    print_runs("engine, two drivers", two, Some(bare));
    print_runs("engine, two drivers, five steps", five, Some(bare));
    Ok(())
}

pub(crate) fn rows(lives: usize, rounds: usize) -> Done {
    let (folder, runtime) = (Folder::new()?, runtime()?);
    let texts = runtime.block_on(engine::texts(&folder.file("texts.db")))?;
    let count = i64::try_from(lives)?;
    let mut floors = vec![(Floor::open(&folder.file("all.db"), &texts, "")?, Runs::default())];
    for (part, _) in PARTS {
        floors.push((Floor::open(&folder.file(&format!("{part}.db")), &texts, part)?, Runs::default()));
    }
    for _ in 0..rounds {
        for (floor, runs) in &mut floors {
            runs.0.push(run(lives, || floor.lives(count, 1_000))?);
        }
    }
    print_heads();
    let all = &floors[0].1;
    print_runs("floor", all, None);
    for ((part, _), (_, runs)) in PARTS.iter().zip(&floors[1..]) {
        print_runs(&format!("without {part}"), runs, Some(all));
    }
    Ok(())
}

/// Lives whose every call comes alone. Batches form by themselves.
pub(crate) fn callers(lives: usize) -> Done {
    let (folder, runtime) = (Folder::new()?, runtime()?);
    print_fsync(&folder)?;
    let engine = runtime.block_on(engine::open(&folder.file("callers.db")))?;
    let mut runs = Runs::default();
    for _ in 0..5 {
        runs.0.push(run(lives, || Ok(runtime.block_on(engine::callers(&engine, CALLERS, lives / CALLERS))?))?);
    }
    print_heads();
    print_runs("256 callers", &runs, None);
    let tally = engine.tally();
    println!("{} operations in {} transactions, {} conflicts", tally.operations, tally.batches, tally.conflicts);
    Ok(())
}

/// One job at a time: each durable step is one transaction, and a transaction is one fsync.
pub(crate) fn single(lives: usize) -> Done {
    let (folder, runtime) = (Folder::new()?, runtime()?);
    print_fsync(&folder)?;
    let engine = runtime.block_on(engine::open(&folder.file("single.db")))?;
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

/// With many jobs waiting, beside the same with none; and while somebody holds a snapshot open.
pub(crate) fn waiting(jobs: usize, lives: usize) -> Done {
    let (folder, runtime) = (Folder::new()?, runtime()?);
    print_fsync(&folder)?;
    let none = runtime.block_on(engine::open(&folder.file("none.db")))?;
    round(&runtime, &none, BATCH * 4, 2, Steps::Three)?;
    let memory = machine::memory()?;
    let path = folder.file("many.db");
    let many = runtime.block_on(engine::open(&path))?;
    let mut left = jobs;
    while left > 0 {
        let size = left.min(BATCH);
        runtime.block_on(engine::create(&many, size))?;
        left -= size;
    }
    let raised = machine::memory()?.saturating_sub(memory);
    println!("{jobs} waiting jobs raise the process by {} MB", raised >> 20);
    let mut runs: [Runs; 4] = Default::default();
    for _ in 0..5 {
        runs[0].0.push(run(lives, || round(&runtime, &none, lives, 2, Steps::Three))?);
        runs[1].0.push(run(lives, || round(&runtime, &many, lives, 2, Steps::Three))?);
    }
    let beside = Connection::open(&path)?;
    let held = beside.unchecked_transaction()?;
    held.query_row("SELECT seq FROM counter", [], |_| Ok(()))?;
    let began = Instant::now();
    while began.elapsed() < Duration::from_mins(1) {
        runs[2].0.push(run(lives, || round(&runtime, &none, lives, 2, Steps::Three))?);
        runs[3].0.push(run(lives, || round(&runtime, &many, lives, 2, Steps::Three))?);
    }
    let wal = || std::fs::metadata(folder.file("many.db-wal")).map_or(0, |data| data.len() >> 20);
    let under = wal();
    drop(held);
    round(&runtime, &many, BATCH * 4, 2, Steps::Three)?;
    print_heads();
    let [none, many, none_held, many_held] = &runs;
    print_runs("none waiting", none, None);
    print_runs(&format!("{jobs} waiting"), many, Some(none));
    print_runs("none waiting, beside the next", none_held, None);
    print_runs(&format!("{jobs} waiting, a snapshot held"), many_held, Some(none_held));
    println!("WAL: {under} MB at the end of the held minute");
    Ok(())
}

/// A hundred jobs a second, one by one: how long from the call of create to a lease that is durable.
pub(crate) fn latency(seconds: u64) -> Done {
    let (folder, runtime) = (Folder::new()?, runtime()?);
    print_fsync(&folder)?;
    let engine = runtime.block_on(engine::open(&folder.file("latency.db")))?;
    let (mut creates, mut times): (Vec<Duration>, Vec<Duration>) = runtime.block_on(async {
        let (mut creates, mut times) = (Vec::new(), Vec::new());
        let worker = engine.clone();
        let (send, mut made) = tokio::sync::mpsc::unbounded_channel();
        let leasing = tokio::spawn(async move {
            let wanted = Wanted { wait: Duration::from_secs(5), ..Wanted::one(JOB, "worker-1") };
            let mut at = Vec::new();
            while let Ok(leased) = worker.lease(&engine::worker(), &wanted).await {
                let [job] = &leased[..] else { break };
                at.push((job.record.id, Instant::now()));
                let (id, token) = (job.record.id, job.token);
                let reporter = worker.clone();
                tokio::spawn(
                    async move { reporter.commit(&engine::worker(), id, token, engine::result(), true).await },
                );
            }
            at
        });
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        for _ in 0..seconds * 100 {
            ticks.tick().await;
            let (engine, send) = (engine.clone(), send.clone());
            tokio::spawn(async move {
                let began = Instant::now();
                if let Ok(answer) = engine.submit(engine::new_job()).await {
                    let _ = send.send((answer.subject, began, began.elapsed()));
                }
            });
        }
        drop(send);
        let leased = leasing.await.unwrap_or_default();
        let leased: std::collections::HashMap<_, _> = leased.into_iter().collect();
        while let Some((id, began, made)) = made.recv().await {
            creates.push(made);
            if let Some(at) = leased.get(&id) {
                times.push(*at - began);
            }
        }
        (creates, times)
    });
    for (what, times) in [("durable create", &mut creates), ("create to durable lease", &mut times)] {
        times.sort_unstable();
        let at = |share: usize| times.get(times.len() * share / 1000).map_or(0.0, |time| millis(*time));
        println!("{} jobs: {what} p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms", times.len(), at(500), at(900), at(990));
    }
    Ok(())
}

/// The same over a long run: whether it holds.
pub(crate) fn minute(seconds: u64) -> Done {
    let (folder, runtime) = (Folder::new()?, runtime()?);
    print_fsync(&folder)?;
    let texts = runtime.block_on(engine::texts(&folder.file("texts.db")))?;
    let mut bare = Floor::open(&folder.file("floor.db"), &texts, "")?;
    let engine = runtime.block_on(engine::open(&folder.file("minute.db")))?;
    println!("{:>10} {:>12} {:>10} {:>10} {:>8}", "lives", "engine", "floor", "ratio", "WAL MB");
    let (mut done, mut spent) = (0, Duration::ZERO);
    let part = 50_000;
    while spent < Duration::from_secs(seconds) {
        let began = Instant::now();
        let own = run(part, || round(&runtime, &engine, part, 2, Steps::Three))?;
        spent += began.elapsed();
        let floor = run(part, || bare.lives(50_000, 1_000))?;
        done += part;
        let wal = std::fs::metadata(folder.file("minute.db-wal")).map_or(0, |data| data.len() >> 20);
        println!("{done:>10} {:>12.0} {:>10.0} {:>10.2} {wal:>8}", own.rate, floor.rate, own.rate / floor.rate);
    }
    Ok(())
}
