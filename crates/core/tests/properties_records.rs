//! Properties of records and leases: versions, attempts, times and final states; fencing tokens and commits.

use onceward_testkit::random::{GeneratorOptions, LeaseProperty, Property, RecordProgressProperty, run_cases};

const CASE_COUNT: u64 = 120;
const OPERATIONS_PER_CASE: usize = 120;

/// No record leaves a final state. Each operation that changes a record raises its version by one. Timers belong to the
/// state that set them.
#[test]
fn versions_times_and_attempts_never_decrease() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(RecordProgressProperty)] };
    run_cases("lives", CASE_COUNT, OPERATIONS_PER_CASE, GeneratorOptions::default(), properties, |_| ());
}

/// EXE-8, EXE-12: tokens increase by one, and executions only move forward.
#[test]
fn fencing_tokens_increase_and_at_most_one_execution_commits() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(LeaseProperty::default())] };
    run_cases("tokens", CASE_COUNT, OPERATIONS_PER_CASE, GeneratorOptions::default(), properties, |_| ());
}
