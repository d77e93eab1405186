//! Who waits for jobs, and who is woken when there may be some: as many as there may be jobs, and those first who came first. Two
//! thousand workers wait at the price of one.
//!
//! Whoever is woken looks, or passes its turn on: a job for which somebody was woken is never left lying because that one went away.
//!
//! Whoever has looked and found nothing leaves a wish: a batch that makes a job for it leases it the job right there. A wish stands only
//! as long as nothing else is known to be there, since what waits goes first.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, oneshot};

use crate::leasing::{Leased, Wish};

#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Raised before anybody is woken: what was looked at before that may be out of date.
    news: AtomicU64,
    /// Those who ask for the same stand in one line.
    by_list: Mutex<HashMap<Vec<Arc<str>>, Arc<Line>>>,
    /// Wishes that were made so far: whoever came first is served first.
    wished: AtomicU64,
    /// Wishes that stand. A batch for which there is none need not look at the lines.
    standing: AtomicUsize,
}

#[derive(Debug, Default)]
struct Line {
    told: Arc<Notify>,
    waiting: AtomicUsize,
    wishes: Mutex<BTreeMap<u64, Standing>>,
}

#[derive(Debug)]
struct Standing {
    wish: Wish,
    give: oneshot::Sender<Given>,
}

/// What came of a wish.
#[derive(Debug)]
pub(crate) enum Given {
    Jobs(Vec<Leased>),
    /// Somebody meant to grant it: whether anything of that was saved may not be known.
    Failed,
    /// It stands no longer.
    Ended,
}

