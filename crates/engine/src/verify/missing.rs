//! Finds rows that should be in a table but were not found.

use onceward_core::decide::readiness;
use onceward_core::time::Time;
use onceward_store::scan::{
    DifferenceKind, KEY_SEPARATOR, ProjectionTable, ReplayedRecord, RowSubject, Scan, expects_row,
};
use onceward_store::{ReplayTable, StoreError, TableDifference};

use super::row_bitmap::RowBitmap;
use super::tables::{replay_table, violated_rule};
use super::{SCAN_PAGE_ROWS, Verifier};

pub(super) struct ScannedTable {
    pub(super) table: ProjectionTable,
    /// Seq of the log when the read began.
    pub(super) since_seq: Option<u64>,
    pub(super) seen_rows: RowBitmap,
}

impl ScannedTable {
    pub(super) fn new(table: ProjectionTable) -> Self {
        Self { table, since_seq: None, seen_rows: RowBitmap::default() }
    }
}

/// Returns whether the table has at most one row per record, and no other rows.
pub(super) const fn is_record_table(table: ProjectionTable) -> bool {
    matches!(
        table,
        ProjectionTable::Records
            | ProjectionTable::Effects
            | ProjectionTable::Queues
            | ProjectionTable::Ready
            | ProjectionTable::Lanes
            | ProjectionTable::Delayed
            | ProjectionTable::Timers
    )
}

