//! Properties of transfers, unique keys and limits.

use onceward_testkit::random::{GeneratorOptions, IndexProperty, LedgerProperty, LimitProperty, Property, run_cases};

const CASE_COUNT: u64 = 100;
const OPERATIONS_PER_CASE: usize = 100;

/// Only outside accounts go negative. No hold is negative, or filled in a final state. Records and the ledger agree,
/// and the log has every transfer.
#[test]
fn ledger_sums_to_zero_after_every_operation() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(LedgerProperty)] };
    run_cases("money", CASE_COUNT, OPERATIONS_PER_CASE, GeneratorOptions::default(), properties, |_| ());
}

/// The holder is the record that has the key. Links and queues match the records.
#[test]
fn unique_key_has_at_most_one_holder() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(IndexProperty::default())] };
    run_cases("keys", CASE_COUNT, OPERATIONS_PER_CASE, GeneratorOptions::default(), properties, |_| ());
}

/// INV-7: the count is the number of records in the set, or of creations in the window.
#[test]
fn limit_count_equals_records_in_its_set() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(LimitProperty::default())] };
    run_cases("limits", CASE_COUNT, OPERATIONS_PER_CASE, GeneratorOptions::default(), properties, |_| ());
}
