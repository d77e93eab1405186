//! Money over the real engine: random orders, failures, blocks, withdrawals, replays and grants, on stores that fail or do not tell, and engines that are dropped in the
//! middle of what they do. After every step the books are looked through. `ONCEWARD_SEED=…` plays one case again.

#[path = "../../../../crates/engine/tests/stage/troubled.rs"]
#[allow(dead_code, reason = "the engine's own tests use all of it")]
mod troubled;

mod books;
mod house;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use onceward_core::time::Time;
use onceward_engine::verify;
use onceward_store::{
    Batch, Clock, Conflict, MemoryStore, PostgresStore, PostgresView, Save, Scan, SqliteStore, SqliteView, Store,
    StoreError,
};
use onceward_testkit::Folder;
use onceward_testkit::postgres::Server;
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

/// One save in five comes to nothing: the database is gone, or busy, or somebody else was quicker. Of the others one in eight is done, and
/// the answer is lost.
fn troubled<S>(inner: S, chance: &Arc<Mutex<Chance>>) -> Troubled<S> {
    let roll = |chance: &Mutex<Chance>, sides| chance.lock().unwrap_or_else(PoisonError::into_inner).below(sides);
    let (before, after) = (Arc::clone(chance), Arc::clone(chance));
    let trouble = move |_: &Batch| match roll(&before, 15) {
        0 => Some(Err(StoreError::Unavailable("for a moment".to_owned()))),
        1 => Some(Err(StoreError::Busy)),
        2 => Some(Ok(Save::Conflict(Conflict::default()))),
        _ => None,
    };
    Troubled::new(inner, trouble).losing(move |_| roll(&after, 8) == 0)
}

/// Some steps, the books looked through after each; what was reached.
async fn live<S: Store + 'static>(mut house: House<S>) -> BTreeSet<String> {
    for _ in 0..STEPS {
        house.step().await;
        books::balance(&house).await;
    }
    let reached = house.reached().await;
    house.close().await;
    reached
}

async fn verified(store: &impl Scan, clock: &Clock) {
    let report = verify(store, clock.now(), &mut ()).await.expect("it can be read");
    assert!(report.is_clean() && report.stopped.is_none(), "{report:#?}");
}

/// So many cases on a store, each with a seed of its own.
fn play(usual: u64, case: impl AsyncFn(u64, Clock, Arc<Mutex<Chance>>) -> BTreeSet<String>) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    for seed in seeds(usual) {
        println!("ONCEWARD_SEED={seed}");
        let chance = Arc::new(Mutex::new(Chance::new(seed)));
        reached.extend(wait(case(seed, Clock::manual(start()), chance)));
    }
    reached
}

/// IMG-13: on a store that fails, also after it has written, and under engines that die, the sum over all accounts and holds is nothing after every step, no job that has
/// ended holds credits, and everybody's statement adds up to the balance; and whoever asks again where no answer came pays once.
#[test]
fn the_books_balance_on_a_store_that_fails() {
    let reached = play(12, async |seed, clock, chance| {
        let memory = MemoryStore::new(clock.clone());
        let store = troubled(memory.clone(), &chance);
        let reached = live(House::open(clock.clone(), seed, move || Ok(store.clone())).await).await;
        verified(&memory, &clock).await;
        reached
    });
    if number("ONCEWARD_SEED").is_none() && number("ONCEWARD_CASES").is_none() {
        let all = [
            "completed",
            "rejected",
            "dead_letter",
            "a replay",
            "withdrawn",
            "withdrawn after a failure",
            "a crash",
            "a call made again",
        ];
        for what in all {
            assert!(reached.contains(what), "nothing was shown about {what}: {reached:?}");
        }
    }
}

/// IMG-13: the same in a database file that is opened again after every death, and `verify` finds nothing to say about it.
#[test]
fn the_books_balance_in_a_file() {
    let reached = play(4, async |seed, clock, chance| {
        let folder = Folder::new();
        let (file, time) = (folder.file(), clock.clone());
        let open = move || Ok(troubled(SqliteStore::open(&file, time.clone())?, &chance));
        let reached = live(House::open(clock.clone(), seed, open).await).await;
        verified(&SqliteView::open(folder.file()).expect("it opens"), &clock).await;
        reached
    });
    assert!(reached.contains("a call made again"), "{reached:?}");
}

/// IMG-13: the same on a real server.
#[test]
fn the_books_balance_on_a_server() {
    let reached = play(3, async |seed, clock, chance| {
        let url = Server::shared().database();
        let store = PostgresStore::open_with_clock(&url, clock.clone()).await.expect("a new database");
        let store = troubled(store, &chance);
        let reached = live(House::open(clock.clone(), seed, move || Ok(store.clone())).await).await;
        verified(&PostgresView::open(&url).await.expect("it opens"), &clock).await;
        reached
    });
    assert!(reached.contains("a call made again"), "{reached:?}");
}
