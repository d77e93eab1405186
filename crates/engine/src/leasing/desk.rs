//! The desk where candidates are handed out: no job is offered to two callers of this engine at once, and those who ask for the same
//! look once for all of them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{LeaseQuery, Store};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::Wanted;
use crate::error::EngineError;
use crate::queue::seed;
use crate::shared::Shared;
use crate::signals::Signals;

/// Others who are woken where there are more jobs than were asked for. Each of them does so in turn.
const PASS_ON: usize = 2;

/// Lists of lifecycles that are remembered.
const LISTS: usize = 64;

/// Candidates at most that are passed over because others are at them, where few are wanted at once; and where many are.
const SPREAD: usize = 64;
const WIDEST: usize = 1_000;

/// Where candidates are handed out, one caller at a time.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    /// Lists of lifecycles for which there was nothing.
    looked: tokio::sync::Mutex<HashMap<Vec<Arc<str>>, Empty>>,
    /// Candidates that somebody is about to lease.
    offered: Mutex<HashSet<RecordId>>,
    /// Who stands at the desk. Whoever has it looks for all that ask for the same, once.
    asking: Mutex<Vec<Ask>>,
    /// Among how many more candidates ours are chosen: none, unless other processes take them from under our hands.
    spread: AtomicUsize,
}

/// Somebody who waits for candidates.
#[derive(Debug)]
struct Ask {
    lifecycles: Vec<Arc<str>>,
    most: usize,
    give: oneshot::Sender<Vec<RecordId>>,
}

/// There was nothing when so much news was known. A thousand waiting workers look once, not each.
#[derive(Debug)]
struct Empty {
    news: u64,
    until: Time,
}

impl Desk {
    fn offered(&self) -> MutexGuard<'_, HashSet<RecordId>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many of those that were offered were leased. What another process was quicker at lets us look further on the next time; what
    /// was ours brings us back to the head.
    pub(super) fn went<S: Store>(&self, shared: &Shared<S>, leased: usize, offered: usize) {
        if shared.store.news().is_none() {
            return;
        }
        let spread = self.spread.load(Ordering::Relaxed);
        let next = if leased < offered {
            (spread * 2).max(16).min((4 * offered).clamp(SPREAD, WIDEST))
        } else {
            spread.saturating_sub(leased)
        };
        self.spread.store(next, Ordering::Relaxed);
    }

    /// Whoever has gone away asks no more.
    fn tidy(&self) {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner).retain(|ask| !ask.give.is_closed());
    }

    /// Those who ask for the same, in the order in which they came.
    fn asking(&self, lifecycles: &[Arc<str>]) -> Vec<Ask> {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        asking.extract_if(.., |ask| ask.lifecycles == lifecycles).filter(|ask| !ask.give.is_closed()).collect()
    }

    fn ask(&self, lifecycles: &[Arc<str>], most: usize) -> oneshot::Receiver<Vec<RecordId>> {
        let (give, given) = oneshot::channel();
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        asking.push(Ask { lifecycles: lifecycles.to_vec(), most, give });
        given
    }
}

/// Candidates that nobody else of this engine is offered meanwhile.
pub(super) struct Offer<'a> {
    desk: &'a Desk,
    signals: &'a Signals,
    lifecycles: &'a [Arc<str>],
    /// Where somebody else at the desk puts them.
    given: oneshot::Receiver<Vec<RecordId>>,
    pub(super) records: Vec<RecordId>,
    pub(super) taken: bool,
}

impl Drop for Offer<'_> {
    fn drop(&mut self) {
        // What is given to one who goes away must not be lost.
        self.given.close();
        self.records.extend(self.given.try_recv().into_iter().flatten());
        let mut offered = self.desk.offered();
        for record in &self.records {
            offered.remove(record);
        }
        drop(offered);
        // Others may have been told that there is nothing.
        if !self.taken && !self.records.is_empty() {
            self.signals.lines.wake(self.lifecycles, self.records.len());
        }
    }
}

