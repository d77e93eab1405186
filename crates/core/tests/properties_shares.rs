//! The generator itself: random lifecycles are of use only if many are sound and many events are taken.

use onceward_testkit::random::{Property, Taste, run};

const CASES: u64 = 200;
const OPERATIONS: usize = 60;

/// Under a fifth of either, the other properties would say little.
const LEAST_PERCENT: u64 = 20;

#[test]
fn many_lifecycles_are_sound_and_many_events_taken() {
    let none = || -> Vec<Box<dyn Property>> { Vec::new() };
    let report = run("shares", CASES, OPERATIONS, Taste::default(), none, |_| ());
    assert!(report.sound_percent() >= LEAST_PERCENT, "only {} % of the lifecycles are sound", report.sound_percent());
    assert!(report.taken_percent() >= LEAST_PERCENT, "only {} % of the events are taken", report.taken_percent());
}
