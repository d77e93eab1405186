//! Samples the store's clock at intervals, also while no calls arrive, and logs when the store stops following it and
//! when it follows it again (decision 0047).

use std::sync::Arc;
use std::time::Duration;

use onceward_store::Store;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::shared::Shared;

/// Short against the minute after which the store follows a jump.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) async fn run<S: Store>(shared: Arc<Shared<S>>) {
    let mut was_held = false;
    loop {
        // If the store fails, the next call reports it.
        let _ = shared.store.now().await;
        let hold = shared.store.clock_status().hold;
        match hold {
            Some(hold) if !was_held => warn!(
                clock_ahead_secs = hold.deviation_micros() / 1_000_000,
                needs_operator = hold.needs_operator,
                "the clock jumped; the engine keeps its own time"
            ),
            None if was_held => {
                info!("the engine follows its clock again");
                shared.notifier.wake_all();
            }
            _ => {}
        }
        was_held = hold.is_some();
        sleep(SAMPLE_INTERVAL).await;
    }
}
