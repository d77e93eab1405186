//! What the checker promises, held against what happens.

use onceward_testkit::random::{Orphans, Property, Sound, Taste, run};

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
