//! Where to begin looking. Rows that were taken from the head of an index stay in it until PostgreSQL cleans up, which an
//! old snapshot can hold up for long. So a look begins where the last one found its first row, and only now and then at the
//! very bottom, for what other processes may have put there: often where they are heard of, seldom where they are not.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use onceward_core::time::Time;

/// How long a lower row of another process may go unseen, where it was heard of.
const RESCAN_INTERVAL: Duration = Duration::from_millis(500);

/// And where word of it was lost.
const MAX_RESCAN_INTERVAL: Duration = Duration::from_secs(5);

/// What is looked through: the ready jobs of a lifecycle, by its number, those that wait for their time, or the timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ScannedIndex {
    Ready(i64),
    Delayed,
    Timers,
}

/// The lowest rows of each line that were written.
#[derive(Clone, Debug)]
pub(super) struct LowestWritten {
    /// The smallest rank that was made ready, by lifecycle.
    ready_ranks: HashMap<i64, i64>,
    /// The earliest time that a job was put off to.
    pub(super) earliest_ready_at: Time,
    /// The earliest time that something new is due at.
    pub(super) earliest_due_at: Time,
}

impl Default for LowestWritten {
    fn default() -> Self {
        Self { ready_ranks: HashMap::new(), earliest_ready_at: Time::MAX, earliest_due_at: Time::MAX }
    }
}

impl LowestWritten {
    pub(super) fn add_ready(&mut self, lifecycle: i64, rank: i64) {
        let lowest = self.ready_ranks.entry(lifecycle).or_insert(rank);
        *lowest = rank.min(*lowest);
    }
}

#[derive(Debug, Default)]
pub(super) struct ScanCursors {
    positions: Mutex<HashMap<ScannedIndex, CursorPosition>>,
}

#[derive(Debug)]
struct CursorPosition {
    lower_bound: i64,
    /// Looks under way, each with the lowest row that was written since it began: it may not have seen that one.
    open_scans: BTreeMap<u64, i64>,
    /// Looks so far: the name of the next.
    started_scans: u64,
    full_scan_at: Instant,
    /// Words of others that had been heard then.
    seen_changes: u64,
}

/// A look that has begun. It is over when it is dropped.
#[derive(Debug)]
pub(super) struct ScanGuard<'a> {
    cursors: &'a ScanCursors,
    index: ScannedIndex,
    scan_number: u64,
    pub(super) start: i64,
}

impl ScanCursors {
    fn lock_positions(&self) -> MutexGuard<'_, HashMap<ScannedIndex, CursorPosition>> {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `heard` counts the words of others.
    pub(super) fn begin_scan(&self, index: ScannedIndex, seen_changes: u64) -> ScanGuard<'_> {
        let now = Instant::now();
        let mut marks = self.lock_positions();
        let new = || CursorPosition {
            lower_bound: i64::MIN,
            open_scans: BTreeMap::new(),
            started_scans: 0,
            full_scan_at: now,
            seen_changes,
        };
        let mark = marks.entry(index).or_insert_with(new);
        let since = now.duration_since(mark.full_scan_at);
        if since > MAX_RESCAN_INTERVAL || since > RESCAN_INTERVAL && seen_changes != mark.seen_changes {
            // What others wrote is news to the looks under way, too: none of them raises the mark past it.
            *mark = CursorPosition { started_scans: mark.started_scans, ..new() };
        }
        mark.started_scans += 1;
        mark.open_scans.insert(mark.started_scans, i64::MAX);
        ScanGuard { cursors: self, index, scan_number: mark.started_scans, start: mark.lower_bound }
    }

    /// Rows were written, the lowest of each line here.
    pub(super) fn lower_to(&self, lowest_written: &LowestWritten) {
        let ready = lowest_written.ready_ranks.iter().map(|(lifecycle, rank)| (ScannedIndex::Ready(*lifecycle), *rank));
        let times = [
            (ScannedIndex::Delayed, lowest_written.earliest_ready_at.micros()),
            (ScannedIndex::Timers, lowest_written.earliest_due_at.micros()),
        ];
        let mut marks = self.lock_positions();
        for (line, to) in ready.chain(times) {
            if let Some(mark) = marks.get_mut(&line) {
                mark.lower_bound = to.min(mark.lower_bound);
                mark.open_scans.values_mut().for_each(|lowest| *lowest = to.min(*lowest));
            }
        }
    }
}

