//! Random money, keys and counts.

use onceward_testkit::random::{GeneratorOptions, IndexProperty, LedgerProperty, LimitProperty, Property, run_cases};

const CASE_COUNT: u64 = 100;
const OPERATIONS_PER_CASE: usize = 100;

/// The ledger sums to zero after every operation; only the world's accounts go below; no hold is negative, none filled in
/// a final state; a record and the ledger agree; every move stands in a log.
#[test]
fn ledger_sums_to_zero_after_every_operation() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(LedgerProperty)] };
    run_cases("money", CASE_COUNT, OPERATIONS_PER_CASE, GeneratorOptions::default(), properties, |_| ());
}

/// At most one record holds a key, the one that it belongs to; links and queues are what the records say.
#[test]
fn unique_key_has_at_most_one_holder() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(IndexProperty::default())] };
    run_cases("keys", CASE_COUNT, OPERATIONS_PER_CASE, GeneratorOptions::default(), properties, |_| ());
}

/// INV-7: a limit's count is the number of records in its set, or of creations in its window.
#[test]
fn limit_count_equals_records_in_its_set() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(LimitProperty::default())] };
    run_cases("limits", CASE_COUNT, OPERATIONS_PER_CASE, GeneratorOptions::default(), properties, |_| ());
}
