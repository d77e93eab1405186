//! Properties: what static analysis proves holds at run time.

use std::cell::Cell;
use std::rc::Rc;

use onceward_testkit::random::{
    DeadTransitionProperty, GeneratorOptions, NullOperandProperty, OrphanProperty, Property, SoundnessProperty,
    run_cases,
};

const CASE_COUNT: u64 = 200;
const OPERATIONS_PER_CASE: usize = 150;

/// No record is stuck, ready jobs can be leased, fail, finish and timer transitions always apply, and a leased state
/// answers its commit.
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

/// A timer, a lease or the end of a lease leaves every state that is neither final nor at rest.
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

/// Covers transitions diagnosed as dead, shadowed or always refused, in sound lifecycles and in others.
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
    println!("dead: {} transitions", dead_count.get());
    assert!(report.cases < CASE_COUNT || dead_count.get() > 0, "no transition is dead, so the test proves nothing");
}

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
    assert!(
        report.cases < CASE_COUNT || null_free_count.get() > 0,
        "every set may have nulls, so the test proves nothing"
    );
}
