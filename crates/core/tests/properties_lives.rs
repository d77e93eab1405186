//! Random lives: versions, attempts, times and final states; leases, tokens and commits.

use onceward_testkit::random::{Lives, Property, Taste, Tokens, run};

const CASES: u64 = 120;
const OPERATIONS: usize = 120;

/// Final states are never left; a version for each operation that changes a record; times and attempts only grow; timers
/// belong to the state they were set in.
#[test]
fn records_only_go_onward() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(Lives)] };
    run("lives", CASES, OPERATIONS, Taste::default(), properties, |_| ());
}

/// EXE-8, EXE-12: tokens grow one by one, an execution goes forward only, and at most one of a job's ever commits.
#[test]
fn tokens_grow_and_one_commits() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(Tokens::default())] };
    run("tokens", CASES, OPERATIONS, Taste::default(), properties, |_| ());
}
