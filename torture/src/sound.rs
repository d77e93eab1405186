//! Whether a database is sound, by what ships for it.

use anyhow::Result;
use onceward_core::diagnostic::{File, Files};
use onceward_store::{AnyStore, Store as _};
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

/// `onceward verify`.
#[allow(clippy::unused_async, reason = "until verify is here")]
pub(crate) async fn verify(_store: &AnyStore) -> Result<()> {
    Ok(())
}
