//! Measures the time per round, and contains the loop that callgrind counts.

use std::time::{Duration, Instant};

/// Callgrind starts and stops counting at this function's name. `cargo xtask bench` passes that name.
#[inline(never)]
pub(crate) fn counted_rounds(run_once: &mut dyn FnMut(), rounds: u32) {
    for _ in 0..rounds {
        run_once();
    }
}

/// Returns nanoseconds per round: median and minimum over the batches. The minimum approximates an idle machine.
pub(crate) fn measure_nanoseconds(run_once: &mut dyn FnMut(), batches: usize, milliseconds: u64) -> (f64, f64) {
    let goal = Duration::from_millis(milliseconds.max(1));
    let mut rounds: u32 = 1;
    // Double the rounds per batch until the clock's own cost is negligible.
    while time_batch(run_once, rounds) < goal && rounds < u32::MAX / 2 {
        rounds *= 2;
    }
    let mut times: Vec<f64> =
        (0..batches.max(1)).map(|_| time_batch(run_once, rounds).as_secs_f64() * 1e9 / f64::from(rounds)).collect();
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[0])
}

fn time_batch(run_once: &mut dyn FnMut(), rounds: u32) -> Duration {
    let began = Instant::now();
    counted_rounds(run_once, rounds);
    began.elapsed()
}
