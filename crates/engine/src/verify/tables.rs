//! Compares each table with the replayed state, in both directions.

use onceward_core::decide::readiness;
use onceward_core::hex;
use onceward_core::model::ConcurrencyPolicy;
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_store::scan::{
    CellText, ColumnCells, DifferenceKind, MAX_COUNTED_JOBS_AHEAD, ProjectionTable, ReplayedRecord, RowContext,
    RowSubject, Scan, StoredRow, api_key_columns, effect_columns, execution_columns, expected_columns,
};
use onceward_store::{PruneState, ReplayTable, ReplayedRow, StoreError, TableDifference};
use sha2::{Digest, Sha256};

use super::missing::{ScannedTable, is_record_table};
use super::row_bitmap::RowBitmap;
use super::{SCAN_PAGE_ROWS, Verifier, VerifyStop};

/// A heartbeat may move a row behind the reader without a log entry. Several reads in a row make a false report very
/// unlikely.
const MAX_READ_ROUNDS: usize = 3;

/// The longest lease.
const MAX_LEASE_SPAN: Duration = Duration::from_secs(24 * 3600);

impl<S: Scan> Verifier<'_, S> {
    /// Verifies every table, and finds missing rows.
    pub(super) async fn verify_tables(&mut self) -> Result<(), VerifyStop> {
        let mut record_tables = Vec::new();
        for table in self.store.tables() {
            let mut scanned = ScannedTable::new(*table);
            self.read_table(&mut scanned, true).await?;
            if is_record_table(*table) {
                // Checked together, once per record, at the end: loading a record takes longer than reading a row.
                record_tables.push(scanned);
            } else if self.count_missing(&scanned, false)? > 0 {
                self.reread_until_complete(scanned).await?;
            }
        }
        for scanned in self.tables_missing_records(record_tables)? {
            self.reread_until_complete(scanned).await?;
        }
        Ok(())
    }

    /// Reads a table again, because a missing row may have moved behind the reader.
    async fn reread_until_complete(&mut self, mut scanned: ScannedTable) -> Result<(), VerifyStop> {
        for round in 2..=MAX_READ_ROUNDS {
            self.read_table(&mut scanned, false).await?;
            if self.count_missing(&scanned, round == MAX_READ_ROUNDS)? == 0 {
                break;
            }
        }
        Ok(())
    }

    async fn read_table(&mut self, scanned: &mut ScannedTable, is_first: bool) -> Result<(), VerifyStop> {
        // The store moves a delayed job to its queue at any time after it is ready, without a log entry. Reading
        // `Delayed` first finds the row at least once.
        if matches!(scanned.table, ProjectionTable::Ready | ProjectionTable::Lanes) {
            let should_report = is_first && scanned.table == ProjectionTable::Ready;
            self.read_pages(ProjectionTable::Delayed, &mut scanned.since_seq, &mut scanned.seen_rows, should_report)
                .await?;
        }
        self.read_pages(scanned.table, &mut scanned.since_seq, &mut scanned.seen_rows, is_first).await
    }

    /// Reads all rows of a table. Differences and rows are reported once.
    async fn read_pages(
        &mut self,
        table: ProjectionTable,
        since_seq: &mut Option<u64>,
        seen_rows: &mut RowBitmap,
        should_report: bool,
    ) -> Result<(), VerifyStop> {
        let mut cursor = None;
        let mut done = 0;
        loop {
            let page = self.store.scan(table, cursor, SCAN_PAGE_ROWS).await?;
            self.read_log_to(page.seq).await?;
            since_seq.get_or_insert(page.seq);
            done += u64::try_from(page.rows.len()).unwrap_or(0);
            for row in page.rows {
                self.verify_row(table, &row, page.seq, seen_rows, should_report)?;
            }
            self.report_progress(table.name(), done, self.expected_rows(table));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        self.report.rows += if should_report { done } else { 0 };
        Ok(())
    }

    /// Verifies one stored row. Its differences are reported in the first round only.
    fn verify_row(
        &mut self,
        table: ProjectionTable,
        row: &StoredRow,
        seq: u64,
        seen_rows: &mut RowBitmap,
        should_report: bool,
    ) -> Result<(), StoreError> {
        let mut problems = Vec::new();
        match &row.subject {
            RowSubject::Record(id) if table == ProjectionTable::Effects => {
                self.verify_effect_row(*id, row, seen_rows, &mut problems)?;
            }
            RowSubject::Record(id) => {
                self.verify_record_row(table, *id, row, seen_rows, (should_report, &mut problems))?;
            }
            RowSubject::Execution(id, token) => {
                self.verify_execution_row(*id, *token, row, seen_rows, &mut problems)?;
            }
            RowSubject::Link { target, name, source } => match self.replay.link(*target, name, *source)? {
                Some(link) => seen_rows.mark(link.row_id),
                None => problems.push(DifferenceKind::Extra),
            },
            RowSubject::Key(key) => self.verify_keyed_row(table, key, row, seq, seen_rows, &mut problems)?,
            RowSubject::MissingRecord(_) => problems.push(DifferenceKind::Extra),
        }
        if should_report {
            for what in problems {
                self.add_difference(TableDifference {
                    rule: violated_rule(table),
                    ..TableDifference::new(table.name(), &row.subject, what)
                });
            }
        }
        Ok(())
    }

    fn verify_record_row(
        &mut self,
        table: ProjectionTable,
        id: RecordId,
        row: &StoredRow,
        seen_rows: &mut RowBitmap,
        (should_report, problems): (bool, &mut Vec<DifferenceKind>),
    ) -> Result<(), StoreError> {
        let Some(replayed) = self.replay.replayed_record(id)? else {
            problems.push(DifferenceKind::Extra);
            return Ok(());
        };
        seen_rows.mark(replayed.row_id);
        if replayed.is_log_damaged {
            return Ok(());
        }
        let Some(expected_columns) = expected_columns(table, &replayed, self.replay.catalog(), row.context) else {
            problems.push(DifferenceKind::Extra);
            return Ok(());
        };
        let mut expected_columns = expected_columns;
        if let Some((_, number)) =
            expected_columns.iter_mut().find(|(name, _)| *name == "row" && self.replay.prune_state().checkpoint_seq > 0)
        {
            // After pruning, remaining records keep their row numbers, so that a number is at least the replayed one.
            let stored_row = row.columns.iter().find(|(name, _)| *name == "row").and_then(|(_, cell)| cell.clone());
            let row_number: Option<u64> = stored_row.as_deref().and_then(|cell| cell.parse().ok());
            if row_number.is_some_and(|number| number >= replayed.row_id) {
                *number = stored_row;
            }
        }
        compare_columns(&row.columns, &expected_columns, problems);
        // The hash chain includes the record's id, so that a wrong id has no valid entry.
        if table == ProjectionTable::Records && !replayed.has_verified_entry {
            problems
                .push(DifferenceKind::Invalid("no log entry of the record has a hash that matches its id".to_owned()));
        }
        match row.context {
            RowContext::LaneFront(false) => {
                problems.push(DifferenceKind::Invalid("it is in `ready`, but not at the front of its lane".to_owned()));
            }
            RowContext::LanePosition { front, is_ready: ready, jobs_ahead: better } => {
                // The tables disagree, and either may be wrong: report both.
                if front != i64::from(ready) {
                    problems.push(differs_in("front", front, i64::from(ready)));
                    if should_report && !ready {
                        let ready =
                            TableDifference::new(ProjectionTable::Ready.name(), &row.subject, DifferenceKind::Missing);
                        self.add_difference(TableDifference { rule: violated_rule(ProjectionTable::Ready), ..ready });
                    }
                } else if front == 0 && self.belongs_in_front(&replayed, better)? {
                    problems.push(DifferenceKind::Invalid(
                        "it is at the back of its lane, but belongs at the front".to_owned(),
                    ));
                }
            }
            RowContext::AlsoReady(true) => {
                problems.push(DifferenceKind::Invalid("it is in `delayed`, but also in `ready` or `lanes`".to_owned()));
            }
            RowContext::Empty
            | RowContext::LaneFront(true)
            | RowContext::AlsoReady(false)
            | RowContext::LeaseEnd(_) => {}
        }
        if let Some((_, Some(links))) = row.columns.iter().find(|(name, _)| *name == "link_version") {
            let (min_links, max_links) = (replayed.incoming_links, replayed.link_version);
            if !links.parse().is_ok_and(|links: u64| (min_links..=max_links).contains(&links)) {
                problems.push(differs_in("link_version", links, format!("{min_links} to {max_links}")));
            }
        }
        Ok(())
    }

    fn verify_effect_row(
        &mut self,
        id: RecordId,
        row: &StoredRow,
        seen_rows: &mut RowBitmap,
        problems: &mut Vec<DifferenceKind>,
    ) -> Result<(), StoreError> {
        let Some(summary) = self.replay.record_summary(id)? else {
            problems.push(DifferenceKind::Extra);
            return Ok(());
        };
        seen_rows.mark(summary.row_id);
        match &summary.effect {
            _ if summary.is_log_damaged => {}
            Some(effect) => compare_columns(&row.columns, &effect_columns(effect), problems),
            None => problems.push(DifferenceKind::Extra),
        }
        Ok(())
    }

    /// Returns whether a job at the back of its lane should be in front: the limit allows more than the jobs ahead of
    /// it.
    fn belongs_in_front(&mut self, replayed: &ReplayedRecord, ahead: u64) -> Result<bool, StoreError> {
        let Some(key) = readiness(&replayed.record).and_then(|waiting| waiting.concurrency_key) else {
            return Ok(false);
        };
        let policy = |key: &ConcurrencyPolicy| (key.ordered, key.limit);
        let own = replayed.record.lifecycle.work.as_ref().and_then(|work| work.concurrency.as_ref()).map(policy);
        let current = self.replay.catalog().definitions.get(&key.lifecycle);
        let current = current.and_then(|lifecycle| lifecycle.work.as_ref()?.concurrency.as_ref()).map(policy);
        // If versions share a key with different policies, the front is not determined, and `decide` has the last word.
        let (Some((ordered, limit)), true) = (own, own == current) else { return Ok(false) };
        if ordered {
            let first = self.replay.queue_front(&key)?;
            return Ok(first.first().is_some_and(|(_, id)| *id == replayed.record.id));
        }
        let count = onceward_core::decide::CounterKey {
            lifecycle: key.lifecycle,
            limit: "work.key".into(),
            parts: key.parts,
            window_start: None,
        };
        let running = u64::try_from(self.replay.read_counter(&count)?).unwrap_or(0);
        Ok(ahead < MAX_COUNTED_JOBS_AHEAD && limit.is_none_or(|limit| ahead < u64::from(limit).saturating_sub(running)))
    }

    fn verify_execution_row(
        &mut self,
        id: RecordId,
        token: i64,
        row: &StoredRow,
        seen_rows: &mut RowBitmap,
        problems: &mut Vec<DifferenceKind>,
    ) -> Result<(), StoreError> {
        let Some(summary) = self.replay.record_summary(id)? else {
            problems.push(DifferenceKind::Extra);
            return Ok(());
        };
        let execution = match self.replay.execution(summary.row_id, id, token)? {
            Some(ReplayedRow { row_id: row, value, .. }) => {
                seen_rows.mark(row);
                value
            }
            None if summary.is_log_damaged => return Ok(()),
            None => {
                problems.push(DifferenceKind::Extra);
                return Ok(());
            }
        };
        if summary.is_log_damaged {
            return Ok(());
        }
        let mut stored_columns = row.columns.clone();
        if execution.status.is_live() {
            let position = stored_columns.iter().position(|(name, _)| *name == "expires_at");
            let expires_at =
                position.and_then(|at| stored_columns.remove(at).1).and_then(|ends| ends.parse::<i64>().ok());
            let earliest_end = execution.expires_at;
            let latest_end =
                self.now.max(self.latest_at).checked_add(MAX_LEASE_SPAN).unwrap_or(Time::MAX).max(earliest_end);
            if !expires_at.is_some_and(|ends| (earliest_end.micros()..=latest_end.micros()).contains(&ends)) {
                let expected = format!("{} to {}", earliest_end.micros(), latest_end.micros());
                problems.push(differs_in("expires_at", expires_at.unwrap_or_default(), expected));
            }
        }
        compare_columns(&stored_columns, &execution_columns(&execution), problems);
        Ok(())
    }

    fn verify_keyed_row(
        &mut self,
        table: ProjectionTable,
        key: &str,
        row: &StoredRow,
        seq: u64,
        seen_rows: &mut RowBitmap,
        problems: &mut Vec<DifferenceKind>,
    ) -> Result<(), StoreError> {
        if table == ProjectionTable::LogSeq {
            seen_rows.mark(1);
            compare_columns(&row.columns, &vec![("one", to_cell(1)), ("seq", to_cell(seq))], problems);
            return Ok(());
        }
        if table == ProjectionTable::PruneState {
            seen_rows.mark(1);
            let PruneState { checkpoint_seq: checkpoint, checkpoint_hash: head, last_pruned_seq: floor } =
                *self.replay.prune_state();
            let head = hex::encode(&head);
            let expected_columns = [
                ("one", to_cell(1)),
                ("checkpoint", to_cell(checkpoint)),
                ("floor", to_cell(floor)),
                ("head", to_cell(head)),
            ];
            compare_columns(&row.columns, &expected_columns.to_vec(), problems);
            return Ok(());
        }
        if table == ProjectionTable::AccountEntries {
            match self.replay.account_entry(key)? {
                Some(account_entry) => seen_rows.mark(account_entry.row_id),
                None => problems.push(DifferenceKind::Extra),
            }
            return Ok(());
        }
        if table == ProjectionTable::ApiKeysRevision {
            seen_rows.mark(1);
            compare_columns(
                &row.columns,
                &vec![("one", to_cell(1)), ("revision", to_cell(self.replay.api_keys_revision))],
                problems,
            );
            return Ok(());
        }
        let Some(kind) = replay_table(table) else { return Ok(()) };
        let replayed_row = self.replay.find_row(kind, key)?;
        if let Some(row) = &replayed_row {
            seen_rows.mark(row.row_id);
        }
        let value = replayed_row.and_then(|row| row.value);
        let expected_columns: ColumnCells = match (table, value) {
            (ProjectionTable::Contents, refs) => {
                // The log does not say whether a caller's payload was inline; a payload that an operation generated is.
                let empty_hash = hex::encode(&Sha256::digest(b""));
                let is_generated = self.replay.find_row(ReplayTable::GeneratedPayload, key)?.is_some();
                let is_present =
                    is_generated || row.columns.first().is_none_or(|(_, bytes)| bytes.as_deref() != Some(&empty_hash));
                let bytes = if is_present { key.to_owned() } else { empty_hash };
                vec![("bytes", to_cell(bytes)), ("refs", to_cell(refs.unwrap_or_else(|| "0".to_owned())))]
            }
            // PostgreSQL locks a concurrency key by its counter, so the row exists even before a job ran.
            (ProjectionTable::Counts, None) if key.contains("work.key") && row.columns == [("count", to_cell(0))] => {
                return Ok(());
            }
            (_, None) => {
                problems.push(DifferenceKind::Extra);
                return Ok(());
            }
            (ProjectionTable::ApiKeys, Some(_)) => match self.replay.api_key(key)? {
                Some(replayed) => api_key_columns(&replayed),
                None => ColumnCells::new(),
            },
            (ProjectionTable::Uniques, Some(holder)) => vec![("holder", to_cell(holder))],
            (ProjectionTable::Accounts, Some(balance)) => {
                let (asset, name) = key.split_once(onceward_store::scan::KEY_SEPARATOR).unwrap_or((key, ""));
                let outside = self.replay.catalog().is_outside_account(asset, name);
                vec![("outside", to_cell(u8::from(outside))), ("balance", to_cell(balance))]
            }
            (_, Some(count)) => vec![("count", to_cell(count))],
        };
        compare_columns(&row.columns, &expected_columns, problems);
        Ok(())
    }
}

