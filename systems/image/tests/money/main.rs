//! Ledger tests with the real engine: random orders, failures, blocks, withdrawals, replays and grants, on stores that
//! fail or lose replies, with engines that are dropped at random. Each step checks the ledger invariants.
//! `ONCEWARD_SEED=…` replays one case.

#[path = "../../../../crates/engine/tests/support/faulty_store.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
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
    "2026-11-15T20:00:00Z".parse().expect("a valid time")
}

fn env_number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// Returns the seed from the environment, or `default_cases` seeds.
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

/// Wraps a store so that one save in five fails with an error, a busy database or a conflict. Of the others, one in
/// eight succeeds but loses its reply.
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

/// Runs the steps and checks the invariants after each; returns the reached outcomes.
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
    let report = verify(store, clock.now(), &mut ()).await.expect("the store can be read");
    assert!(report.is_clean() && report.stopped.is_none(), "{report:#?}");
}

/// Runs the cases, each with its own seed.
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

/// IMG-13: saves fail, also after they have written, and engines are dropped. After every step the sum over all
/// accounts and holds is zero, no ended job holds credits, and every statement adds up to its balance. A caller that
/// retries after a lost reply pays once.
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
            "a repeated call",
        ];
        for what in all {
            assert!(reached.contains(what), "no case reached {what}: {reached:?}");
        }
    }
}

/// IMG-13: the file is reopened after every crash, and `verify` finds no difference.
#[test]
fn ledger_balances_in_sqlite_across_crashes() {
    let reached = run_cases(4, async |seed, clock, chance| {
        let folder = TempDir::new();
        let (file, time) = (folder.database_path(), clock.clone());
        let open = move || Ok(make_faulty(SqliteStore::open(&file, time.clone())?, &chance));
        let reached = run_steps(RandomMarket::open(clock.clone(), seed, open).await).await;
        assert_verified(&SqliteScanner::open(folder.database_path()).expect("the database opens"), &clock).await;
        reached
    });
    assert!(reached.contains("a repeated call"), "{reached:?}");
}

/// IMG-13
#[test]
fn ledger_balances_in_postgres() {
    let reached = run_cases(3, async |seed, clock, chance| {
        let url = PostgresServer::shared().create_database();
        let store = PostgresStore::open_with_clock(&url, clock.clone()).await.expect("a new database");
        let store = make_faulty(store, &chance);
        let reached = run_steps(RandomMarket::open(clock.clone(), seed, move || Ok(store.clone())).await).await;
        assert_verified(&PostgresScanner::open(&url).await.expect("the database opens"), &clock).await;
        reached
    });
    assert!(reached.contains("a repeated call"), "{reached:?}");
}
