//! Verifies databases with `onceward verify`'s own code.

use anyhow::{Result, ensure};
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_engine::VerifyReport;
use onceward_store::{AnyStore, Clock, PostgresScanner, SqliteScanner, Store as _, StoreError};
use onceward_testkit::systems;

/// Puts the torture tests' own lifecycles and relay's.
pub(crate) async fn put_lifecycles(store: &AnyStore) -> Result<()> {
    let file = |name: &str, text: &str| InputFile { name: name.to_owned(), text: text.into() };
    let mut files = systems::source_files("relay");
    files.push(file("task.toml", include_str!("../lifecycles/task.toml")));
    files.push(file("note.toml", include_str!("../lifecycles/note.toml")));
    store.put_lifecycles(&InputFiles { files }).await?;
    Ok(())
}

/// Fails if verify finds a difference. Returns the number of log entries.
pub(crate) async fn assert_clean(database: &str) -> Result<u64> {
    let report = run_verify(database).await?;
    let differences = || report.differences.iter().take(5).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    ensure!(report.stopped.is_none(), "verify failed: {:?}", report.stopped);
    ensure!(report.is_clean(), "verify finds {} differences: {}", report.total_differences(), differences());
    Ok(report.seq)
}

/// Runs verify.
pub(crate) async fn run_verify(database: &str) -> Result<VerifyReport, StoreError> {
    let now = Clock::machine().now();
    if database.starts_with("postgres://") {
        return onceward_engine::verify(&PostgresScanner::open(database).await?, now, &mut ()).await;
    }
    onceward_engine::verify(&SqliteScanner::open(database)?, now, &mut ()).await
}
