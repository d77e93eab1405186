//! Several engines on one PostgreSQL database: in one process, and in processes that are killed.

mod api_keys;
mod crash;
mod cross_engine;
mod inbox;
mod lifecycle_versions;
mod prune;
mod races;
mod shared_work;

#[path = "../support/mod.rs"]
mod support;

use onceward_core::time::Time;
use onceward_engine::{Engine, EngineConfig, verify};
use onceward_store::{AnyStore, Clock, PostgresScanner, PostgresStore};

/// Opens engines with separate connections.
pub(crate) async fn open_engines(
    count: usize,
    url: &str,
    clock: &Clock,
    config: &EngineConfig,
) -> Vec<Engine<AnyStore>> {
    let mut engines = Vec::new();
    for _ in 0..count {
        let store = PostgresStore::open_with_clock(url, clock.clone()).await.expect("the database opens");
        engines.push(support::open_engine(AnyStore::Postgres(store), config.clone()).await);
    }
    engines
}

/// Asserts that the database verifies clean.
pub(crate) async fn assert_verified(url: &str, now: Time) {
    let view = PostgresScanner::open(url).await.expect("the database opens");
    let report = verify(&view, now, &mut ()).await.expect("the read succeeds");
    assert!(report.is_clean() && report.entries > 0, "{report:#?}");
}
