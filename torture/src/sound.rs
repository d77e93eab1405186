//! Whether a database is sound, by what ships for it.

use anyhow::{Result, ensure};
use onceward_core::diagnostic::{File, Files};
use onceward_engine::Report;
use onceward_store::{AnyStore, Clock, PostgresView, SqliteView, Store as _, StoreError};
use onceward_testkit::systems;

/// The torture's own lifecycles, and relay's.
pub(crate) async fn define(store: &AnyStore) -> Result<()> {
    let file = |name: &str, text: &str| File { name: name.to_owned(), text: text.into() };
    let mut files = systems::sources("relay");
    files.push(file("task.toml", include_str!("../lifecycles/task.toml")));
    files.push(file("note.toml", include_str!("../lifecycles/note.toml")));
    store.put_definitions(&Files { files }).await?;
    Ok(())
}

/// `onceward verify` finds nothing. How many entries the log has.
pub(crate) async fn verify(place: &str) -> Result<u64> {
    let report = look(place).await?;
    let differences = || report.differences.iter().take(5).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    ensure!(report.stopped.is_none(), "verify stops: {:?}", report.stopped);
    ensure!(report.is_clean(), "verify finds {} differences: {}", report.all_differences(), differences());
    Ok(report.seq)
}

/// What `onceward verify` says.
pub(crate) async fn look(place: &str) -> Result<Report, StoreError> {
    let now = Clock::machine().now();
    if place.starts_with("postgres://") {
        return onceward_engine::verify(&PostgresView::open(place).await?, now, &mut ()).await;
    }
    onceward_engine::verify(&SqliteView::open(place)?, now, &mut ()).await
}
