//! Properties: decisions are deterministic.

use std::cell::Cell;
use std::rc::Rc;

use onceward_core::decide::{Decision, Snapshot, decide};
use onceward_testkit::random::{
    BatchProperty, DeterminismProperty, GeneratorOptions, PartialSnapshotProperty, Property, ReadSetProperty,
    RefusalProperty, UndoProperty, run_cases, world_text,
};

const CASE_COUNT: u64 = 60;
const OPERATIONS_PER_CASE: usize = 80;

/// A refusal or a no-op changes no record. The order of hash maps has no effect.
#[test]
fn repeated_operation_gives_same_decision() {
    let properties =
        || -> Vec<Box<dyn Property>> { vec![Box::new(RefusalProperty), Box::new(DeterminismProperty::default())] };
    run_cases("same", CASE_COUNT, OPERATIONS_PER_CASE, GeneratorOptions::default(), properties, |_| ());
}

#[test]
fn log_replay_reproduces_world() {
    let no_properties = || -> Vec<Box<dyn Property>> { Vec::new() };
    run_cases("replay", CASE_COUNT, OPERATIONS_PER_CASE, GeneratorOptions::default(), no_properties, |play| {
        let mut again = Snapshot::empty_complete();
        for (operation, now) in &play.log {
            if let Decision::Changes(changes) = decide(&play.definitions, &again, operation, *now) {
                again.apply(&changes);
            }
        }
        assert_eq!(world_text(&again), world_text(&play.world), "a replayed log gives another state");
    });
}

/// The test completes the partial snapshot with the reads that `decide` reports as missing.
#[test]
fn partial_snapshot_decides_like_whole_world() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(PartialSnapshotProperty)] };
    run_cases("partial", CASE_COUNT, OPERATIONS_PER_CASE, GeneratorOptions::default(), properties, |_| ());
}

/// A snapshot with only these keys gives the same decision.
#[test]
fn read_keys_cover_everything_decision_depends_on() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(ReadSetProperty)] };
    run_cases("reads", CASE_COUNT, OPERATIONS_PER_CASE, GeneratorOptions::default(), properties, |_| ());
}

/// The operations of a batch share one snapshot.
#[test]
fn batch_decides_like_sequential_operations() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(BatchProperty::default())] };
    run_cases("batch", CASE_COUNT, OPERATIONS_PER_CASE, GeneratorOptions::default(), properties, |_| ());
}

/// The outcome equals that of a file without the transition.
#[test]
fn transition_with_untaken_require_leaves_no_change() {
    let undone_count = Rc::new(Cell::new(0));
    let properties =
        || -> Vec<Box<dyn Property>> { vec![Box::new(UndoProperty { cases_tried: Rc::clone(&undone_count) })] };
    run_cases(
        "no trace",
        CASE_COUNT,
        OPERATIONS_PER_CASE,
        GeneratorOptions { jitter: false, ..GeneratorOptions::default() },
        properties,
        |_| (),
    );
    println!("no trace: {} operations had transitions undone", undone_count.get());
    assert!(undone_count.get() > 0 || std::env::var_os("ONCEWARD_SEED").is_some(), "no transition was ever undone");
}
