//! The hot path, measured: what `decide` takes for the life of a plain job. Run by `cargo xtask bench`, which counts
//! instructions under callgrind and prints the table; alone it prints times only.
//!
//! ```text
//! hotpath list             the cases, one a line
//! hotpath loop CASE N      N rounds of one case, for callgrind
//! hotpath time BATCHES MS  nanoseconds a round: median and least of so many batches of so many milliseconds
//! ```

mod job;
mod measure;
mod peers;

use std::process::ExitCode;

/// One thing to measure.
struct Case {
    name: String,
    once: Box<dyn FnMut()>,
}

impl Case {
    fn new(name: impl Into<String>, once: impl FnMut() + 'static) -> Self {
        Self { name: name.into(), once: Box::new(once) }
    }
}

fn main() -> ExitCode {
    let definitions = job::definitions();
    let mut cases = job::cases(&definitions);
    cases.extend(peers::cases(&definitions));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["list"] => cases.iter().for_each(|case| println!("{}", case.name)),
        ["loop", name, rounds] => {
            let (Some(case), Ok(rounds)) = (cases.iter_mut().find(|case| case.name == *name), rounds.parse()) else {
                eprintln!("hotpath: no such case, or no number of rounds");
                return ExitCode::FAILURE;
            };
            // Once beforehand, so that what is made on first use is not counted.
            (case.once)();
            measure::counted_rounds(&mut *case.once, rounds);
        }
        ["time", batches, milliseconds] => {
            let (Ok(batches), Ok(milliseconds)) = (batches.parse(), milliseconds.parse()) else {
                eprintln!("hotpath: two whole numbers are wanted");
                return ExitCode::FAILURE;
            };
            for case in &mut cases {
                let (median, least) = measure::nanoseconds(&mut *case.once, batches, milliseconds);
                println!("{}\t{median:.1}\t{least:.1}", case.name);
            }
        }
        _ => {
            eprintln!("usage: hotpath list | loop CASE N | time BATCHES MILLISECONDS");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
