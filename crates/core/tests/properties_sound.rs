//! What the checker promises, held against what happens.

use std::cell::Cell;
use std::rc::Rc;

use onceward_testkit::random::{Dead, Nulls, Orphans, Property, Sound, Taste, run};

const CASES: u64 = 200;
const OPERATIONS: usize = 150;

/// A lifecycle that the checker calls sound never faults on the engine's own events: no record is stuck, what is leasable
/// is leased, failures, finishes and timers are always taken, a leased state answers its commit.
#[test]
fn sound_lifecycles_never_fault() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(Sound)] };
    run("sound", CASES, OPERATIONS, Taste { wild: 20, ..Taste::default() }, properties, |_| ());
}

/// From every state that is neither final nor at rest, a timer, a lease or its end moves the record on.
#[test]
fn sound_lifecycles_have_no_orphans() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(Orphans)] };
    run("orphans", CASES, OPERATIONS, Taste { wild: 20, ..Taste::default() }, properties, |_| ());
}

/// A row that the checker calls dead, shadowed or always refused is never taken, in sound lifecycles and in others.
#[test]
fn dead_rows_are_never_taken() {
    let met = Rc::new(Cell::new(0));
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(Dead::counted(&met))] };
    let report = run("dead", CASES, OPERATIONS, Taste { wild: 20, ..Taste::default() }, properties, |_| ());
    println!("dead: {} rows", met.get());
    assert!(report.cases < CASES || met.get() > 0, "no row was called dead, so nothing was shown");
}

/// Where the checker finds no operand that may be null, no caller is told of one.
#[test]
fn callers_meet_no_null_that_was_not_foretold() {
    let met = Rc::new(Cell::new(0));
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(Nulls::counted(&met))] };
    let report = run("nulls", CASES, OPERATIONS, Taste { wild: 20, ..Taste::default() }, properties, |_| ());
    println!("nulls: {} sets without", met.get());
    assert!(report.cases < CASES || met.get() > 0, "every set may have nulls, so nothing was shown");
}