/// Returns the replay table of a table with keyed rows.
pub(super) const fn replay_table(table: ProjectionTable) -> Option<ReplayTable> {
    match table {
        ProjectionTable::Uniques => Some(ReplayTable::Unique),
        ProjectionTable::Counts => Some(ReplayTable::Count),
        ProjectionTable::Accounts => Some(ReplayTable::Account),
        ProjectionTable::StateCounts => Some(ReplayTable::StateCount),
        ProjectionTable::Contents => Some(ReplayTable::PayloadReference),
        ProjectionTable::ApiKeys => Some(ReplayTable::ApiKey),
        _ => None,
    }
}

/// Returns the rule that a wrong row violates.
pub(super) const fn violated_rule(table: ProjectionTable) -> Option<&'static str> {
    match table {
        ProjectionTable::Effects => Some("INV-1"),
        ProjectionTable::Records | ProjectionTable::Executions => Some("INV-3"),
        // Ready jobs are found, and due records are fired.
        ProjectionTable::Queues
        | ProjectionTable::Ready
        | ProjectionTable::Lanes
        | ProjectionTable::Delayed
        | ProjectionTable::Timers => Some("INV-4"),
        ProjectionTable::Counts | ProjectionTable::Accounts | ProjectionTable::AccountEntries => Some("INV-7"),
        ProjectionTable::ApiKeys | ProjectionTable::ApiKeysRevision => Some("INV-8"),
        _ => None,
    }
}

