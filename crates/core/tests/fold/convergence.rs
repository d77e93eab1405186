//! Tests convergence: the same set of operations gives the same state.

use std::cell::Cell;

use onceward_core::decide::CheckQuery;
use onceward_core::fold::{ApplyStatus, FoldRefusalReason, LogOperation, WaitReason};
use onceward_testkit::fold::{
    OperationSetSpec, assert_matches_reference, fold_in_random_order, random_operation_set, reference_fold,
};
use onceward_testkit::random::{Rng, theme_seeds, world_text};
use serde_json::{Map, Value as Json, json};

use crate::test_lifecycles;

const CASE_COUNT: u64 = 60;
const OPERATIONS_PER_SET: usize = 50;

struct PrintSeedOnPanic(u64, String);

impl Drop for PrintSeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}\nplay it again with ONCEWARD_SEED={}", self.1, self.0);
        }
    }
}

fn json_object(json: Json) -> Map<String, Json> {
    if let Json::Object(map) = json { map } else { Map::new() }
}

/// MSH-24: states and verdicts are equal for shuffled operations, duplicates, any portions, and authority that is
/// withdrawn and restored. MSH-23: a rebuilt state is equal too. MSH-15, MSH-19, MSH-20, MSH-21, MSH-25: compared with
/// an independent reference implementation.
#[test]
fn same_operations_in_any_order_reach_same_state() {
    let mut seen: [u64; 9] = [0; 9];
    for seed in theme_seeds("fold", CASE_COUNT) {
        let (definitions, text) = test_lifecycles::random_definitions(seed);
        let _running = PrintSeedOnPanic(seed, text);
        let mut rng = Rng::new(seed ^ 0xf01d);
        let set = OperationSetSpec {
            definitions: &definitions,
            capabilities: &["Thing.Write"],
            operation_count: OPERATIONS_PER_SET,
        };
        // The check changes its answers once, and the test notifies the fold.
        let answer_shift = Cell::new(0_i64);
        let resolver = |operation: &LogOperation, question: &CheckQuery| {
            let n = question.arguments.get("n").and_then(Json::as_i64).unwrap_or(0);
            let whim = n + answer_shift.get() + i64::from(operation.id.0[0]);
            (whim % 8 != 4).then(|| json_object(json!({ "ok": whim % 3 != 1 })))
        };
        let operations = random_operation_set(&set, &resolver, &mut rng);
        answer_shift.set(7);
        let mut fold = fold_in_random_order(&set, &definitions, &operations, &resolver, &mut rng);
        answer_shift.set(0);
        fold.reevaluate(&resolver, []).expect("an empty batch has no unknown ids");
        let opinion = reference_fold(&definitions, &operations, &resolver);
        assert_matches_reference(&fold, &opinion);
        let other = fold_in_random_order(&set, &definitions, &operations, &resolver, &mut rng);
        assert_eq!(
            world_text(fold.snapshot()),
            world_text(other.snapshot()),
            "two orders of the same set give the same state"
        );
        fold.rebuild(&resolver);
        assert_matches_reference(&fold, &opinion);
        for applied in opinion.statuses.values() {
            seen[status_index(applied)] += 1;
        }
    }
    println!("changed, nothing, waiting, unanswered, held, clock, dependency, tie, refused: {seen:?}");
    let few = theme_seeds("fold", CASE_COUNT).len() < 60;
    assert!(few || seen.iter().all(|count| *count > 0), "an outcome never occurred: {seen:?}");
}

fn status_index(applied: &ApplyStatus) -> usize {
    match applied {
        ApplyStatus::Changed => 0,
        ApplyStatus::NoOp(_) => 1,
        ApplyStatus::Waiting(WaitReason::DependencyAbsent(_) | WaitReason::DependencyUnapplied(_)) => 2,
        ApplyStatus::Waiting(WaitReason::CheckUnanswered { .. }) => 3,
        ApplyStatus::AuthorSuspended { .. } => 4,
        ApplyStatus::Refused(FoldRefusalReason::ClockReused) => 5,
        ApplyStatus::Refused(FoldRefusalReason::DependencyNotEarlier(_) | FoldRefusalReason::DependencyRefused(_)) => 6,
        ApplyStatus::Refused(FoldRefusalReason::Contended { .. }) => 7,
        ApplyStatus::Refused(_) => 8,
    }
}
