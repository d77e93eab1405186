//! Tests the generator: enough random lifecycles are sound, and enough events are taken.

use onceward_testkit::random::{GeneratorOptions, Property, run_cases};

const CASE_COUNT: u64 = 200;
const OPERATIONS_PER_CASE: usize = 60;

/// Below this share, the other properties would test too little.
const MIN_SHARE_PERCENT: u64 = 20;

#[test]
fn generator_yields_enough_sound_lifecycles_and_taken_events() {
    let no_properties = || -> Vec<Box<dyn Property>> { Vec::new() };
    let report =
        run_cases("shares", CASE_COUNT, OPERATIONS_PER_CASE, GeneratorOptions::default(), no_properties, |_| ());
    assert!(
        report.sound_percent() >= MIN_SHARE_PERCENT,
        "only {} % of the lifecycles are sound",
        report.sound_percent()
    );
    assert!(
        report.changed_percent() >= MIN_SHARE_PERCENT,
        "only {} % of the events are taken",
        report.changed_percent()
    );
}
