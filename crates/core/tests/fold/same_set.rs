//! One set, one state.

use std::cell::Cell;

use onceward_core::decide::Question;
use onceward_core::fold::{Applied, LogOperation, Reason, Wait};
use onceward_testkit::fold::{Set, arrive_anyhow, compare, fold_plainly, random_set};
use onceward_testkit::random::{Chance, seeds, world};
use serde_json::{Map, Value as Json, json};

use crate::lifecycles;

const CASES: u64 = 60;
const SIZE: usize = 50;

struct Running(u64, String);

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}\nplay it again with ONCEWARD_SEED={}", self.1, self.0);
        }
    }
}

fn object(json: Json) -> Map<String, Json> {
    if let Json::Object(map) = json { map } else { Map::new() }
}

/// MSH-24: the same set of operations comes to the same state and the same verdicts: shuffled, with duplicates, in any
/// portions, with authority withdrawn and given back in between. MSH-23: a rebuilt state is the same again.
/// MSH-15, MSH-19, MSH-20, MSH-21, MSH-25: as a plain second opinion has it.
#[test]
fn one_set_comes_to_one_state() {
    let mut seen: [u64; 9] = [0; 9];
    for seed in seeds("fold", CASES) {
        let (definitions, text) = lifecycles::random(seed);
        let _running = Running(seed, text);
        let mut chance = Chance::new(seed ^ 0xf01d);
        let set = Set { definitions: &definitions, capabilities: &["Thing.Write"], size: SIZE };
        // The outside changes its mind once, and the fold is told.
        let mind = Cell::new(0_i64);
        let outside = |operation: &LogOperation, question: &Question| {
            let n = question.arguments.get("n").and_then(Json::as_i64).unwrap_or(0);
            let whim = n + mind.get() + i64::from(operation.id.0[0]);
            (whim % 8 != 4).then(|| object(json!({ "ok": whim % 3 != 1 })))
        };
        let said = random_set(&set, &outside, &mut chance);
        mind.set(7);
        let mut fold = arrive_anyhow(&set, &definitions, &said, &outside, &mut chance);
        mind.set(0);
        fold.rejudge(&outside, []).expect("nothing unknown in nothing");
        let opinion = fold_plainly(&definitions, &said, &outside);
        compare(&fold, &opinion);
        let other = arrive_anyhow(&set, &definitions, &said, &outside, &mut chance);
        assert_eq!(world(fold.world()), world(other.world()), "two ways to one set");
        fold.rebuild(&outside);
        compare(&fold, &opinion);
        for applied in opinion.applied.values() {
            seen[kind(applied)] += 1;
        }
    }
    println!("changed, nothing, waiting, unanswered, held, clock, dependency, tie, refused: {seen:?}");
    let few = seeds("fold", CASES).len() < 60;
    assert!(few || seen.iter().all(|count| *count > 0), "never seen: {seen:?}");
}

fn kind(applied: &Applied) -> usize {
    match applied {
        Applied::Changed => 0,
        Applied::Nothing(_) => 1,
        Applied::Waiting(Wait::Absent(_) | Wait::Unapplied(_)) => 2,
        Applied::Waiting(Wait::Unanswered { .. }) => 3,
        Applied::Held { .. } => 4,
        Applied::Refused(Reason::ClockReused) => 5,
        Applied::Refused(Reason::NotAfter(_) | Reason::Hopeless(_)) => 6,
        Applied::Refused(Reason::Tie { .. }) => 7,
        Applied::Refused(_) => 8,
    }
}
