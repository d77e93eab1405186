//! Who waits for jobs, and who is woken when there may be some: as many as there may be jobs, and those first who came first. Two
//! thousand workers wait at the price of one.
//!
//! Whoever is woken looks, or passes its turn on: a job for which somebody was woken is never left lying because that one went away.
//!
//! Whoever has looked and found nothing leaves a wish: a batch that makes a job for it leases it the job right there. A wish stands only
//! as long as nothing else is known to be there, since what waits goes first.

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

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use onceward_core::record::Actor;

    use super::*;
    use crate::leasing::{GoesOn, Wanted};

    fn names(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    /// In line, as one is who looked and found nothing.
    fn stand<'a>(lines: &'a Lines, lifecycles: &[&str]) -> (Waiter<'a>, Pin<Box<OwnedNotified>>) {
        let waiter = lines.join(&names(lifecycles));
        let mut turn = Box::pin(waiter.turn());
        turn.as_mut().enable();
        (waiter, turn)
    }

    fn woken(turns: &mut [(Waiter, Pin<Box<OwnedNotified>>)]) -> Vec<usize> {
        let context = &mut Context::from_waker(Waker::noop());
        let ready = turns
            .iter_mut()
            .enumerate()
            .filter_map(|(at, (_, turn))| turn.as_mut().poll(context).is_ready().then_some(at));
        ready.collect()
    }

    #[test]
    fn as_many_are_woken_as_there_are_jobs_and_the_first_first() {
        let lines = Lines::default();
        let mut waiting: Vec<_> = (0..100).map(|_| stand(&lines, &["a"])).collect();
        let mut others: Vec<_> = (0..2).map(|_| stand(&lines, &["b"])).collect();
        lines.wake(&names(&["a"]), 3);
        assert_eq!(woken(&mut waiting), [0, 1, 2]);
        assert!(woken(&mut others).is_empty());
    }

    #[test]
    fn a_job_wakes_all_lines_that_ask_for_it_among_others() {
        let lines = Lines::default();
        let mut waiting = [stand(&lines, &["a"]), stand(&lines, &["a", "b"]), stand(&lines, &["b"])];
        lines.wake(&names(&["a"]), 1);
        assert_eq!(woken(&mut waiting), [0, 1]);
    }

    #[test]
    fn a_turn_that_is_not_used_goes_to_the_next() {
        let lines = Lines::default();
        let mut waiting: Vec<_> = (0..3).map(|_| stand(&lines, &["a"])).collect();
        lines.wake(&names(&["a"]), 1);
        // Gone before it knew.
        drop(waiting.remove(0));
        assert_eq!(woken(&mut waiting), [0]);
        // Gone after it knew, and before it looked.
        let (mut waiter, turn) = waiting.remove(0);
        waiter.was_woken();
        drop((waiter, turn));
        assert_eq!(woken(&mut waiting), [0]);
        // It looked: that was the end of it.
        let (mut waiter, turn) = waiting.remove(0);
        waiter.was_woken();
        waiter.has_looked();
        let mut last = [stand(&lines, &["a"])];
        drop((waiter, turn));
        assert!(woken(&mut last).is_empty());
    }

    fn wish(worker: &str, goes_on: bool) -> Wish {
        let goes_on: GoesOn = Arc::new(move || goes_on);
        Wish::new(&Actor::engine(), Wanted::one("a", worker), None, &goes_on)
    }

    fn next(lines: &Lines, lifecycle: &str) -> Option<String> {
        lines.wish_for(lifecycle, &HashSet::new()).map(|granting| granting.wish.wanted.worker.to_string())
    }

    #[test]
    fn the_first_wish_goes_first_whatever_its_line() {
        let lines = Lines::default();
        let (a, both, b) = (lines.join(&names(&["a"])), lines.join(&names(&["a", "b"])), lines.join(&names(&["b"])));
        let _wished = [both.wish(wish("1", true)), b.wish(wish("2", true)), a.wish(wish("3", true))];
        assert_eq!((lines.wishes(), next(&lines, "c")), (3, None));
        let others = HashSet::from([Arc::from("a")]);
        assert!(lines.wish_for("a", &others).is_none(), "all name it");
        assert_eq!(next(&lines, "a").as_deref(), Some("1"));
        assert_eq!(next(&lines, "a").as_deref(), Some("3"));
        assert_eq!(next(&lines, "a"), None);
        assert_eq!(next(&lines, "b").as_deref(), Some("2"));
        assert_eq!(lines.wishes(), 0);
    }

    #[test]
    fn who_wants_nothing_any_more_is_passed_by() {
        let lines = Lines::default();
        let waiter = lines.join(&names(&["a"]));
        let gone = waiter.wish(wish("1", true));
        let _wished = [waiter.wish(wish("2", false)), waiter.wish(wish("3", true))];
        drop(gone);
        assert_eq!(lines.wishes(), 2);
        assert_eq!(next(&lines, "a").as_deref(), Some("3"));
    }

    /// What waits goes before what is made now: whoever is woken for it is not given the other.
    #[test]
    fn whoever_is_woken_wishes_no_longer() {
        let lines = Lines::default();
        let waiting = [stand(&lines, &["a"]), stand(&lines, &["a"]), stand(&lines, &["b"])];
        let mut wished: Vec<_> =
            waiting.iter().zip(["1", "2", "3"]).map(|((waiter, _), name)| waiter.wish(wish(name, true))).collect();
        lines.wake(&names(&["a"]), 1);
        let context = &mut Context::from_waker(Waker::noop());
        assert!(pin!(wished[0].given()).poll(context).is_ready(), "it looks");
        assert!(pin!(wished[1].given()).poll(context).is_pending());
        assert_eq!(next(&lines, "a").as_deref(), Some("2"));
        assert_eq!(next(&lines, "b").as_deref(), Some("3"));
    }

    /// A job that is on its way to somebody is not left to nobody: its wish is withdrawn only once it is known what comes of it.
    #[test]
    fn a_wish_that_is_being_granted_is_waited_for() {
        let lines = Lines::default();
        let waiter = lines.join(&names(&["a"]));
        let (wished, context) = (waiter.wish(wish("1", true)), &mut Context::from_waker(Waker::noop()));
        let granting = lines.wish_for("a", &HashSet::new());
        let mut withdrawn = pin!(wished.withdraw());
        assert!(withdrawn.as_mut().poll(context).is_pending());
        drop(granting);
        assert!(matches!(withdrawn.as_mut().poll(context), Poll::Ready(Given::Failed)));
        let mut withdrawn = pin!(waiter.wish(wish("1", true)).withdraw());
        assert!(matches!(withdrawn.as_mut().poll(context), Poll::Ready(Given::Ended)), "nobody is granting it");
    }

    #[test]
    fn news_that_comes_between_a_look_and_the_wait_is_not_missed() {
        let lines = Lines::default();
        let waiter = lines.join(&names(&["a"]));
        let mut turn = pin!(waiter.turn());
        turn.as_mut().enable();
        lines.look();
        assert!(turn.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }

    #[test]
    fn a_line_without_anybody_is_forgotten() {
        let lines = Lines::default();
        let waiting = [stand(&lines, &["a"]), stand(&lines, &["a"])];
        assert_eq!(lines.lines().len(), 1);
        drop(waiting);
        assert!(lines.lines().is_empty());
    }
}
