//! Random lives: versions, attempts, times and final states; leases, tokens and commits.

use onceward_testkit::random::{GeneratorOptions, LeaseProperty, Property, RecordProgressProperty, run_cases};

const CASE_COUNT: u64 = 120;
const OPERATIONS_PER_CASE: usize = 120;

/// Final states are never left; a version for each operation that changes a record; times and attempts only grow; timers
/// belong to the state they were set in.
#[test]
fn versions_times_and_attempts_never_decrease() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(RecordProgressProperty)] };
    run_cases("lives", CASE_COUNT, OPERATIONS_PER_CASE, GeneratorOptions::default(), properties, |_| ());
}

/// EXE-8, EXE-12: tokens grow one by one, an execution goes forward only, and at most one of a job's ever commits.
#[test]
fn fencing_tokens_increase_and_at_most_one_execution_commits() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(LeaseProperty::default())] };
    run_cases("tokens", CASE_COUNT, OPERATIONS_PER_CASE, GeneratorOptions::default(), properties, |_| ());
}
