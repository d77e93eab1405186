//! Benchmarks operations that reach many records: time, memory and instructions per record, which must not grow with
//! their number.

use anyhow::{Result, bail};

use super::callgrind;
use crate::shell;
use crate::workers::at_once;

/// The largest accepted growth of the cost per record among ten times as many. Ordered sets grow slightly with their
/// size; a quadratic path costs several times as much.
const MAX_GROWTH_RATIO: f64 = 1.4;

/// Small enough for an unoptimized build under callgrind, large enough to reveal a quadratic cost.
const SMALL_SIZE: u32 = 100;
const LARGE_SIZE: u32 = 1_000;

/// Fails if the instructions per record grow with the number of records.
pub(super) fn assert_linear_cost(program: &str) -> Result<()> {
    let shapes = ["siblings", "graph", "chain"];
    let counts = at_once(&shapes, |shape| {
        Ok((instructions_per_record(program, shape, SMALL_SIZE)?, instructions_per_record(program, shape, LARGE_SIZE)?))
    })?;
    for (shape, (few, many)) in shapes.iter().zip(counts) {
        if many > few * MAX_GROWTH_RATIO {
            bail!(
                "{shape}: {few:.0} instructions per record among {SMALL_SIZE}, but {many:.0} among {LARGE_SIZE}: the cost is not linear"
            );
        }
        println!("{shape}: {few:.0} instructions per record among {SMALL_SIZE}, {many:.0} among {LARGE_SIZE}");
    }
    Ok(())
}

fn instructions_per_record(program: &str, shape: &str, size: u32) -> Result<f64> {
    let profile = callgrind::count_instructions(program, &format!("{shape} {size}"), 1, false)?;
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let instructions = profile.instructions as f64;
    Ok(instructions / f64::from(size))
}

/// Prints the results as a table.
pub(super) fn print(program: &str) -> Result<()> {
    println!(
        "\n{:<28} {:>9} {:>12} {:>14} {:>14}",
        "operations on many records", "records", "ns per record", "bytes at peak", "bytes of result"
    );
    for (shape, sizes) in [
        ("siblings", &["20", "1000", "3000", "10000", "30000"][..]),
        ("graph", &["1000", "3000", "10000", "30000", "100000", "100001"][..]),
        ("chain", &["100000"][..]),
        ("star", &["100000"][..]),
        ("relay", &["1", "20", "100"][..]),
        ("mesh", &["20", "1000", "10000"][..]),
    ] {
        for line in shell::output(shell::command(program).arg(shape).args(sizes))?.lines() {
            let mut columns = line.split('\t');
            let mut column = || columns.next().unwrap_or_default();
            println!("{shape:<28} {:>9} {:>12} {:>14} {:>14}", column(), column(), column(), column());
        }
    }
    println!("\n{:<28} {:>9} {:>12} {:>14}", "loaded on request", "records", "ns per record", "load rounds");
    for shape in ["siblings", "graph", "star"] {
        for line in shell::output(shell::command(program).args([shape, "20", "1000", "10000", "part"]))?.lines() {
            let mut columns = line.split('\t');
            let mut column = || columns.next().unwrap_or_default();
            println!("{shape:<28} {:>9} {:>12} {:>14}", column(), column(), column());
        }
    }
    Ok(())
}
