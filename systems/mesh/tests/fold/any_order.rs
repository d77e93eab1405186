//! The mesh's own lifecycles, random logs, any order of arrival.

use std::sync::Arc;

use onceward_core::decide::Question;
use onceward_core::fold::{Applied, LogOperation};
use onceward_testkit::fold::{Set, arrive_anyhow, random_set};
use onceward_testkit::random::{Chance, seeds};
use onceward_testkit::systems;
use serde_json::json;

use crate::log::EVERYTHING;

const CASES: u64 = 30;
const SIZE: usize = 80;

/// MSH-24 MSH-23: whatever nodes say, in whatever order it is heard, twice or late, with authority coming and going: the
/// same set is the same mesh.
#[test]
fn the_mesh_is_the_same_for_all() {
    let definitions = Arc::new(systems::load("mesh"));
    let outside = |operation: &LogOperation, _: &Question| {
        let whim = operation.id.0[0];
        json!({ "valid": !whim.is_multiple_of(4), "key": "x", "userBearing": whim.is_multiple_of(2), "why": "" })
            .as_object()
            .cloned()
    };
    let (mut changed, mut all) = (0, 0);
    for seed in seeds("mesh fold", CASES) {
        println!("play it again with ONCEWARD_SEED={seed}");
        let mut chance = Chance::new(seed);
        let set = Set { definitions: &definitions, capabilities: &EVERYTHING, size: SIZE };
        let said = random_set(&set, &outside, &mut chance);
        let fold = arrive_anyhow(&set, &definitions, &said, &outside, &mut chance);
        all += fold.len();
        changed += fold.operations().filter(|(_, _, applied)| **applied == Applied::Changed).count();
    }
    println!("{changed} of {all} operations changed something");
    assert!(changed * 5 > all, "hardly anything happens: {changed} of {all}");
}
