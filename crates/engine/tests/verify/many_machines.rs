//! The same on PostgreSQL, a real server.

use onceward_store::{Clock, PostgresStore, PostgresView, StoreError};
use onceward_testkit::postgres::Server;
use onceward_testkit::random::seeds;

use crate::built::{Running, fill};
use crate::stage::{start, wait};

/// INV-1, INV-3, INV-4, INV-7: nothing differs in what random play of all systems has left on PostgreSQL.
#[test]
fn nothing_is_wrong_with_a_postgresql_database() {
    for seed in seeds("verify postgres", 1) {
        let _running = Running(seed);
        wait(async {
            let url = Server::shared().database();
            let store = PostgresStore::open_with_clock(&url, Clock::manual(start())).await.expect("a new database");
            let latest = fill(&store, seed, 60).await;
            let view = PostgresView::open(&url).await.expect("it opens");
            let report = onceward_engine::verify(&view, latest, &mut ()).await.expect("it can be read");
            println!("{} entries, {} rows", report.entries, report.rows);
            assert!(report.is_clean() && report.undecided == 0 && report.entries > 100, "{report:#?}");
        });
    }
}

/// A database without our schema is refused.
#[test]
fn a_view_wants_our_schema() {
    wait(async {
        let found = PostgresView::open(&Server::shared().database()).await;
        assert!(matches!(found, Err(StoreError::NoDatabase(_))), "{found:?}");
    });
}