impl<S: Scan> Verifier<'_, S> {
    /// Returns the tables that miss rows, in one pass over all records. Reports nothing yet.
    pub(super) fn tables_missing_records(
        &mut self,
        scanned_tables: Vec<ScannedTable>,
    ) -> Result<Vec<ScannedTable>, StoreError> {
        let mut has_missing = vec![false; scanned_tables.len()];
        let (mut last_row, total) = (0, self.replay.created_records);
        loop {
            let records = self.replay.records_after(last_row, SCAN_PAGE_ROWS)?;
            let Some(replayed) = records.last() else { break };
            last_row = replayed.row_id;
            for replayed in &records {
                for (scanned, short) in scanned_tables.iter().zip(&mut has_missing) {
                    let is_found = scanned.seen_rows.contains(replayed.row_id)
                        || replayed.head_seq > scanned.since_seq.unwrap_or(0);
                    *short |= !is_found && self.expected_table(scanned.table, replayed).is_some();
                }
            }
            self.report_progress("missing", last_row, total);
        }
        Ok(scanned_tables
            .into_iter()
            .zip(has_missing)
            .filter_map(|(scanned, is_short)| is_short.then_some(scanned))
            .collect())
    }

    /// Counts missing rows. Rows that changed while the table was read are skipped.
    pub(super) fn count_missing(&mut self, scanned: &ScannedTable, should_report: bool) -> Result<u64, StoreError> {
        let (since_seq, mut missing) = (scanned.since_seq.unwrap_or(0), 0);
        let mut last_row = 0;
        loop {
            let rows = self.expected_rows_after(scanned.table, last_row)?;
            let Some((row, ..)) = rows.last() else { break };
            last_row = *row;
            for (row, location, changed_seq) in rows {
                let Some((table, at)) = location.filter(|_| !scanned.seen_rows.contains(row)) else { continue };
                if changed_seq > since_seq {
                    self.report.changed_while_read += u64::from(should_report);
                    continue;
                }
                missing += 1;
                if should_report {
                    let difference = TableDifference::new(table.name(), at, DifferenceKind::Missing);
                    self.add_difference(TableDifference { rule: violated_rule(table), ..difference });
                }
            }
        }
        Ok(missing)
    }

    /// Returns replayed rows after `last_row`: each with its table and subject, if a row is expected, and the seq of
    /// its last change.
    fn expected_rows_after(&mut self, table: ProjectionTable, last_row: u64) -> Result<Vec<ExpectedRow>, StoreError> {
        if let Some(kind) = replay_table(table) {
            let rows = self.replay.rows_after(kind, last_row, SCAN_PAGE_ROWS)?.into_iter();
            return Ok(rows
                .map(|row| {
                    // A row with the count 0 is optional.
                    let is_expected = match (kind, row.value.as_deref()) {
                        (_, None) => false,
                        (ReplayTable::Count, Some(_)) if self.is_expired_window(&row.subject) => false,
                        (ReplayTable::Count | ReplayTable::StateCount | ReplayTable::PayloadReference, Some(value)) => {
                            value != "0"
                        }
                        _ => true,
                    };
                    (row.row_id, is_expected.then_some((table, row.subject)), row.written_seq)
                })
                .collect());
        }
        Ok(match table {
            ProjectionTable::LogSeq | ProjectionTable::PruneState | ProjectionTable::ApiKeysRevision => {
                vec![(1, Some((table, RowSubject::Key("1".to_owned()))), 0)]
                    .into_iter()
                    .filter(|_| last_row == 0)
                    .collect()
            }
            ProjectionTable::Executions => {
                let rows = self.replay.executions_after(last_row, SCAN_PAGE_ROWS)?.into_iter();
                rows.map(|row| (row.row_id, Some((table, row.subject)), row.written_seq)).collect()
            }
            ProjectionTable::AccountEntries => {
                let rows = self.replay.account_entries_after(last_row, SCAN_PAGE_ROWS)?.into_iter();
                rows.map(|row| (row.row_id, Some((table, row.subject)), row.written_seq)).collect()
            }
            ProjectionTable::Links => {
                let rows = self.replay.links_after(last_row, SCAN_PAGE_ROWS)?.into_iter();
                rows.map(|row| (row.row_id, Some((table, row.subject)), row.written_seq)).collect()
            }
            _ => {
                let rows = self.replay.records_after(last_row, SCAN_PAGE_ROWS)?.into_iter();
                rows.map(|replayed| {
                    let at = |table| (table, RowSubject::Record(replayed.record.id));
                    (replayed.row_id, self.expected_table(table, &replayed).map(at), replayed.head_seq)
                })
                .collect()
            }
        })
    }

    /// Returns whether the counter belongs to a window that has ended: it may be pruned.
    fn is_expired_window(&self, at: &RowSubject) -> bool {
        let RowSubject::Key(key) = at else { return false };
        let window = key.rsplit(KEY_SEPARATOR).next().and_then(|window| window.parse().ok());
        let lifecycles = self.replay.catalog().lifecycles();
        let limits = lifecycles.values().flat_map(|lifecycle| &lifecycle.limits);
        let Some(longest_window) = limits.filter_map(|limit| limit.window).max() else { return false };
        let end = window.and_then(|window| Time::from_micros(window).checked_add(longest_window));
        end.is_some_and(|end| end <= self.now.max(self.latest_at))
    }

    /// Returns the table that must contain a row of this record: `table` itself, or `Delayed` if the job is not ready
    /// yet. For jobs with a concurrency key, `Ready` is checked through their lane.
    fn expected_table(&self, table: ProjectionTable, replayed: &ReplayedRecord) -> Option<ProjectionTable> {
        if replayed.is_log_damaged {
            return None;
        }
        if !expects_row(table, replayed) {
            return None;
        }
        let (ProjectionTable::Ready | ProjectionTable::Lanes, Some(readiness_of)) =
            (table, readiness(&replayed.record))
        else {
            return Some(table);
        };
        if readiness_of.ready_at > self.now.max(self.latest_at) {
            return ((table == ProjectionTable::Lanes) == readiness_of.concurrency_key.is_some())
                .then_some(ProjectionTable::Delayed);
        }
        (table == ProjectionTable::Lanes || readiness_of.concurrency_key.is_none()).then_some(table)
    }
}

/// An expected row: its replay row id, its table and subject if any, and the seq of its last change.
type ExpectedRow = (u64, Option<(ProjectionTable, RowSubject)>, u64);
