//! What other processes write: a word of it lets those look who wait here.

use std::sync::Arc;

use onceward_store::Store;
use tokio::sync::watch;

use crate::shared::Shared;

pub(crate) async fn run<S: Store>(shared: Arc<Shared<S>>, mut news: watch::Receiver<u64>) {
    while news.changed().await.is_ok() {
        shared.signals.look();
    }
}
