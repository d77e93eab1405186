//! Jobs that wait for their time, beside those that do not.

use std::time::Instant;

use onceward_core::time::{Duration, Time};
use onceward_store::Clock;

use crate::engine::{self, Steps};
use crate::machine::{Runs, run};
use crate::place::Place;
use crate::reports::{BATCH, Done, print_heads, print_machine, print_runs, round};

/// With many jobs for tomorrow, beside the same with none; and beside the same jobs as they once stood, among those that may be
/// leased now.
pub(crate) fn later(place: &Place, jobs: usize, lives: usize) -> Done {
    let runtime = place.runtime()?;
    print_machine(place)?;
    let none = place.engine(&runtime, "none")?;
    let tomorrow = Clock::machine().now().checked_add(Duration::from_secs(86_400)).unwrap_or(Time::MAX);
    let databases = [place.database("later"), place.database("among")];
    for database in &databases {
        let engine = place.engine_at(&runtime, database)?;
        let began = Instant::now();
        let mut left = jobs;
        while left > 0 {
            let size = left.min(BATCH);
            runtime.block_on(engine::create_for(&engine, size, tomorrow))?;
            left -= size;
        }
        println!("{jobs} jobs for tomorrow made in {:.0} s", began.elapsed().as_secs_f64());
        runtime.block_on(engine.close());
    }
    place.put_among_the_ready(&databases[1])?;
    let later = place.engine_at(&runtime, &databases[0])?;
    let among = place.engine_at(&runtime, &databases[1])?;
    let mut runs: [Runs; 3] = Default::default();
    for _ in 0..5 {
        for (engine, runs) in [&none, &later, &among].into_iter().zip(&mut runs) {
            runs.0.push(run(place, lives, || round(&runtime, engine, lives, 2, Steps::Three))?);
        }
    }
    print_heads();
    print_runs("none for tomorrow", &runs[0], None);
    print_runs(&format!("{jobs} for tomorrow"), &runs[1], Some(&runs[0]));
    print_runs("the same as they once stood", &runs[2], Some(&runs[0]));
    Ok(())
}
