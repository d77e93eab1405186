//! Undamaged PostgreSQL databases verify clean.

use onceward_store::{Clock, PostgresScanner, PostgresStore, StoreError};
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::random::theme_seeds;

use crate::support::{block_on, start_time};
use crate::test_database::{PrintSeedOnPanic, fill_randomly};

/// INV-1, INV-3, INV-4, INV-7
#[test]
fn verify_is_clean_on_postgresql() {
    for seed in theme_seeds("verify postgres", 1) {
        let _running = PrintSeedOnPanic(seed);
        block_on(async {
            let url = PostgresServer::shared().create_database();
            let store =
                PostgresStore::open_with_clock(&url, Clock::manual(start_time())).await.expect("a new database");
            let latest = fill_randomly(&store, seed, 60).await;
            let view = PostgresScanner::open(&url).await.expect("it opens");
            let report = onceward_engine::verify(&view, latest, &mut ()).await.expect("the read succeeds");
            println!("{} entries, {} rows", report.entries, report.rows);
            assert!(report.is_clean() && report.not_redecided == 0 && report.entries > 100, "{report:#?}");
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn scanner_rejects_database_without_schema() {
    let found = PostgresScanner::open(&PostgresServer::shared().create_database()).await;
    assert!(matches!(found, Err(StoreError::ForeignDatabase(_))), "{found:?}");
}
