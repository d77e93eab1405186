//! Where to begin looking. Rows that were taken from the head of an index stay in it until PostgreSQL cleans up, which an
//! old snapshot can hold up for long. So a look begins where the last one found its first row, and only now and then at the
//! very bottom, for what other processes may have put there: often where they are heard of, seldom where they are not.

use std::collections::HashMap;
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

#[derive(Clone, Copy, Debug)]
struct Mark {
    at: i64,
    /// Raised whenever a lower row was written: what was being looked for meanwhile may have missed it.
    lowered: u64,
    bottom: Instant,
    /// Words of others that had been heard then.
    heard: u64,
}

/// A look that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    line: Line,
    pub(super) from: i64,
    lowered: u64,
}

impl Marks {
    fn marks(&self) -> MutexGuard<'_, HashMap<Line, Mark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `heard` counts the words of others.
    pub(super) fn begin(&self, line: Line, heard: u64) -> Look {
        let now = Instant::now();
        let mut marks = self.marks();
        let mark = marks.entry(line).or_insert(Mark { at: i64::MIN, lowered: 0, bottom: now, heard });
        let since = now.duration_since(mark.bottom);
        if since > SELDOM || since > RESCAN && heard != mark.heard {
            *mark = Mark { at: i64::MIN, bottom: now, heard, ..*mark };
        }
        Look { line, from: mark.at, lowered: mark.lowered }
    }

    /// The look found nothing before this.
    pub(super) fn raise(&self, look: Look, to: i64) {
        if let Some(mark) = self.marks().get_mut(&look.line)
            && mark.lowered == look.lowered
        {
            mark.at = to.max(mark.at);
        }
    }

    /// Rows were written, the lowest of each line here.
    pub(super) fn lower(&self, ranks: &Ranks) {
        let ready = ranks.ready.iter().map(|(lifecycle, rank)| (Line::Ready(*lifecycle), *rank));
        let times = [(Line::Later, ranks.soonest.micros()), (Line::Timers, ranks.earliest.micros())];
        let mut marks = self.marks();
        for (line, to) in ready.chain(times) {
            if let Some(mark) = marks.get_mut(&line)
                && to < mark.at
            {
                mark.at = to;
                mark.lowered += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_during_a_look_is_not_passed_over() {
        let marks = Marks::default();
        let ranks = |rank| {
            let mut ranks = Ranks::default();
            ranks.comes(7, rank);
            ranks
        };
        let look = marks.begin(Line::Ready(7), 0);
        assert_eq!(look.from, i64::MIN);
        marks.raise(look, 100);
        assert_eq!(marks.begin(Line::Ready(7), 0).from, 100);
        let look = marks.begin(Line::Ready(7), 0);
        marks.lower(&ranks(50));
        marks.raise(look, 200);
        assert_eq!(marks.begin(Line::Ready(7), 0).from, 50, "one at 50 came while we looked");
        marks.lower(&ranks(60));
        assert_eq!(marks.begin(Line::Ready(7), 0).from, 50);
        assert_eq!(marks.begin(Line::Ready(8), 0).from, i64::MIN);
    }
}