pub(super) async fn pick<'a, S: Store>(
    shared: &'a Shared<S>,
    wanted: &'a Wanted,
    most: usize,
    news: u64,
) -> Result<Offer<'a>, EngineError> {
    let desk = &shared.desk;
    let given = desk.ask(&wanted.lifecycles, most);
    let (signals, lifecycles) = (&shared.signals, &wanted.lifecycles);
    let mut offer = Offer { desk, signals, lifecycles, given, records: Vec::new(), taken: false };
    let mut looked = desk.looked.lock().await;
    match offer.given.try_recv() {
        Ok(records) => {
            offer.records = records;
            return Ok(offer);
        }
        Err(TryRecvError::Empty) => {}
        // Whoever looked for us has failed, or gone away.
        Err(TryRecvError::Closed) => offer.given = desk.ask(&wanted.lifecycles, most),
    }
    loop {
        let now = shared.store.now().await?;
        if let Some(empty) = looked.get(&wanted.lifecycles)
            && empty.news >= news
            && now < empty.until
        {
            offer.given.close();
            desk.tidy();
            return Ok(offer);
        }
        if hand_out(shared, &wanted.lifecycles, now).await? {
            let poll = shared.signals.until_ready(now, shared.config.poll);
            let micros = i64::try_from(poll.as_micros()).unwrap_or(i64::MAX);
            let until = Time::from_micros(now.micros().saturating_add(micros));
            // Workers have a few lists between them. Where somebody makes up more, they are looked for each time, as new ones are.
            if looked.len() >= LISTS {
                looked.clear();
            }
            looked.insert(wanted.lifecycles.clone(), Empty { news, until });
        }
        match offer.given.try_recv() {
            Ok(records) => {
                offer.records = records;
                return Ok(offer);
            }
            // Those who came first had all that was looked for.
            Err(_) => offer.given = desk.ask(&wanted.lifecycles, most),
        }
    }
}

/// Look once for all who ask for the same: they have asked before the store is looked at. Whoever came too late for so many is
/// told nothing, and looks for itself when the desk is free. Whether somebody had nothing because there was no more.
async fn hand_out<S: Store>(shared: &Shared<S>, lifecycles: &[Arc<str>], now: Time) -> Result<bool, EngineError> {
    let desk = &shared.desk;
    let asks = desk.asking(lifecycles);
    // Those on offer to others are still in the list. Each will need a place in the queue: more than it has are of no use.
    let offered = desk.offered().len();
    let room = shared.config.queue.saturating_sub(offered);
    if room == 0 {
        return Err(shared.queue.overloaded());
    }
    let all = asks.iter().fold(0, |sum: usize, ask| sum.saturating_add(ask.most)).min(room);
    // One more where there is room, to know whether there are more.
    let enough = all + offered + usize::from(all < room);
    let spread = desk.spread.load(Ordering::Relaxed);
    let query = LeaseQuery { lifecycles: lifecycles.to_vec(), now, limit: enough + spread };
    let found = shared.store.leasable(&query).await?;
    let are_all = found.len() < enough;
    let mut offered = desk.offered();
    let mut free: Vec<RecordId> = found.into_iter().map(|candidate| candidate.record).collect();
    free.retain(|record| !offered.contains(record));
    // No further than there is enough after it.
    let passed = passed_over(spread.min(free.len().saturating_sub(all)))?;
    let mut free = free.into_iter().skip(passed).take(all);
    let handed: Vec<Vec<RecordId>> = asks.iter().map(|ask| free.by_ref().take(ask.most).collect()).collect();
    offered.extend(handed.iter().flatten());
    drop(offered);
    if !are_all {
        shared.signals.lines.wake(lifecycles, PASS_ON);
    }
    let mut short = false;
    for (ask, share) in asks.into_iter().zip(handed) {
        if share.is_empty() {
            short |= are_all;
            if !are_all {
                continue;
            }
        }
        if let Err(share) = ask.give.send(share) {
            // Gone meanwhile: on offer again.
            let mut offered = desk.offered();
            for record in &share {
                offered.remove(record);
            }
            drop(offered);
            shared.signals.lines.wake(lifecycles, share.len());
        }
    }
    Ok(short)
}

/// How many to pass over, at most so many: other processes choose otherwise. Rather few than many, so that the head is not left for long.
fn passed_over(most: usize) -> Result<usize, EngineError> {
    if most == 0 {
        return Ok(0);
    }
    let chance = usize::try_from(seed()? & 0xffff).unwrap_or(0);
    Ok(((most + 1) * ((chance * chance) >> 16)) >> 16)
}
