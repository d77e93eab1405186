//! Measures operations that reach many records: time and allocated memory per record. Run by `cargo xtask bench`, which
//! also counts instructions under callgrind.
//!
//! ```text
//! fanout SHAPE SIZE…         one line per size: changed records, nanoseconds and bytes per record
//! fanout SHAPE SIZE… part    with a store that loads only requested data, and its number of rounds
//! fanout loop "SHAPE SIZE" N N rounds of one case, for callgrind
//! ```

mod loading;
mod shipped_systems;
mod worlds;

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use onceward_core::decide::Decision;
use peak_alloc::PeakAlloc;
use worlds::{FanoutShape, FanoutWorld, NAMED_SHAPES};

#[global_allocator]
static PEAK_ALLOCATOR: PeakAlloc = PeakAlloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["loop", case, rounds] => run_case_loop(case, rounds),
        [shape, sizes @ .., "part"] => measure_sizes(shape, sizes, measure_with_loads),
        [shape, sizes @ ..] => measure_sizes(shape, sizes, measure_complete_snapshot),
        [] => None,
    };
    if done.is_some() {
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "usage: fanout SHAPE SIZE… [part] | loop \"SHAPE SIZE\" ROUNDS; a shape is one of siblings, graph, chain, star, relay, mesh"
    );
    ExitCode::FAILURE
}

fn parse_shape(name: &str) -> Option<FanoutShape> {
    NAMED_SHAPES.iter().find(|(known, _)| *known == name).map(|(_, shape)| *shape)
}

fn run_case_loop(case: &str, rounds: &str) -> Option<()> {
    let (shape, size) = case.split_once(' ')?;
    let shape = parse_shape(shape)?;
    let world = FanoutWorld::new(&worlds::load_definitions(shape), shape, size.parse().ok()?);
    // Run once first, so that lazy initialization is not counted.
    black_box(world.decide());
    counted_rounds(&world, rounds.parse().ok()?);
    Some(())
}

/// Callgrind starts and stops counting at this function's name.
#[inline(never)]
fn counted_rounds(world: &FanoutWorld, rounds: u32) {
    for _ in 0..rounds {
        black_box(world.decide());
    }
}

fn measure_sizes(shape: &str, sizes: &[&str], measure: fn(&FanoutWorld)) -> Option<()> {
    let shape = parse_shape(shape)?;
    let definitions = worlds::load_definitions(shape);
    for size in sizes {
        measure(&FanoutWorld::new(&definitions, shape, size.parse().ok()?));
    }
    Some(())
}

/// Measures deciding and dropping the changes. Prints the minimum of several runs, because other processes share the
/// machine.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn measure_complete_snapshot(world: &FanoutWorld) {
    let before = PEAK_ALLOCATOR.current_usage();
    PEAK_ALLOCATOR.reset_peak_usage();
    let decision = world.decide();
    let (peak, retained) = (PEAK_ALLOCATOR.peak_usage() - before, PEAK_ALLOCATOR.current_usage() - before);
    let records = match decision {
        Decision::Changes(changes) => changes.records.len(),
        Decision::Refusal(refusal) => {
            println!("{}\trefused\t{}\t{peak}", world.snapshot.records.len(), refusal.code);
            return;
        }
        _ => panic!("a complete world misses no key"),
    };
    let mut min_seconds = f64::INFINITY;
    for _ in 0..5 {
        let began = Instant::now();
        black_box(world.decide());
        min_seconds = min_seconds.min(began.elapsed().as_secs_f64());
    }
    let each = records as f64;
    println!("{records}\t{:.0}\t{:.0}\t{:.0}", min_seconds * 1e9 / each, peak as f64 / each, retained as f64 / each);
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn measure_with_loads(world: &FanoutWorld) {
    let began = Instant::now();
    let (changes, rounds) = loading::decide_with_loads(world);
    let records = changes.records.len();
    println!("{records}\t{:.0}\t{rounds}", began.elapsed().as_secs_f64() * 1e9 / records as f64);
}
