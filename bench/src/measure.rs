//! Time per round, and the loop that callgrind counts.

use std::time::{Duration, Instant};

/// Counted by callgrind, which switches on and off at this function's name: keep both together.
#[inline(never)]
pub(crate) fn counted_rounds(run_once: &mut dyn FnMut(), rounds: u32) {
    for _ in 0..rounds {
        run_once();
    }
}

/// Nanoseconds a round: the median over batches, and the least, which comes near to what it takes when nobody else has
/// the machine.
pub(crate) fn measure_nanoseconds(run_once: &mut dyn FnMut(), batches: usize, milliseconds: u64) -> (f64, f64) {
    let goal = Duration::from_millis(milliseconds.max(1));
    let mut rounds: u32 = 1;
    // How many rounds a batch takes: doubled until a batch is long enough for the clock's own cost not to matter.
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
