//! A connection to PostgreSQL that is cut in the middle of whatever goes over it, by a proxy between the two.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use onceward_testkit::Proxy;
use onceward_testkit::postgres::Server;
use onceward_testkit::random::Chance;

use super::Bench;

/// Messages until the next cut, and cuts so far.
struct Scissors {
    chance: Chance,
    until: usize,
    cuts: usize,
    /// Once work is over everybody may speak.
    sharp: bool,
}

impl Scissors {
    /// Whether this message is the one that no longer gets through.
    fn cut(&mut self) -> bool {
        if !self.sharp {
            return false;
        }
        self.until = self.until.saturating_sub(1);
        if self.until == 0 {
            self.until = 20 + self.chance.below(150);
            self.cuts += 1;
            return true;
        }
        false
    }
}

fn locked(scissors: &Mutex<Scissors>) -> std::sync::MutexGuard<'_, Scissors> {
    scissors.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Messages both ways are lost at random, some of them in the middle: questions that never came, and answers that never came back.
pub(super) fn connection(seed: u64) -> Result<String> {
    let server = Server::start();
    let url = server.database();
    let scissors = Scissors { chance: Chance::new(seed), until: 50, cuts: 0, sharp: false };
    let scissors = Arc::new(Mutex::new(scissors));
    let judge = Arc::clone(&scissors);
    let proxy = Proxy::before(&server, move |_| locked(&judge).cut());
    let mut bench = Bench::new(&proxy.url(&url), &[], seed)?;
    // It comes up first.
    bench.work(20, "", usize::MAX)?;
    locked(&scissors).sharp = true;
    let cut = bench.work(800, "cannot be reached", usize::MAX)?;
    locked(&scissors).sharp = false;
    let cuts = locked(&scissors).cuts;
    ensure!(cuts > 10 && cut.unknown > 0, "{cuts} cuts, and {cut:?}");
    let after = bench.work(50, "cannot be reached", usize::MAX)?;
    ensure!(after.done > 20, "it did not go on: {after:?}");
    let ended = bench.end()?;
    Ok(format!("{cuts} cuts, {} left in doubt, {} done; {ended}", cut.unknown, cut.done + after.done))
}
