//! Where to begin looking. Rows that were taken from the head of an index stay in it until PostgreSQL cleans up, which an
//! old snapshot can hold up for long. So a look begins where the last one found its first row, and only now and then at the
//! very bottom, for what other processes may have put there: often where they are heard of, seldom where they are not.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use onceward_core::time::Time;

/// How long a lower row of another process may go unseen, where it was heard of.
const RESCAN: Duration = Duration::from_millis(500);

/// And where word of it was lost.
const SELDOM: Duration = Duration::from_secs(5);

/// What is looked through: the ready jobs of a lifecycle, by its number, those that wait for their time, or the timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Line {
    Ready(i64),
    Later,
    Timers,
}

/// The lowest rows of each line that were written.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    /// The smallest rank that was made ready, by lifecycle.
    ready: HashMap<i64, i64>,
    /// The earliest time that a job was put off to.
    pub(super) soonest: Time,
    /// The earliest time that something new is due at.
    pub(super) earliest: Time,
}

impl Default for Ranks {
    fn default() -> Self {
        Self { ready: HashMap::new(), soonest: Time::MAX, earliest: Time::MAX }
    }
}

impl Ranks {
    pub(super) fn comes(&mut self, lifecycle: i64, rank: i64) {
        let lowest = self.ready.entry(lifecycle).or_insert(rank);
        *lowest = rank.min(*lowest);
    }
}

#[derive(Debug, Default)]
pub(super) struct Marks {
    marks: Mutex<HashMap<Line, Mark>>,
}

#[derive(Debug)]
struct Mark {
    at: i64,
    /// Looks under way, each with the lowest row that was written since it began: it may not have seen that one.
    open: BTreeMap<u64, i64>,
    /// Looks so far: the name of the next.
    looks: u64,
    bottom: Instant,
    /// Words of others that had been heard then.
    heard: u64,
}

/// A look that has begun. It is over when it is dropped.
#[derive(Debug)]
pub(super) struct Look<'a> {
    marks: &'a Marks,
    line: Line,
    number: u64,
    pub(super) from: i64,
}

impl Marks {
    fn marks(&self) -> MutexGuard<'_, HashMap<Line, Mark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `heard` counts the words of others.
    pub(super) fn begin(&self, line: Line, heard: u64) -> Look<'_> {
        let now = Instant::now();
        let mut marks = self.marks();
        let new = || Mark { at: i64::MIN, open: BTreeMap::new(), looks: 0, bottom: now, heard };
        let mark = marks.entry(line).or_insert_with(new);
        let since = now.duration_since(mark.bottom);
        if since > SELDOM || since > RESCAN && heard != mark.heard {
            // What others wrote is news to the looks under way, too: none of them raises the mark past it.
            *mark = Mark { looks: mark.looks, ..new() };
        }
        mark.looks += 1;
        mark.open.insert(mark.looks, i64::MAX);
        Look { marks: self, line, number: mark.looks, from: mark.at }
    }

    /// Rows were written, the lowest of each line here.
    pub(super) fn lower(&self, ranks: &Ranks) {
        let ready = ranks.ready.iter().map(|(lifecycle, rank)| (Line::Ready(*lifecycle), *rank));
        let times = [(Line::Later, ranks.soonest.micros()), (Line::Timers, ranks.earliest.micros())];
        let mut marks = self.marks();
        for (line, to) in ready.chain(times) {
            if let Some(mark) = marks.get_mut(&line) {
                mark.at = to.min(mark.at);
                mark.open.values_mut().for_each(|lowest| *lowest = to.min(*lowest));
            }
        }
    }
}

impl Look<'_> {
    /// It found nothing before this. What was written meanwhile may lie lower, be it above the mark as it was.
    pub(super) fn raise(&self, to: i64) {
        if let Some(mark) = self.marks.marks().get_mut(&self.line)
            && let Some(lowest) = mark.open.get(&self.number)
        {
            mark.at = to.min(*lowest).max(mark.at);
        }
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        if let Some(mark) = self.marks.marks().get_mut(&self.line) {
            mark.open.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Line = Line::Ready(7);

    fn ranks(rank: i64) -> Ranks {
        let mut ranks = Ranks::default();
        ranks.comes(7, rank);
        ranks
    }

    fn next(marks: &Marks) -> i64 {
        marks.begin(LINE, 0).from
    }

    #[test]
    fn what_is_written_during_a_look_is_not_passed_over() {
        let marks = Marks::default();
        let look = marks.begin(LINE, 0);
        assert_eq!(look.from, i64::MIN);
        look.raise(100);
        assert_eq!(next(&marks), 100);
        let look = marks.begin(LINE, 0);
        marks.lower(&ranks(50));
        look.raise(200);
        assert_eq!(next(&marks), 50, "one at 50 came while we looked");
        marks.lower(&ranks(60));
        assert_eq!(next(&marks), 50);
        assert_eq!(marks.begin(Line::Ready(8), 0).from, i64::MIN);
    }

    /// Two batches abreast commit in another order than their times: the later row is found, then the earlier one is written.
    #[test]
    fn nor_is_what_was_written_above_the_mark() {
        let marks = Marks::default();
        let look = marks.begin(LINE, 0);
        marks.lower(&ranks(150));
        look.raise(200);
        assert_eq!(next(&marks), 150);
        // Each line has its own.
        let (timers, later) = (marks.begin(Line::Timers, 0), marks.begin(Line::Later, 0));
        let written = Ranks { soonest: Time::from_micros(30), earliest: Time::from_micros(40), ..Ranks::default() };
        marks.lower(&written);
        timers.raise(90);
        later.raise(90);
        assert_eq!((marks.begin(Line::Timers, 0).from, marks.begin(Line::Later, 0).from), (40, 30));
    }

    /// Else it would never rise under load.
    #[test]
    fn what_was_written_higher_holds_nothing_up() {
        let marks = Marks::default();
        for found in 1..100 {
            let look = marks.begin(LINE, 0);
            marks.lower(&ranks(found + 1));
            look.raise(found);
            assert_eq!(next(&marks), found);
        }
    }

    #[test]
    fn each_look_has_missed_its_own() {
        let marks = Marks::default();
        let first = marks.begin(LINE, 0);
        marks.lower(&ranks(150));
        // It sees that one, and somebody takes it.
        let second = marks.begin(LINE, 0);
        second.raise(300);
        assert_eq!(next(&marks), 300);
        // What the first missed is known to be gone.
        first.raise(200);
        assert_eq!(next(&marks), 300);
        drop((first, second));
        assert!(marks.marks()[&LINE].open.is_empty(), "who has looked is forgotten");
    }

    #[test]
    fn a_look_from_before_others_were_heard_of_raises_nothing() {
        let marks = Marks::default();
        let old = marks.begin(LINE, 0);
        marks.marks().get_mut(&LINE).expect("a mark").bottom -= 2 * SELDOM;
        let new = marks.begin(LINE, 1);
        old.raise(200);
        new.raise(50);
        assert_eq!(next(&marks), 50, "one of another process, written since the old one looked");
    }
}
