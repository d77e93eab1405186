//! One question, one answer.

use std::cell::Cell;
use std::rc::Rc;

use onceward_core::decide::{Decision, Snapshot, decide};
use onceward_testkit::random::{Batch, NoTrace, Partial, Property, Reads, Refused, Repeated, Taste, run, world};

const CASES: u64 = 60;
const OPERATIONS: usize = 80;

/// A refusal or a no-op changes no record: asked again, the answer is the same. Nor does the order of a hash map show.
#[test]
fn the_same_operation_gives_the_same_answer() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(Refused), Box::new(Repeated::default())] };
    run("same", CASES, OPERATIONS, Taste::default(), properties, |_| ());
}

/// The same operations from the same start give the same world.
#[test]
fn a_log_replays_to_the_same_world() {
    let none = || -> Vec<Box<dyn Property>> { Vec::new() };
    run("replay", CASES, OPERATIONS, Taste::default(), none, |play| {
        let mut again = Snapshot::world();
        for (operation, now) in &play.log {
            if let Decision::Changes(changes) = decide(&play.definitions, &again, operation, *now) {
                again.apply(&changes);
            }
        }
        assert_eq!(world(&again), world(&play.world), "a replayed log leads elsewhere");
    });
}

/// A partial snapshot, completed by what `decide` says is missing, decides as the whole world does.
#[test]
fn partial_snapshots_decide_the_same() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(Partial)] };
    run("partial", CASES, OPERATIONS, Taste::default(), properties, |_| ());
}

/// The keys that a decision names are all that it rests on: with nothing else loaded it is the same.
#[test]
fn reads_name_all_that_is_read() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(Reads)] };
    run("reads", CASES, OPERATIONS, Taste::default(), properties, |_| ());
}

/// Operations of a batch see each other through one snapshot as if each had been saved and loaded.
#[test]
fn a_batch_is_as_if_one_after_another() {
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(Batch::default())] };
    run("batch", CASES, OPERATIONS, Taste::default(), properties, |_| ());
}

/// A row whose require was not taken is undone whole: the outcome is as if it were not in the file.
#[test]
fn undone_rows_leave_no_trace() {
    let tried = Rc::new(Cell::new(0));
    let properties = || -> Vec<Box<dyn Property>> { vec![Box::new(NoTrace { tried: Rc::clone(&tried) })] };
    run("no trace", CASES, OPERATIONS, Taste { jitter: false, ..Taste::default() }, properties, |_| ());
    println!("no trace: {} operations had rows undone", tried.get());
    assert!(tried.get() > 0 || std::env::var_os("ONCEWARD_SEED").is_some(), "no row was ever undone");
}