fn compare_columns(stored: &ColumnCells, expected: &ColumnCells, problems: &mut Vec<DifferenceKind>) {
    for (column, stored_cell) in stored {
        if *column == "link_version" {
            continue;
        }
        let expected_cell = expected.iter().find(|(name, _)| name == column).map(|(_, cell)| cell);
        if expected_cell != Some(stored_cell) && !is_hash_of_expected(stored_cell, expected_cell) {
            problems.push(DifferenceKind::Differs {
                column,
                stored: stored_cell.clone(),
                expected: expected_cell.cloned().flatten(),
            });
        }
    }
}

/// A store whose indexes reject long text stores a long key as its hash.
fn is_hash_of_expected(stored: &CellText, expected: Option<&CellText>) -> bool {
    let (Some(stored), Some(Some(expected))) = (stored, expected) else { return false };
    stored.strip_prefix('#').is_some_and(|hash| hash == hex::encode(&Sha256::digest(expected.as_bytes())))
}

fn differs_in(column: &'static str, stored: impl ToString, expected: impl ToString) -> DifferenceKind {
    DifferenceKind::Differs { column, stored: to_cell(stored), expected: to_cell(expected) }
}

#[expect(clippy::unnecessary_wraps, clippy::needless_pass_by_value, reason = "a cell may be null; numbers are copied")]
fn to_cell(value: impl ToString) -> CellText {
    Some(value.to_string().into())
}
