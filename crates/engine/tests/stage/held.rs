//! The outside, which takes its time.

use std::sync::Arc;

use onceward_engine::Checks;
use serde_json::json;
use tokio::sync::Semaphore;

use super::{LONG, object};

/// Everything is decent, once the test lets it be said.
#[derive(Clone)]
pub(crate) struct Held {
    asked: Arc<Semaphore>,
    gate: Arc<Semaphore>,
}

impl Held {
    pub(crate) fn checks() -> (Checks, Self) {
        let held = Self { asked: Arc::new(Semaphore::new(0)), gate: Arc::new(Semaphore::new(0)) };
        let own = held.clone();
        let checks = Checks::default().on("race.note", "decent", move |_| {
            let own = own.clone();
            async move {
                own.asked.add_permits(1);
                let _ = own.gate.acquire().await;
                Ok(object(json!({ "fine": true })))
            }
        });
        (checks, held)
    }

    /// Until so many wait for an answer.
    pub(crate) async fn have_asked(&self, count: u32) {
        let _ = tokio::time::timeout(LONG, self.asked.acquire_many(count)).await.expect("in time");
    }

    /// From now on all are answered at once.
    pub(crate) fn go(&self) {
        self.gate.add_permits(1);
    }
}
