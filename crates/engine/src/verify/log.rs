//! Verifies the log in order: seqs, hashes, and the effect of each entry on its record.

use std::sync::Arc;

use onceward_core::count_noun;
use onceward_core::decide::DECIDE_VERSION;
use onceward_core::hex;
use onceward_core::time::Time;
use onceward_store::log::LogEntryBody;
use onceward_store::scan::{DifferenceKind, Scan, StoredLogRow, TableDifference};
use onceward_store::{ApiKeyChange, LogEntry, StoreError};

use super::redecide::{Redecision, commit_needing_result};
use super::report::DecisionDrift;
use super::{SCAN_PAGE_ROWS, Verifier, VerifyStop, invariants};

pub(super) const HISTORY_TABLE: &str = "history";

/// Bounds the report; further gaps are counted.
const MAX_REPORTED_GAPS: usize = 20;

/// A log entry with its parsed body.
pub(super) struct ParsedEntry {
    pub(super) entry: LogEntry,
    pub(super) body: LogEntryBody<'static>,
    is_hash_valid: bool,
}

impl ParsedEntry {
    /// Returns the seq of its operation's first entry.
    fn first_seq(&self) -> u64 {
        self.entry.seq.saturating_sub(u64::from(self.body.back))
    }
}

impl<S: Scan> Verifier<'_, S> {
    /// Reads the whole log, up to its current end.
    pub(super) async fn read_log(&mut self) -> Result<(), VerifyStop> {
        // A page from seq 1 does not show rows before it.
        let page = self.store.scan_log(i64::MIN, SCAN_PAGE_ROWS).await?;
        for row in page.rows.iter().filter(|row| row.seq <= 0) {
            self.add_difference(TableDifference::new(HISTORY_TABLE, row.seq, DifferenceKind::Extra));
        }
        let end = page.seq;
        self.read_log_to(end).await
    }

    /// Reads on to a seq at which a commit ended.
    pub(super) async fn read_log_to(&mut self, to_seq: u64) -> Result<(), VerifyStop> {
        let mut operation_entries: Vec<ParsedEntry> = Vec::new();
        let mut next_seq = self.replay.seq + 1;
        while next_seq <= to_seq {
            let after = i64::try_from(next_seq - 1).unwrap_or(i64::MAX);
            let rows = self.store.scan_log(after, SCAN_PAGE_ROWS).await?.rows;
            let page_start = next_seq;
            for row in rows {
                let Ok(seq) = u64::try_from(row.seq) else { continue };
                if seq > to_seq {
                    break;
                }
                self.verify_gap(next_seq, seq, MAX_REPORTED_GAPS).await?;
                if self.replay.is_pruned(seq)? {
                    self.add_difference(TableDifference::invalid(
                        HISTORY_TABLE,
                        seq,
                        "the entry exists, but a checkpoint says that it was pruned",
                    ));
                }
                self.verify_batch_end(seq, row.batch_end)?;
                next_seq = seq + 1;
                self.report.entries += 1;
                let entry = self.parse_row(&row, seq);
                let body = entry.body();
                let first_seq = body.as_ref().map_or(seq, |body| seq.saturating_sub(u64::from(body.back)));
                if operation_entries.first().is_some_and(|parsed| parsed.first_seq() != first_seq) {
                    self.verify_operation(std::mem::take(&mut operation_entries)).await?;
                }
                let is_checkpoint = body.as_ref().is_ok_and(|body| body.checkpoint.is_some());
                let is_hash_valid = self.verify_chain(&row, &entry, is_checkpoint)?;
                match body {
                    Ok(body) => operation_entries.push(ParsedEntry { entry, body, is_hash_valid }),
                    Err(error) => {
                        self.add_difference(TableDifference::invalid(HISTORY_TABLE, seq, error.to_string()));
                        self.mark_lost(&entry)?;
                    }
                }
            }
            if next_seq == page_start {
                // The store says that its log is longer, but has no more rows.
                self.verify_gap(next_seq, to_seq + 1, 1).await?;
                break;
            }
            self.report_progress("log", next_seq - 1, to_seq);
        }
        self.verify_operation(operation_entries).await?;
        self.replay.advance_to(to_seq.max(self.replay.seq));
        Ok(())
    }

    /// Verifies that a batch ends where the next one begins.
    fn verify_batch_end(&mut self, seq: u64, end: Option<i64>) -> Result<(), StoreError> {
        if let Some((last, stored_end)) = self.last_batch_end
            && Some(stored_end) != end
            && i64::try_from(last) != Ok(stored_end)
        {
            // Its last entries may be pruned; then nothing else may be in the gap.
            let to = u64::try_from(stored_end).unwrap_or(0);
            if to < last || to >= seq || self.replay.missing_seqs(last + 1, to + 1, 0)?.1 > 0 {
                self.add_difference(TableDifference::differs("batches", stored_end, "last", stored_end, last));
            }
        }
        self.last_batch_end = end.map(|end| (seq, end));
        Ok(())
    }

    fn parse_row(&mut self, row: &StoredLogRow, seq: u64) -> LogEntry {
        if let Some(number) = row.missing_row_id {
            let stored = format!("record row {number}, which does not exist");
            self.add_difference(TableDifference::differs(HISTORY_TABLE, seq, "record", stored, "an existing record"));
        }
        let version = u64::try_from(row.version).unwrap_or_else(|_| {
            self.add_difference(TableDifference::differs(HISTORY_TABLE, seq, "version", row.version, "0 or more"));
            0
        });
        let at = Time::from_micros(row.at);
        self.latest_at = self.latest_at.max(at);
        LogEntry { seq, record: row.record, version, at, text: Arc::clone(&row.text), hash: row.hash }
    }

    /// Verifies that the hash covers the entry and the record's previous entry, and that the entry points to that one.
    fn verify_chain(&mut self, row: &StoredLogRow, entry: &LogEntry, is_checkpoint: bool) -> Result<bool, StoreError> {
        let replayed = match entry.record {
            Some(id) => self.replay.replayed_record(id)?,
            None => None,
        };
        let previous = match &replayed {
            Some(replayed) => replayed.head_hash,
            None if is_checkpoint => self.replay.prune_state().checkpoint_hash,
            None => onceward_store::log::ZERO_HASH,
        };
        let expected = entry.expected_hash(&previous);
        let is_match = expected == entry.hash;
        if !is_match {
            let (stored, expected) = (hex::encode(&entry.hash), hex::encode(&expected));
            self.add_difference(
                TableDifference::differs(HISTORY_TABLE, entry.seq, "hash", stored, expected).with_rule("INV-3"),
            );
        }
        if let Some(stored) = row.previous_seq {
            let expected_previous = replayed.map(|replayed| i64::try_from(replayed.head_seq).unwrap_or(i64::MAX));
            if stored != expected_previous {
                let to_text = |seq: Option<i64>| seq.map(|seq| seq.to_string().into());
                let what = DifferenceKind::Differs {
                    column: "previous",
                    stored: to_text(stored),
                    expected: to_text(expected_previous),
                };
                self.add_difference(TableDifference::new(HISTORY_TABLE, entry.seq, what));
            }
        }
        Ok(is_match)
    }

    /// Verifies all entries of one operation.
    async fn verify_operation(&mut self, group: Vec<ParsedEntry>) -> Result<(), StoreError> {
        let Some(first) = group.first() else { return Ok(()) };
        if let Some(checkpoint) = &first.body.checkpoint {
            return self.verify_checkpoint(&first.entry, checkpoint);
        }
        if let Some(activated) = &first.body.activated {
            return self.verify_activation(&first.entry, activated).await;
        }
        if let Some(change) = &first.body.api_key_change {
            return self.verify_key_change(&first.entry, change);
        }
        if first.body.catalog > self.replay.catalog().revision() {
            let catalog_scan = self.store.scan_catalog().await?;
            self.replay.set_catalog(&catalog_scan.catalog)?;
        }
        // Some entries of an older operation may be pruned; the others still know their numbers.
        let is_complete = first.first_seq() > self.replay.last_pruned_seq();
        let expected_more = usize::try_from(first.body.more).unwrap_or(usize::MAX);
        if is_complete && first.body.back == 0 && group.len() - 1 != expected_more {
            let more = count_noun(expected_more, "more entry", "more entries");
            let why = format!("it says that its operation has {more}, but the log has {}", group.len() - 1);
            self.add_difference(TableDifference::invalid(HISTORY_TABLE, first.entry.seq, why).with_rule("INV-3"));
        }
        for (number, parsed) in (0_u32..).zip(&group) {
            let number = if is_complete { number } else { parsed.body.back };
            if parsed.body.back != number || (number == 0) != parsed.body.operation.is_some() {
                let why =
                    format!("it says that it is entry {} of its operation, but it is entry {number}", parsed.body.back);
                self.add_difference(TableDifference::invalid(HISTORY_TABLE, parsed.entry.seq, why).with_rule("INV-3"));
            }
        }
        if is_complete {
            self.replay.apply_key_writes_before(first.entry.seq)?;
            self.redecide_operation(&group).await?;
        } else {
            self.report.pruned.not_redecided += 1;
        }
        for parsed in group {
            self.replay.advance_to(parsed.entry.seq);
            match self.replay.apply(&parsed.entry, &parsed.body, parsed.is_hash_valid) {
                Ok(Some(applied)) => {
                    for difference in invariants::change_violations(&applied, &parsed.body, &parsed.entry) {
                        self.add_difference(difference);
                    }
                }
                Ok(None) => {
                    for difference in invariants::refusal_violations(&parsed.body, &parsed.entry) {
                        self.add_difference(difference);
                    }
                }
                Err(onceward_store::ApplyError::Store(error)) => return Err(error),
                Err(apply_error) => {
                    self.add_difference(
                        TableDifference::invalid(HISTORY_TABLE, parsed.entry.seq, apply_error.to_string())
                            .with_rule("INV-3"),
                    );
                    self.mark_lost(&parsed.entry)?;
                }
            }
        }
        Ok(())
    }

    /// INV-8: each API key is created once, and no two share a secret.
    fn verify_key_change(&mut self, entry: &LogEntry, change: &ApiKeyChange) -> Result<(), StoreError> {
        if entry.record.is_some() || entry.version != 0 {
            let why = "a change of API keys must belong to no record";
            self.add_difference(TableDifference::invalid(HISTORY_TABLE, entry.seq, why).with_rule("INV-3"));
        }
        for why in self.replay.apply_api_key_change(entry, change)? {
            self.add_difference(TableDifference::invalid(HISTORY_TABLE, entry.seq, why).with_rule("INV-8"));
        }
        Ok(())
    }

    fn mark_lost(&mut self, entry: &LogEntry) -> Result<(), StoreError> {
        entry.record.map_or(Ok(()), |id| self.replay.mark_damaged(id, entry))
    }

    async fn redecide_operation(&mut self, group: &[ParsedEntry]) -> Result<(), StoreError> {
        let Some(ParsedEntry { entry, body, .. }) = group.first() else { return Ok(()) };
        if body.decide_version != DECIDE_VERSION {
            self.report.not_redecided += 1;
            return Ok(());
        }
        let definitions = self.definitions_at(body.catalog);
        let result = match commit_needing_result(&mut self.replay, body)? {
            Some(record) => self.store.effect_result(record).await?,
            None => None,
        };
        let (seq, is_refusal) = (entry.seq, body.refusal.is_some());
        match super::redecide::redecide_group(&mut self.replay, &definitions, group, result)? {
            Redecision::Same => self.report.redecided += 1,
            Redecision::NotReproducible => self.report.not_redecided += 1,
            Redecision::Pruned => self.report.pruned.not_redecided += 1,
            Redecision::Differs(_) if is_refusal => {
                self.report.redecided += 1;
                self.report.other_refusals += 1;
            }
            Redecision::Differs(why) => {
                self.report.redecided += 1;
                let drift = DecisionDrift { seq, reason: why };
                self.observer.on_drift(&drift);
                self.report.add_drift(drift);
            }
        }
        Ok(())
    }
}
