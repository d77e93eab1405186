//! What many jobs and much time do: with a million waiting, beside an old snapshot, over a long run.

use std::time::{Duration, Instant};

use crate::engine::{self, Steps};
use crate::machine::{self, Runs, run};
use crate::place::Place;
use crate::reports::{BATCH, Done, print_heads, print_machine, print_runs, round};

/// With many jobs waiting, beside the same with none; and while somebody holds a snapshot open for so many seconds.
pub(crate) fn waiting(place: &Place, jobs: usize, lives: usize, seconds: u64) -> Done {
    let runtime = place.runtime()?;
    print_machine(place)?;
    let none = place.engine(&runtime, "none")?;
    round(&runtime, &none, BATCH * 4, 2, Steps::Three)?;
    let memory = machine::memory()?;
    let database = place.database("many");
    let many = place.engine_at(&runtime, &database)?;
    let began = Instant::now();
    let mut left = jobs;
    while left > 0 {
        let size = left.min(BATCH);
        runtime.block_on(engine::create(&many, size))?;
        left -= size;
    }
    let raised = machine::memory()?.saturating_sub(memory);
    println!(
        "{jobs} jobs made in {:.0} s; they raise the process by {} MB",
        began.elapsed().as_secs_f64(),
        raised >> 20
    );
    let mut runs: [Runs; 4] = Default::default();
    for _ in 0..5 {
        runs[0].0.push(run(place, lives, || round(&runtime, &none, lives, 2, Steps::Three))?);
        runs[1].0.push(run(place, lives, || round(&runtime, &many, lives, 2, Steps::Three))?);
    }
    let held = place.hold(&runtime, &database)?;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        runs[2].0.push(run(place, lives, || round(&runtime, &none, lives, 2, Steps::Three))?);
        runs[3].0.push(run(place, lives, || round(&runtime, &many, lives, 2, Steps::Three))?);
    }
    let under = place.sizes(&database);
    drop(held);
    round(&runtime, &many, BATCH * 4, 2, Steps::Three)?;
    print_heads();
    let [none, many, none_held, many_held] = &runs;
    print_runs("none waiting", none, None);
    print_runs(&format!("{jobs} waiting"), many, Some(none));
    print_runs("none waiting, beside the next", none_held, None);
    print_runs(&format!("{jobs} waiting, a snapshot held"), many_held, Some(none_held));
    if let (Some(first), Some(last)) = (many_held.0.first(), many_held.0.last()) {
        let work = |run: &machine::Run| run.processor + run.server;
        println!(
            "under the snapshot, {} rounds: {:.0} µs a life in the first, {:.0} in the last",
            many_held.0.len(),
            work(first),
            work(last)
        );
    }
    println!("at the end of {seconds} s under the snapshot:\n{under}");
    Ok(())
}

/// The same over a long run: whether it holds.
pub(crate) fn minute(place: &Place, seconds: u64) -> Done {
    let runtime = place.runtime()?;
    print_machine(place)?;
    let texts = place.texts(&runtime)?;
    let mut bare = place.floor("floor", &texts, "", 1)?;
    let database = place.database("minute");
    let engine = place.engine_at(&runtime, &database)?;
    println!("{:>10} {:>12} {:>10} {:>10} {:>10}", "lives", "engine", "floor", "ratio", "of CPU");
    let (mut done, mut spent) = (0, Duration::ZERO);
    let part = 50_000;
    while spent < Duration::from_secs(seconds) {
        let began = Instant::now();
        let own = run(place, part, || round(&runtime, &engine, part, 2, Steps::Three))?;
        spent += began.elapsed();
        let floor = run(place, part, || bare.lives(50_000, 1_000))?;
        done += part;
        let work = (floor.processor + floor.server) / (own.processor + own.server);
        println!("{done:>10} {:>12.0} {:>10.0} {:>10.2} {work:>10.2}", own.rate, floor.rate, own.rate / floor.rate);
    }
    println!("{}", place.sizes(&database));
    Ok(())
}

/// How large tables and indexes grow, after each part.
pub(crate) fn churn(place: &Place, lives: usize, parts: usize) -> Done {
    let runtime = place.runtime()?;
    print_machine(place)?;
    let database = place.database("churn");
    let engine = place.engine_at(&runtime, &database)?;
    let part = lives / parts.max(1);
    for number in 1..=parts {
        let own = run(place, part, || round(&runtime, &engine, part, 2, Steps::Three))?;
        let (rate, client, server) = (own.rate, own.processor, own.server);
        println!(
            "{} lives, {rate:.0} a second, {client:.1} + {server:.1} µs CPU\n{}",
            number * part,
            place.sizes(&database)
        );
    }
    Ok(())
}

/// What the server spends on each statement, of the engine and of the floor.
pub(crate) fn statements(place: &Place, lives: usize) -> Done {
    let runtime = place.runtime()?;
    let database = place.database("engine");
    let engine = place.engine_at(&runtime, &database)?;
    round(&runtime, &engine, BATCH * 4, 1, Steps::Three)?;
    place.count_anew(&database);
    let before = engine.tally();
    round(&runtime, &engine, lives, 1, Steps::Three)?;
    let batches = engine.tally().batches - before.batches;
    println!(
        "the engine, {lives} lives in {batches} batches; microseconds a life:\n{}",
        Place::statements(&database, lives)
    );
    let texts = place.texts(&runtime)?;
    let database = place.database("floor");
    let mut bare = place.floor_at(&database, &texts, "", 1)?;
    bare.lives(4_000, 1_000)?;
    place.count_anew(&database);
    bare.lives(i64::try_from(lives)?, 1_000)?;
    println!("the floor:\n{}", Place::statements(&database, lives));
    Ok(())
}