impl ScanGuard<'_> {
    /// It found nothing before this. What was written meanwhile may lie lower, be it above the mark as it was.
    pub(super) fn raise_to(&self, bound: i64) {
        if let Some(mark) = self.cursors.lock_positions().get_mut(&self.index)
            && let Some(lowest) = mark.open_scans.get(&self.scan_number)
        {
            mark.lower_bound = bound.min(*lowest).max(mark.lower_bound);
        }
    }
}

impl Drop for ScanGuard<'_> {
    fn drop(&mut self) {
        if let Some(mark) = self.cursors.lock_positions().get_mut(&self.index) {
            mark.open_scans.remove(&self.scan_number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY_INDEX: ScannedIndex = ScannedIndex::Ready(7);

    fn written_rank(rank: i64) -> LowestWritten {
        let mut ranks = LowestWritten::default();
        ranks.add_ready(7, rank);
        ranks
    }

    fn next_start(cursors: &ScanCursors) -> i64 {
        cursors.begin_scan(READY_INDEX, 0).start
    }

    #[test]
    fn row_written_during_scan_limits_raise_of_cursor() {
        let cursors = ScanCursors::default();
        let scan = cursors.begin_scan(READY_INDEX, 0);
        assert_eq!(scan.start, i64::MIN);
        scan.raise_to(100);
        assert_eq!(next_start(&cursors), 100);
        let look = cursors.begin_scan(READY_INDEX, 0);
        cursors.lower_to(&written_rank(50));
        look.raise_to(200);
        assert_eq!(next_start(&cursors), 50, "one at 50 came while we looked");
        cursors.lower_to(&written_rank(60));
        assert_eq!(next_start(&cursors), 50);
        assert_eq!(cursors.begin_scan(ScannedIndex::Ready(8), 0).start, i64::MIN);
    }

    /// Two batches abreast commit in another order than their times: the later row is found, then the earlier one is written.
    #[test]
    fn row_written_above_cursor_during_scan_limits_raise_per_index() {
        let cursors = ScanCursors::default();
        let scan = cursors.begin_scan(READY_INDEX, 0);
        cursors.lower_to(&written_rank(150));
        scan.raise_to(200);
        assert_eq!(next_start(&cursors), 150);
        // Each line has its own.
        let (timers, later) =
            (cursors.begin_scan(ScannedIndex::Timers, 0), cursors.begin_scan(ScannedIndex::Delayed, 0));
        let written = LowestWritten {
            earliest_ready_at: Time::from_micros(30),
            earliest_due_at: Time::from_micros(40),
            ..LowestWritten::default()
        };
        cursors.lower_to(&written);
        timers.raise_to(90);
        later.raise_to(90);
        assert_eq!(
            (cursors.begin_scan(ScannedIndex::Timers, 0).start, cursors.begin_scan(ScannedIndex::Delayed, 0).start),
            (40, 30)
        );
    }

    /// Else it would never rise under load.
    #[test]
    fn cursor_rises_when_written_rows_are_higher_than_found() {
        let cursors = ScanCursors::default();
        for found in 1..100 {
            let look = cursors.begin_scan(READY_INDEX, 0);
            cursors.lower_to(&written_rank(found + 1));
            look.raise_to(found);
            assert_eq!(next_start(&cursors), found);
        }
    }

    #[test]
    fn each_scan_is_limited_only_by_rows_written_after_it_began() {
        let cursors = ScanCursors::default();
        let first = cursors.begin_scan(READY_INDEX, 0);
        cursors.lower_to(&written_rank(150));
        // It sees that one, and somebody takes it.
        let second = cursors.begin_scan(READY_INDEX, 0);
        second.raise_to(300);
        assert_eq!(next_start(&cursors), 300);
        // What the first missed is known to be gone.
        first.raise_to(200);
        assert_eq!(next_start(&cursors), 300);
        drop((first, second));
        assert!(cursors.lock_positions()[&READY_INDEX].open_scans.is_empty(), "who has looked is forgotten");
    }

    #[test]
    fn scan_begun_before_remote_change_does_not_raise_cursor() {
        let cursors = ScanCursors::default();
        let old = cursors.begin_scan(READY_INDEX, 0);
        cursors.lock_positions().get_mut(&READY_INDEX).expect("a mark").full_scan_at -= 2 * MAX_RESCAN_INTERVAL;
        let new = cursors.begin_scan(READY_INDEX, 1);
        old.raise_to(200);
        new.raise_to(50);
        assert_eq!(next_start(&cursors), 50, "one of another process, written since the old one looked");
    }
}
