//! Undamaged databases verify clean, and are re-decided with the same result.

use std::cell::Cell;

use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_store::{Clock, MemoryStore};
use onceward_testkit::random::{GeneratorOptions, generate_lifecycles, theme_seeds};

use crate::scripted_systems;
use crate::support::{block_on, start_time, system_files};
use crate::test_database::{
    PrintSeedOnPanic, TestDatabase, fill_randomly, random_operations, verify_file, verify_store,
};

/// INV-1, INV-3, INV-4, INV-7
#[test]
fn verify_is_clean_after_random_operations() {
    for seed in theme_seeds("verify clean", 3) {
        let _running = PrintSeedOnPanic(seed);
        let built = TestDatabase::new(seed, 200);
        let report = verify_file(&built.path(), built.latest_time);
        println!("seed {seed}: {report:?}");
        assert!(report.is_clean(), "{report:#?}");
        assert!(report.entries > 100 && report.redecided > 100 && report.rows > 300);
        assert_eq!((report.not_redecided, report.changed_while_read), (0, 0));
        // The simulation decides operations of one batch at different times; a stored refusal has the time of its
        // batch.
        assert!(report.other_refusals <= 2, "{}", report.other_refusals);
    }
}

#[test]
fn verify_is_clean_on_memory_store() {
    for seed in theme_seeds("verify memory", 2) {
        let _running = PrintSeedOnPanic(seed);
        let store = MemoryStore::new(Clock::manual(start_time()));
        let latest = block_on(fill_randomly(&store, seed, 100));
        let report = verify_store(&store, latest);
        assert!(report.is_clean() && report.entries > 100, "{report:#?}");
    }
}

/// INV-1, INV-3, INV-7: their operations change many records.
#[test]
fn verify_is_clean_after_scripted_systems() {
    let shared = Cell::new(0);
    let assert_clean = |name: &'static str| {
        let shared = &shared;
        move |operations: scripted_systems::OperationLog| {
            let built = TestDatabase::from_operations(&system_files(name), &operations, 1);
            let report = verify_file(&built.path(), built.latest_time);
            println!("{name}: {} entries, {} operations, {} records", report.entries, report.redecided, report.records);
            assert!(report.is_clean() && report.not_redecided == 0, "{report:#?}");
            shared.set(shared.get() + report.entries - report.redecided);
        }
    };
    assert_clean("relay")(scripted_systems::play_relay());
    assert!(shared.get() > 15, "operations change several records");
    scripted_systems::play_image(3, assert_clean("image"));
}

/// INV-1, INV-3, INV-7
#[test]
fn verify_is_clean_on_random_lifecycles() {
    let mut cases = 0;
    for seed in theme_seeds("verify lifecycles", 25) {
        let _running = PrintSeedOnPanic(seed);
        let files = generate_lifecycles(seed, GeneratorOptions { careless_percent: 0, ..GeneratorOptions::default() })
            .into_iter();
        let files = InputFiles { files: files.map(|(name, text)| InputFile { name, text: text.into() }).collect() };
        if onceward_core::load_definitions(&files).is_err() {
            continue;
        }
        let built = TestDatabase::from_operations(&files, &random_operations(&files, seed, 150), seed);
        let report = verify_file(&built.path(), built.latest_time);
        assert!(report.is_clean() && report.not_redecided == 0, "{report:#?}");
        cases += 1;
    }
    assert!(cases > 0, "no generated case is valid");
}
