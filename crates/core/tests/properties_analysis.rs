//! What the checker promises, held against what happens.

use std::cell::Cell;
use std::rc::Rc;

use onceward_testkit::random::{
    DeadTransitionProperty, GeneratorOptions, NullOperandProperty, OrphanProperty, Property, SoundnessProperty,
    run_cases,
};

const CASE_COUNT: u64 = 200;
const OPERATIONS_PER_CASE: usize = 150;

/// A lifecycle that the checker calls sound never faults on the engine's own events: no record is stuck, what is leasable
/// is leased, failures, finishes and timers are always taken, a leased state answers its commit.
#[test]
fn sound_lifecycle_never_faults_on_engine_events() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(SoundnessProperty)] };
    run_cases(
        "sound",
        CASE_COUNT,
        OPERATIONS_PER_CASE,
        GeneratorOptions { careless_percent: 20, ..GeneratorOptions::default() },
        properties,
        |_| (),
    );
}

/// From every state that is neither final nor at rest, a timer, a lease or its end moves the record on.
#[test]
fn sound_lifecycle_leaves_every_transient_state() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(OrphanProperty)] };
    run_cases(
        "orphans",
        CASE_COUNT,
        OPERATIONS_PER_CASE,
        GeneratorOptions { careless_percent: 20, ..GeneratorOptions::default() },
        properties,
        |_| (),
    );
}

/// A row that the checker calls dead, shadowed or always refused is never taken, in sound lifecycles and in others.
#[test]
fn transitions_diagnosed_dead_are_never_taken() {
    let dead_count = Rc::new(Cell::new(0));
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(DeadTransitionProperty::with_counter(&dead_count))] };
    let report = run_cases(
        "dead",
        CASE_COUNT,
        OPERATIONS_PER_CASE,
        GeneratorOptions { careless_percent: 20, ..GeneratorOptions::default() },
        properties,
        |_| (),
    );
    println!("dead: {} rows", dead_count.get());
    assert!(report.cases < CASE_COUNT || dead_count.get() > 0, "no row was called dead, so nothing was shown");
}

/// Where the checker finds no operand that may be null, no caller is told of one.
#[test]
fn callers_get_null_fault_only_where_analysis_warned() {
    let null_free_count = Rc::new(Cell::new(0));
    let properties =
        || -> Vec<Box<dyn Property>> { vec![Box::new(NullOperandProperty::with_counter(&null_free_count))] };
    let report = run_cases(
        "nulls",
        CASE_COUNT,
        OPERATIONS_PER_CASE,
        GeneratorOptions { careless_percent: 20, ..GeneratorOptions::default() },
        properties,
        |_| (),
    );
    println!("nulls: {} sets without", null_free_count.get());
    assert!(report.cases < CASE_COUNT || null_free_count.get() > 0, "every set may have nulls, so nothing was shown");
}
