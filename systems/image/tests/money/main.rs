//! Money over the real engine: random orders, failures, blocks, withdrawals, replays and grants, on stores that fail and engines that are dropped in the
//! middle of what they do. After every step the books are looked through. `ONCEWARD_SEED=…` plays one case again.

#[path = "../../../../crates/engine/tests/stage/troubled.rs"]
#[allow(dead_code, reason = "the engine's own tests use all of it")]
mod troubled;

mod books;
mod house;

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use onceward_core::time::Time;
use onceward_engine::verify;
use onceward_store::{Batch, Clock, Conflict, MemoryStore, Save, SqliteStore, SqliteView, StoreError};
use onceward_testkit::Folder;
use onceward_testkit::random::Chance;

use house::House;
use troubled::Troubled;

const STEPS: usize = 120;

fn start() -> Time {
    "2026-11-15T20:00:00Z".parse().expect("a time as we write them")
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// The seeds to play: the one that is asked for, or so many.
fn seeds(usual: u64) -> Vec<u64> {
    match number("ONCEWARD_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("ONCEWARD_CASES").map_or(usual, |cases| cases.clamp(1, usual))).collect(),
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// One save in five comes to nothing: the database is gone, or busy, or somebody else was quicker.
fn trouble(seed: u64) -> impl Fn(&Batch) -> Option<Result<Save, StoreError>> + Send + Sync {
    let chance = Mutex::new(Chance::new(seed));
    move |_| match chance.lock().unwrap_or_else(PoisonError::into_inner).below(15) {
        0 => Some(Err(StoreError::Unavailable("for a moment".to_owned()))),
        1 => Some(Err(StoreError::Busy)),
        2 => Some(Ok(Save::Conflict(Conflict::default()))),
        _ => None,
    }
}

/// IMG-13: on a store that fails and under engines that die, the sum over all accounts and holds is nothing after every step, no job that has
/// ended holds credits, and everybody's statement adds up to the balance.
#[test]
fn the_books_balance_on_a_store_that_fails() {
    let mut reached = BTreeSet::new();
    for seed in seeds(12) {
        println!("ONCEWARD_SEED={seed}");
        let clock = Clock::manual(start());
        let store = Troubled::new(MemoryStore::new(clock.clone()), trouble(seed));
        wait(async {
            let mut house = House::open(clock, seed, move || Ok(store.clone())).await;
            for _ in 0..STEPS {
                house.step().await;
                books::balance(&house).await;
            }
            reached.extend(house.reached().await);
            house.close().await;
        });
    }
    if number("ONCEWARD_SEED").is_none() && number("ONCEWARD_CASES").is_none() {
        let all =
            ["completed", "rejected", "dead_letter", "a replay", "withdrawn", "withdrawn after a failure", "a crash"];
        for what in all {
            assert!(reached.contains(what), "nothing was shown about {what}: {reached:?}");
        }
    }
}

/// IMG-13: the same in a database file that is opened again after every death, and `verify` finds nothing to say about it.
#[test]
fn the_books_balance_in_a_file() {
    for seed in seeds(4) {
        println!("ONCEWARD_SEED={seed}");
        let (clock, folder) = (Clock::manual(start()), Folder::new());
        let (file, time) = (folder.file(), clock.clone());
        wait(async {
            let mut house = House::open(clock.clone(), seed, move || SqliteStore::open(&file, time.clone())).await;
            for _ in 0..STEPS {
                house.step().await;
                books::balance(&house).await;
            }
            house.close().await;
        });
        let view = SqliteView::open(folder.file()).expect("it opens");
        let report = wait(verify(&view, clock.now(), &mut ())).expect("it can be read");
        assert!(report.is_clean() && report.stopped.is_none(), "{report:#?}");
    }
}