impl Line {
    fn wishes(&self) -> MutexGuard<'_, BTreeMap<u64, Standing>> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    pub(crate) fn news(&self) -> u64 {
        self.news.load(Ordering::SeqCst)
    }

    /// Nobody is woken, but whoever looks asks the store.
    pub(crate) fn doubt(&self) {
        self.news.fetch_add(1, Ordering::SeqCst);
    }

    /// Stand in line for jobs of these lifecycles.
    pub(crate) fn join(&self, lifecycles: &[Arc<str>]) -> Waiter<'_> {
        let mut lines = self.lines();
        let line = Arc::clone(lines.entry(lifecycles.to_vec()).or_default());
        line.waiting.fetch_add(1, Ordering::SeqCst);
        drop(lines);
        Waiter { lines: self, lifecycles: lifecycles.to_vec(), line, has_turn: false }
    }

    /// So many jobs of these lifecycles may be ready.
    pub(crate) fn wake(&self, lifecycles: &[Arc<str>], jobs: usize) {
        self.wake_each(|asked| if asked.iter().any(|name| lifecycles.contains(name)) { jobs } else { 0 });
    }

    /// There may be something for anybody: one of each line looks, and wakes others where it finds more than it wants.
    pub(crate) fn look(&self) {
        self.wake_each(|_| 1);
    }

    /// As many of each line as its lifecycles call for.
    pub(crate) fn wake_each(&self, jobs: impl Fn(&[Arc<str>]) -> usize) {
        self.news.fetch_add(1, Ordering::SeqCst);
        for (lifecycles, line) in &*self.lines() {
            let woken = jobs(lifecycles).min(line.waiting.load(Ordering::SeqCst));
            for _ in 0..woken {
                line.told.notify_one();
            }
            // What they are woken for goes before what comes next.
            self.end(line, woken);
        }
    }

    pub(crate) fn wake_all(&self) {
        self.news.fetch_add(1, Ordering::SeqCst);
        for line in self.lines().values() {
            line.told.notify_waiters();
            self.end(line, usize::MAX);
        }
    }

    /// The first wishes of a line stand no longer.
    fn end(&self, line: &Line, most: usize) {
        let mut wishes = line.wishes();
        for _ in 0..most.min(wishes.len()) {
            wishes.pop_first();
            self.standing.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// How many stand.
    pub(crate) fn wishes(&self) -> usize {
        self.standing.load(Ordering::SeqCst)
    }

    /// The first wish for a job of this lifecycle that names none of `others`, to be granted or dropped: then its waiter looks for
    /// itself.
    pub(crate) fn wish_for(&self, lifecycle: &str, others: &HashSet<Arc<str>>) -> Option<Granting> {
        loop {
            let Standing { wish, give } = self.first_wish(lifecycle, others)?;
            if !give.is_closed() && (wish.goes_on)() {
                return Some(Granting { wish, give: Some(give) });
            }
        }
    }

    fn first_wish(&self, lifecycle: &str, others: &HashSet<Arc<str>>) -> Option<Standing> {
        let lines = self.lines();
        let is_for = |asked: &[Arc<str>]| {
            asked.iter().any(|name| **name == *lifecycle) && !asked.iter().any(|name| others.contains(name))
        };
        loop {
            let asked = lines.iter().filter(|(asked, _)| is_for(asked));
            let first = asked.filter_map(|(_, line)| Some((*line.wishes().first_key_value()?.0, line)));
            let (number, line) = first.min_by_key(|(number, _)| *number)?;
            // It may have been withdrawn a moment ago.
            if let Some(standing) = line.wishes().remove(&number) {
                self.standing.fetch_sub(1, Ordering::SeqCst);
                return Some(standing);
            }
        }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Vec<Arc<str>>, Arc<Line>>> {
        self.by_list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wish that somebody is about to grant. Dropped, it has failed.
#[derive(Debug)]
pub(crate) struct Granting {
    pub(crate) wish: Wish,
    give: Option<oneshot::Sender<Given>>,
}

impl Granting {
    /// The jobs are leased: that is durable. Whoever asked may have gone away since, as with every other lease.
    pub(crate) fn grant(mut self, leased: Vec<Leased>) {
        self.end(Given::Jobs(leased));
    }

    fn end(&mut self, given: Given) {
        let _ = self.give.take().map(|give| give.send(given));
    }
}

impl Drop for Granting {
    fn drop(&mut self) {
        self.end(Given::Failed);
    }
}

/// A wish that was made: withdrawn when it is dropped.
#[derive(Debug)]
pub(crate) struct Wished<'a> {
    lines: &'a Lines,
    line: Arc<Line>,
    number: u64,
    given: oneshot::Receiver<Given>,
}

impl Wished<'_> {
    /// Ends when it is granted, or stands no longer.
    pub(crate) async fn given(&mut self) -> Given {
        (&mut self.given).await.unwrap_or(Given::Ended)
    }

    /// Let it stand no longer. Where somebody is just granting it, that is waited for: otherwise a job would be leased to nobody.
    pub(crate) async fn withdraw(mut self) -> Given {
        if self.remove() { Given::Ended } else { self.given().await }
    }

    fn remove(&self) -> bool {
        let removed = self.line.wishes().remove(&self.number).is_some();
        self.lines.standing.fetch_sub(usize::from(removed), Ordering::SeqCst);
        removed
    }
}

impl Drop for Wished<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A place in a line.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    lines: &'a Lines,
    lifecycles: Vec<Arc<str>>,
    line: Arc<Line>,
    /// Woken, and has not looked since.
    has_turn: bool,
}

impl<'a> Waiter<'a> {
    /// Having looked, and found nothing.
    pub(crate) fn wish(&self, wish: Wish) -> Wished<'a> {
        let number = self.lines.wished.fetch_add(1, Ordering::SeqCst);
        let (give, given) = oneshot::channel();
        self.lines.standing.fetch_add(1, Ordering::SeqCst);
        self.line.wishes().insert(number, Standing { wish, give });
        Wished { lines: self.lines, line: Arc::clone(&self.line), number, given }
    }

    /// Ends when it is this one's turn, whether that comes before or after it is waited for. Dropped before, the turn goes to the next.
    pub(crate) fn turn(&self) -> OwnedNotified {
        Arc::clone(&self.line.told).notified_owned()
    }

    pub(crate) fn was_woken(&mut self) {
        self.has_turn = true;
    }

    pub(crate) fn has_looked(&mut self) {
        self.has_turn = false;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.has_turn {
            self.line.told.notify_one();
        }
        let mut lines = self.lines.lines();
        if self.line.waiting.fetch_sub(1, Ordering::SeqCst) == 1 {
            lines.remove(&self.lifecycles);
        }
    }
}
