//! Folds random mesh logs in random orders of arrival.

use std::sync::Arc;

use onceward_core::decide::CheckQuery;
use onceward_core::fold::{ApplyStatus, LogOperation};
use onceward_testkit::fold::{OperationSetSpec, fold_in_random_order, random_operation_set};
use onceward_testkit::random::{Rng, theme_seeds};
use onceward_testkit::systems;
use serde_json::json;

use crate::fold_log::ALL_CAPABILITIES;

const DEFAULT_CASES: u64 = 30;
const OPERATIONS_PER_CASE: usize = 80;

/// MSH-24 MSH-23: with repeated and late operations and with changing authority.
#[test]
fn same_operations_in_any_order_give_same_state() {
    let definitions = Arc::new(systems::load_system("mesh"));
    let resolver = |operation: &LogOperation, _: &CheckQuery| {
        let random_byte = operation.id.0[0];
        json!({ "valid": !random_byte.is_multiple_of(4), "key": "x", "userBearing": random_byte.is_multiple_of(2), "why": "" })
            .as_object()
            .cloned()
    };
    let (mut changed, mut total) = (0, 0);
    for seed in theme_seeds("mesh fold", DEFAULT_CASES) {
        println!("repeat with ONCEWARD_SEED={seed}");
        let mut rng = Rng::new(seed);
        let set = OperationSetSpec {
            definitions: &definitions,
            capabilities: &ALL_CAPABILITIES,
            operation_count: OPERATIONS_PER_CASE,
        };
        let operations = random_operation_set(&set, &resolver, &mut rng);
        let fold = fold_in_random_order(&set, &definitions, &operations, &resolver, &mut rng);
        total += fold.len();
        changed += fold.operations().filter(|(_, _, applied)| **applied == ApplyStatus::Changed).count();
    }
    println!("{changed} of {total} operations had an effect");
    assert!(changed * 5 > total, "too few operations have an effect: {changed} of {total}");
}
