//! Who waits for jobs, and who is woken when there may be some: as many as there may be jobs, and those first who came first. Two
//! thousand workers wait at the price of one.
//!
//! Whoever is woken looks, or passes its turn on: a job for which somebody was woken is never left lying because that one went away.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Raised before anybody is woken: what was looked at before that may be out of date.
    news: AtomicU64,
    /// Those who ask for the same stand in one line.
    lines: Mutex<HashMap<Vec<Arc<str>>, Arc<Line>>>,
}

#[derive(Debug, Default)]
struct Line {
    told: Arc<Notify>,
    waiting: AtomicUsize,
}

impl Lines {
    pub(crate) fn news(&self) -> u64 {
        self.news.load(Ordering::SeqCst)
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
            for _ in 0..jobs(lifecycles).min(line.waiting.load(Ordering::SeqCst)) {
                line.told.notify_one();
            }
        }
    }

    pub(crate) fn wake_all(&self) {
        self.news.fetch_add(1, Ordering::SeqCst);
        self.lines().values().for_each(|line| line.told.notify_waiters());
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Vec<Arc<str>>, Arc<Line>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Waiter<'_> {
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
    use std::task::{Context, Waker};

    use super::*;

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
