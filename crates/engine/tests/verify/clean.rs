//! What nobody has harmed is clean, and is decided again just so.

use std::cell::Cell;

use onceward_core::diagnostic::{File, Files};
use onceward_store::{Clock, MemoryStore};
use onceward_testkit::random::{Taste, lifecycles, seeds};

use crate::built::{Built, Running, examined, fill, looked_through, played};
use crate::stage::{start, system, wait};
use crate::wandered;

/// INV-1, INV-3, INV-4, INV-7: nothing differs in what random play of all systems has left, nor has any decision drifted.
#[test]
fn nothing_is_wrong_with_a_database_that_nobody_has_harmed() {
    for seed in seeds("verify clean", 3) {
        let _running = Running(seed);
        let built = Built::new(seed, 200);
        let report = looked_through(&built.path(), built.latest);
        println!("seed {seed}: {report:?}");
        assert!(report.is_clean(), "{report:#?}");
        assert!(report.entries > 100 && report.decided > 100 && report.rows > 300);
        assert_eq!((report.undecided, report.too_young), (0, 0));
        // The play decides operations of one batch at different moments, and a refusal is told as of its batch's own.
        assert!(report.other_refusals <= 2, "{}", report.other_refusals);
    }
}

/// The reference model can be looked through as well.
#[test]
fn nothing_is_wrong_with_the_reference_model() {
    for seed in seeds("verify memory", 2) {
        let _running = Running(seed);
        let store = MemoryStore::new(Clock::manual(start()));
        let latest = wait(fill(&store, seed, 100));
        let report = examined(&store, latest);
        assert!(report.is_clean() && report.entries > 100, "{report:#?}");
    }
}

/// INV-1, INV-3, INV-7: the same of relay and image, played as people would; operations reach many records there.
#[test]
fn nothing_is_wrong_after_people_have_played() {
    let shared = Cell::new(0);
    let look = |name: &'static str| {
        let shared = &shared;
        move |operations: wandered::Played| {
            let built = Built::of(&system(name), &operations, 1);
            let report = looked_through(&built.path(), built.latest);
            println!("{name}: {} entries, {} operations, {} records", report.entries, report.decided, report.records);
            assert!(report.is_clean() && report.undecided == 0, "{report:#?}");
            shared.set(shared.get() + report.entries - report.decided);
        }
    };
    look("relay")(wandered::relay());
    assert!(shared.get() > 15, "operations change several records");
    wandered::image(3, look("image"));
}

/// INV-1, INV-3, INV-7: the same of lifecycles that chance has written.
#[test]
fn nothing_is_wrong_with_random_lifecycles() {
    let mut cases = 0;
    for seed in seeds("verify lifecycles", 25) {
        let _running = Running(seed);
        let files = lifecycles(seed, Taste { wild: 0, ..Taste::default() }).into_iter();
        let files = Files { files: files.map(|(name, text)| File { name, text: text.into() }).collect() };
        if onceward_core::load(&files).is_err() {
            continue;
        }
        let built = Built::of(&files, &played(&files, seed, 150), seed);
        let report = looked_through(&built.path(), built.latest);
        assert!(report.is_clean() && report.undecided == 0, "{report:#?}");
        cases += 1;
    }
    assert!(cases > 0, "no case was sound");
}
