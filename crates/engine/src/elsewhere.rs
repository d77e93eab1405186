//! Wakes local pollers, timers and streams when another process commits.

use std::sync::Arc;

use onceward_store::Store;
use tokio::sync::watch;

use crate::shared::Shared;

pub(crate) async fn forward_remote_changes<S: Store>(shared: Arc<Shared<S>>, mut changes: watch::Receiver<u64>) {
    while changes.changed().await.is_ok() {
        shared.notifier.on_remote_change();
    }
}
