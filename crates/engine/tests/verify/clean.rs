//! What nobody has harmed is clean, and is decided again just so.

use onceward_store::{Clock, MemoryStore};
use onceward_testkit::random::seeds;

use crate::built::{Built, Running, examined, fill, looked_through};
use crate::stage::{start, wait};

/// INV-1, INV-3, INV-4, INV-7: nothing differs in what random play of all systems has left, nor has any decision drifted.
#[test]
fn nothing_is_wrong_with_a_database_that_nobody_has_harmed() {
    for seed in seeds("verify clean", 3) {
        let _running = Running(seed);
        let built = Built::new(seed, 200);
        let before = std::time::Instant::now();
        let report = looked_through(&built.path(), built.latest);
        println!("{:?}", before.elapsed());
        println!("seed {seed}: {report:?}");
        assert!(report.is_clean(), "{report:#?}");
        assert!(report.entries > 100 && report.decided > 100 && report.rows > 300);
        assert_eq!((report.undecided, report.other_refusals, report.too_young), (0, 0, 0));
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
