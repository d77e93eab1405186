//! Random money, keys and counts.

use onceward_testkit::random::{Keys, Ledger, Limits, Property, Taste, run};

const CASES: u64 = 100;
const OPERATIONS: usize = 100;

/// The ledger sums to zero after every operation; only the world's accounts go below; no hold is negative, none filled in
/// a final state; a record and the ledger agree; every move stands in a log.
#[test]
fn money_neither_appears_nor_vanishes() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(Ledger)] };
    run("money", CASES, OPERATIONS, Taste::default(), properties, |_| ());
}

/// At most one record holds a key, the one that it belongs to; links and queues are what the records say.
#[test]
fn keys_have_one_holder() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(Keys::default())] };
    run("keys", CASES, OPERATIONS, Taste::default(), properties, |_| ());
}

/// INV-7: a limit's count is the number of records in its set, or of creations in its window.
#[test]
fn limits_count_exactly() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(Limits::default())] };
    run("limits", CASES, OPERATIONS, Taste::default(), properties, |_| ());
}
