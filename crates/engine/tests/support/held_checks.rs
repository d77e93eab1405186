//! External checks that a test holds back.

use std::sync::Arc;

use onceward_engine::CheckRegistry;
use serde_json::json;
use tokio::sync::Semaphore;

use super::{TEST_TIMEOUT, json_object};

/// Checks that approve everything, once released.
#[derive(Clone)]
pub(crate) struct HeldChecks {
    asked_count: Arc<Semaphore>,
    answer_gate: Arc<Semaphore>,
}

impl HeldChecks {
    pub(crate) fn create() -> (CheckRegistry, Self) {
        let held = Self { asked_count: Arc::new(Semaphore::new(0)), answer_gate: Arc::new(Semaphore::new(0)) };
        let own = held.clone();
        let checks = CheckRegistry::default().register("race.note", "decent", move |_| {
            let own = own.clone();
            async move {
                own.asked_count.add_permits(1);
                let _ = own.answer_gate.acquire().await;
                Ok(json_object(json!({ "fine": true })))
            }
        });
        (checks, held)
    }

    /// Waits until `count` checks wait for an answer.
    pub(crate) async fn wait_until_asked(&self, count: u32) {
        let _ = tokio::time::timeout(TEST_TIMEOUT, self.asked_count.acquire_many(count)).await.expect("no timeout");
    }

    /// Answers all checks from now on.
    pub(crate) fn release(&self) {
        self.answer_gate.add_permits(1);
    }
}
