//! Start positions of index scans. Index entries of deleted rows remain until VACUUM removes them, which an old
//! snapshot can delay for long. So a scan starts where the previous one found its first row. At intervals it starts at
//! the beginning, to find lower rows of other processes: often after a notification, rarely without one.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use onceward_core::time::Time;

/// Longest time until a lower row of another process is found, if its notification arrived.
const RESCAN_INTERVAL: Duration = Duration::from_millis(500);

/// Longest time if the notification was lost.
const MAX_RESCAN_INTERVAL: Duration = Duration::from_secs(5);

/// A scanned index: the ready jobs of a lifecycle (by id), the delayed jobs, or the timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ScannedIndex {
    Ready(i64),
    Delayed,
    Timers,
}

/// The lowest rows that a batch wrote to each index.
#[derive(Clone, Debug)]
pub(super) struct LowestWritten {
    /// The smallest rank that became ready, by lifecycle.
    ready_ranks: HashMap<i64, i64>,
    /// The earliest time to which a job was delayed.
    pub(super) earliest_ready_at: Time,
    /// The earliest new due time.
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
    /// Running scans, each with the lowest row written since it began, which the scan may have missed.
    open_scans: BTreeMap<u64, i64>,
    /// Number of scans so far, used as scan ids.
    started_scans: u64,
    full_scan_at: Instant,
    /// Notifications from other processes at the last full scan.
    seen_changes: u64,
}

/// A running scan. Dropping it ends the scan.
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

    /// Begins a scan. `seen_changes` is the number of notifications from other processes.
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
            // Running scans may have missed rows of other processes, so none of them may raise the new cursor.
            *mark = CursorPosition { started_scans: mark.started_scans, ..new() };
        }
        mark.started_scans += 1;
        mark.open_scans.insert(mark.started_scans, i64::MAX);
        ScanGuard { cursors: self, index, scan_number: mark.started_scans, start: mark.lower_bound }
    }

    /// Lowers the cursors to rows that were written.
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
    /// Raises the cursor, because the scan found no row below `bound`. Limited by rows written during the scan, even if
    /// they are above the old cursor.
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
        assert_eq!(next_start(&cursors), 50, "a row at 50 was inserted during the scan");
        cursors.lower_to(&written_rank(60));
        assert_eq!(next_start(&cursors), 50);
        assert_eq!(cursors.begin_scan(ScannedIndex::Ready(8), 0).start, i64::MIN);
    }

    /// Two concurrent batches can commit in another order than their times.
    #[test]
    fn row_written_above_cursor_during_scan_limits_raise_per_index() {
        let cursors = ScanCursors::default();
        let scan = cursors.begin_scan(READY_INDEX, 0);
        cursors.lower_to(&written_rank(150));
        scan.raise_to(200);
        assert_eq!(next_start(&cursors), 150);
        // Each index has its own cursor.
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

    /// Otherwise the cursor would never rise under load.
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
        // The second scan sees this row, and it is then removed.
        let second = cursors.begin_scan(READY_INDEX, 0);
        second.raise_to(300);
        assert_eq!(next_start(&cursors), 300);
        // The row that the first scan missed is gone by now.
        first.raise_to(200);
        assert_eq!(next_start(&cursors), 300);
        drop((first, second));
        assert!(cursors.lock_positions()[&READY_INDEX].open_scans.is_empty(), "a finished scan is removed");
    }

    #[test]
    fn scan_begun_before_remote_change_does_not_raise_cursor() {
        let cursors = ScanCursors::default();
        let old = cursors.begin_scan(READY_INDEX, 0);
        cursors.lock_positions().get_mut(&READY_INDEX).expect("the index has a cursor").full_scan_at -=
            2 * MAX_RESCAN_INTERVAL;
        let new = cursors.begin_scan(READY_INDEX, 1);
        old.raise_to(200);
        new.raise_to(50);
        assert_eq!(next_start(&cursors), 50, "another process wrote a row after the earlier scan");
    }
}
