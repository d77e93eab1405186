//! Money over the real engine: random orders, failures, blocks, withdrawals, replays and grants, on stores that fail or do not tell, and engines that are dropped in the
//! middle of what they do. After every step the books are looked through. `ONCEWARD_SEED=…` plays one case again.

#[path = "../../../../crates/engine/tests/support/faulty_store.rs"]
#[allow(dead_code, reason = "the engine's own tests use all of it")]
mod faulty_store;

mod ledger_invariants;
mod random_market;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use onceward_core::time::Time;
use onceward_engine::verify;
use onceward_store::{
    Batch, Clock, MemoryStore, PostgresScanner, PostgresStore, SaveConflict, SaveResult, Scan, SqliteScanner,
    SqliteStore, Store, StoreError,
};
use onceward_testkit::TempDir;
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::random::Rng;

use faulty_store::FaultyStore;
use random_market::RandomMarket;

const STEPS_PER_CASE: usize = 120;

fn start_time() -> Time {
    "2026-11-15T20:00:00Z".parse().expect("a time as we write them")
}

fn env_number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// The seeds to play: the one that is asked for, or so many.
fn case_seeds(default_cases: u64) -> Vec<u64> {
    match env_number("ONCEWARD_SEED") {
        Some(seed) => vec![seed],
        None => {
            (1..=env_number("ONCEWARD_CASES").map_or(default_cases, |cases| cases.clamp(1, default_cases))).collect()
        }
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// One save in five comes to nothing: the database is gone, or busy, or somebody else was quicker. Of the others one in eight is done, and
/// the answer is lost.
fn make_faulty<S>(inner: S, rng: &Arc<Mutex<Rng>>) -> FaultyStore<S> {
    let roll = |chance: &Mutex<Rng>, sides| chance.lock().unwrap_or_else(PoisonError::into_inner).below(sides);
    let (before, after) = (Arc::clone(rng), Arc::clone(rng));
    let fault = move |_: &Batch| match roll(&before, 15) {
        0 => Some(Err(StoreError::Unavailable("for a moment".to_owned()))),
        1 => Some(Err(StoreError::Busy)),
        2 => Some(Ok(SaveResult::Conflict(SaveConflict::default()))),
        _ => None,
    };
    FaultyStore::new(inner, fault).with_lost_replies(move |_| roll(&after, 8) == 0)
}

/// Some steps, the books looked through after each; what was reached.
async fn run_steps<S: Store + 'static>(mut market: RandomMarket<S>) -> BTreeSet<String> {
    for _ in 0..STEPS_PER_CASE {
        market.step().await;
        ledger_invariants::assert_balanced(&market).await;
    }
    let reached = market.reached_outcomes().await;
    market.close().await;
    reached
}

async fn assert_verified(store: &impl Scan, clock: &Clock) {
    let report = verify(store, clock.now(), &mut ()).await.expect("it can be read");
    assert!(report.is_clean() && report.stopped.is_none(), "{report:#?}");
}

/// So many cases on a store, each with a seed of its own.
fn run_cases(
    default_cases: u64,
    case: impl AsyncFn(u64, Clock, Arc<Mutex<Rng>>) -> BTreeSet<String>,
) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    for seed in case_seeds(default_cases) {
        println!("ONCEWARD_SEED={seed}");
        let rng = Arc::new(Mutex::new(Rng::new(seed)));
        reached.extend(block_on(case(seed, Clock::manual(start_time()), rng)));
    }
    reached
}

/// IMG-13: on a store that fails, also after it has written, and under engines that die, the sum over all accounts and holds is nothing after every step, no job that has
/// ended holds credits, and everybody's statement adds up to the balance; and whoever asks again where no answer came pays once.
#[test]
fn ledger_balances_with_failing_store() {
    let reached = run_cases(12, async |seed, clock, chance| {
        let memory = MemoryStore::new(clock.clone());
        let store = make_faulty(memory.clone(), &chance);
        let reached = run_steps(RandomMarket::open(clock.clone(), seed, move || Ok(store.clone())).await).await;
        assert_verified(&memory, &clock).await;
        reached
    });
    if env_number("ONCEWARD_SEED").is_none() && env_number("ONCEWARD_CASES").is_none() {
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
fn ledger_balances_in_sqlite_across_crashes() {
    let reached = run_cases(4, async |seed, clock, chance| {
        let folder = TempDir::new();
        let (file, time) = (folder.database_path(), clock.clone());
        let open = move || Ok(make_faulty(SqliteStore::open(&file, time.clone())?, &chance));
        let reached = run_steps(RandomMarket::open(clock.clone(), seed, open).await).await;
        assert_verified(&SqliteScanner::open(folder.database_path()).expect("it opens"), &clock).await;
        reached
    });
    assert!(reached.contains("a call made again"), "{reached:?}");
}

/// IMG-13: the same on a real server.
#[test]
fn ledger_balances_in_postgres() {
    let reached = run_cases(3, async |seed, clock, chance| {
        let url = PostgresServer::shared().create_database();
        let store = PostgresStore::open_with_clock(&url, clock.clone()).await.expect("a new database");
        let store = make_faulty(store, &chance);
        let reached = run_steps(RandomMarket::open(clock.clone(), seed, move || Ok(store.clone())).await).await;
        assert_verified(&PostgresScanner::open(&url).await.expect("it opens"), &clock).await;
        reached
    });
    assert!(reached.contains("a call made again"), "{reached:?}");
}
