//! Measures the hot path: `decide` for the operations of a plain job. Run by `cargo xtask bench`, which counts
//! instructions under callgrind. Run directly, it prints times only.
//!
//! ```text
//! hotpath list             the cases, one per line
//! hotpath loop CASE N      N rounds of one case, for callgrind
//! hotpath time BATCHES MS  nanoseconds per round: median and minimum of BATCHES batches of MS milliseconds
//! ```

mod comparisons;
mod job;
mod measure;

use std::process::ExitCode;

struct BenchCase {
    name: String,
    run_once: Box<dyn FnMut()>,
}

impl BenchCase {
    fn new(name: impl Into<String>, run_once: impl FnMut() + 'static) -> Self {
        Self { name: name.into(), run_once: Box::new(run_once) }
    }
}

fn main() -> ExitCode {
    let definitions = job::load_definitions();
    let mut cases = job::job_cases(&definitions);
    cases.extend(comparisons::comparison_cases(&definitions));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["list"] => cases.iter().for_each(|case| println!("{}", case.name)),
        ["loop", name, rounds] => {
            let (Some(case), Ok(rounds)) = (cases.iter_mut().find(|case| case.name == *name), rounds.parse()) else {
                eprintln!("hotpath: unknown case, or invalid number of rounds");
                return ExitCode::FAILURE;
            };
            // Run once first, so that lazy initialization is not counted.
            (case.run_once)();
            measure::counted_rounds(&mut *case.run_once, rounds);
        }
        ["time", batches, milliseconds] => {
            let (Ok(batches), Ok(milliseconds)) = (batches.parse(), milliseconds.parse()) else {
                eprintln!("hotpath: expected two whole numbers");
                return ExitCode::FAILURE;
            };
            for case in &mut cases {
                let (median, min) = measure::measure_nanoseconds(&mut *case.run_once, batches, milliseconds);
                println!("{}\t{median:.1}\t{min:.1}", case.name);
            }
        }
        _ => {
            eprintln!("usage: hotpath list | loop CASE N | time BATCHES MILLISECONDS");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
