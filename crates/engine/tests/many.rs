//! Several engines on one PostgreSQL database: in one process, and in processes of their own that are killed.

#[path = "many/inbox.rs"]
mod inbox;
#[path = "many/killed.rs"]
mod killed;
#[path = "many/races.rs"]
mod races;
#[path = "many/together.rs"]
mod together;

mod stage;

use onceward_engine::{Config, Engine};
use onceward_store::{AnyStore, Clock, PostgresStore};

/// So many engines, each with connections of its own.
pub(crate) async fn engines(count: usize, url: &str, clock: &Clock, config: &Config) -> Vec<Engine<AnyStore>> {
    let mut engines = Vec::new();
    for _ in 0..count {
        let store = PostgresStore::open_with_clock(url, clock.clone()).await.expect("the database opens");
        engines.push(stage::open(AnyStore::Postgres(store), config.clone()).await);
    }
    engines
}
