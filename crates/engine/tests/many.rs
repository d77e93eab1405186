//! Several engines on one PostgreSQL database: in one process, and in processes of their own that are killed.

#[path = "many/inbox.rs"]
mod inbox;
#[path = "many/keys.rs"]
mod keys;
#[path = "many/killed.rs"]
mod killed;
#[path = "many/prune.rs"]
mod prune;
#[path = "many/races.rs"]
mod races;
#[path = "many/shared.rs"]
mod shared;
#[path = "many/together.rs"]
mod together;
#[path = "many/versions.rs"]
mod versions;

mod stage;

use onceward_core::time::Time;
use onceward_engine::{Config, Engine, verify};
use onceward_store::{AnyStore, Clock, PostgresStore, PostgresView};

/// So many engines, each with connections of its own.
pub(crate) async fn engines(count: usize, url: &str, clock: &Clock, config: &Config) -> Vec<Engine<AnyStore>> {
    let mut engines = Vec::new();
    for _ in 0..count {
        let store = PostgresStore::open_with_clock(url, clock.clone()).await.expect("the database opens");
        engines.push(stage::open(AnyStore::Postgres(store), config.clone()).await);
    }
    engines
}

/// Everything in the database is as its log says, and every decision would be made again.
pub(crate) async fn proven(url: &str, now: Time) {
    let view = PostgresView::open(url).await.expect("the database opens");
    let report = verify(&view, now, &mut ()).await.expect("it can be read");
    assert!(report.is_clean() && report.entries > 0, "{report:#?}");
}
