//! Cuts connections to PostgreSQL at random messages, with a proxy in between.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use onceward_testkit::PostgresProxy;
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::random::Rng;

use super::FaultHarness;

/// Counts messages up to the next cut, and the cuts so far.
struct ConnectionCutter {
    rng: Rng,
    messages_until_cut: usize,
    cuts: usize,
    /// False before the load starts and after it ends.
    enabled: bool,
}

impl ConnectionCutter {
    /// Returns whether to cut the connection instead of forwarding this message.
    fn should_cut(&mut self) -> bool {
        if !self.enabled {
            return false;
        }
        self.messages_until_cut = self.messages_until_cut.saturating_sub(1);
        if self.messages_until_cut == 0 {
            self.messages_until_cut = 20 + self.rng.below(150);
            self.cuts += 1;
            return true;
        }
        false
    }
}

fn lock_cutter(cutter: &Mutex<ConnectionCutter>) -> std::sync::MutexGuard<'_, ConnectionCutter> {
    cutter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops random messages in both directions, some of them partially sent: requests that never arrive, and replies that
/// are lost.
pub(super) fn cut_connection(seed: u64) -> Result<String> {
    let server = PostgresServer::start();
    let url = server.create_database();
    let cutter = ConnectionCutter { rng: Rng::new(seed), messages_until_cut: 50, cuts: 0, enabled: false };
    let cutter = Arc::new(Mutex::new(cutter));
    let decider = Arc::clone(&cutter);
    let proxy = PostgresProxy::cutting(&server, move |_| lock_cutter(&decider).should_cut());
    let mut harness = FaultHarness::new(&proxy.url(&url), &[], seed)?;
    // The engine opens without cuts.
    harness.run_requests(20, "", usize::MAX)?;
    lock_cutter(&cutter).enabled = true;
    let cut = harness.run_requests(800, "cannot be reached", usize::MAX)?;
    lock_cutter(&cutter).enabled = false;
    let cuts = lock_cutter(&cutter).cuts;
    ensure!(cuts > 10 && cut.unknown > 0, "{cuts} cuts, but {cut:?}");
    let after = harness.run_requests(50, "cannot be reached", usize::MAX)?;
    ensure!(after.done > 20, "work did not continue: {after:?}");
    let ended = harness.finish()?;
    Ok(format!("{cuts} cuts, {} unknown outcomes, {} done; {ended}", cut.unknown, cut.done + after.done))
}
