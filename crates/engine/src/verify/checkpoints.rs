//! Verifies checkpoints, which are chained like the entries of a record.

use onceward_core::count_noun;
use onceward_core::hex;
use onceward_store::log::Checkpoint;
use onceward_store::scan::{DifferenceKind, ProjectionTable, Scan, TableDifference};
use onceward_store::{LogEntry, PruneState, StoreError};

use super::log::HISTORY_TABLE;
use super::{Verifier, VerifyStop};

impl<S: Scan> Verifier<'_, S> {
    /// Loads all checkpoints before the log is read. Each is verified when the log reaches it.
    pub(super) async fn preload_checkpoints(&mut self) -> Result<(), StoreError> {
        let newest = self.newest_checkpoint().await?;
        self.newest_checkpoint_seq = newest;
        let mut next_seq = newest;
        while next_seq > 0 {
            let Some(checkpoint) = self.checkpoint_at_seq(next_seq).await? else {
                let why = format!("the log should have a checkpoint at seq {next_seq}, but has none");
                self.add_difference(
                    TableDifference::invalid(ProjectionTable::PruneState.name(), 1, why).with_rule("INV-4"),
                );
                break;
            };
            self.replay.preload_checkpoint(next_seq, &checkpoint)?;
            let summary = &mut self.report.pruned;
            summary.checkpoints += 1;
            summary.records += checkpoint.pruned_records();
            summary.entries += checkpoint.seqs.count();
            // Only backward: damaged checkpoints must not form a cycle.
            next_seq = checkpoint.previous_seq.filter(|before| *before < next_seq).unwrap_or(0);
        }
        self.report.pruned.floor_seq = self.replay.last_pruned_seq();
        Ok(())
    }

    /// Returns the seq of the newest checkpoint, by the store.
    async fn newest_checkpoint(&self) -> Result<u64, StoreError> {
        let page = self.store.scan(ProjectionTable::PruneState, None, 1).await?;
        let seq = page.rows.first().and_then(|row| {
            let (_, cell) = row.columns.iter().find(|(name, _)| *name == "checkpoint")?;
            cell.as_deref()?.parse().ok()
        });
        Ok(seq.unwrap_or(0))
    }

    async fn checkpoint_at_seq(&self, seq: u64) -> Result<Option<Checkpoint>, StoreError> {
        let after = i64::try_from(seq - 1).unwrap_or(i64::MAX);
        let rows = self.store.scan_log(after, 2).await?.rows;
        let row = rows.into_iter().find(|row| u64::try_from(row.seq) == Ok(seq));
        let entry = row.map(|row| LogEntry {
            seq,
            record: None,
            version: 0,
            at: onceward_core::time::Time::from_micros(row.at),
            text: row.text,
            hash: row.hash,
        });
        let body = entry.and_then(|entry| entry.body().ok());
        Ok(body.and_then(|body| body.checkpoint).map(std::borrow::Cow::into_owned))
    }

    /// Verifies a range without entries. Seqs that no checkpoint explains are missing, unless there is a newer
    /// checkpoint.
    pub(super) async fn verify_gap(&mut self, from: u64, to: u64, max_reported: usize) -> Result<(), VerifyStop> {
        let (first, count) = self.replay.missing_seqs(from, to, max_reported)?;
        if count == 0 {
            return Ok(());
        }
        if self.newest_checkpoint().await? > self.newest_checkpoint_seq {
            return Err(VerifyStop::Pruned);
        }
        let unreported = count.saturating_sub(u64::try_from(first.len()).unwrap_or(0));
        for seq in first {
            self.add_difference(TableDifference::new(HISTORY_TABLE, seq, DifferenceKind::Missing).with_rule("INV-4"));
        }
        if unreported > 0 {
            let why = count_noun(unreported, "more entry before it is missing", "more entries before it are missing");
            self.add_difference(TableDifference::invalid(HISTORY_TABLE, to, why).with_rule("INV-4"));
        }
        Ok(())
    }

    /// Verifies a checkpoint when the log reaches it.
    pub(super) fn verify_checkpoint(&mut self, entry: &LogEntry, checkpoint: &Checkpoint) -> Result<(), StoreError> {
        let PruneState { checkpoint_seq: previous_seq, .. } = *self.replay.prune_state();
        if checkpoint.previous_seq.unwrap_or(0) != previous_seq {
            let stored_seq = checkpoint.previous_seq.unwrap_or(0);
            self.add_difference(
                TableDifference::differs(HISTORY_TABLE, entry.seq, "text", stored_seq, previous_seq).with_rule("INV-3"),
            );
        }
        if entry.version != 0 || checkpoint.last_pruned_seq() >= entry.seq {
            let why = "a checkpoint must belong to no record and prune only earlier entries";
            self.add_difference(TableDifference::invalid(HISTORY_TABLE, entry.seq, why).with_rule("INV-3"));
        }
        let Some(pruned_rows) = self.replay.apply_checkpoint(entry, checkpoint)? else { return Ok(()) };
        let summary = &mut self.report.pruned;
        summary.checkpoints += 1;
        summary.records += pruned_rows.records;
        summary.entries += checkpoint.seqs.count();
        if (pruned_rows.records, pruned_rows.digest) != (checkpoint.pruned_records(), checkpoint.digest) {
            let why = format!(
                "it says that it pruned {} (digest {}), but the log gives {} (digest {})",
                count_noun(checkpoint.pruned_records(), "record", "records"),
                hex::encode(&checkpoint.digest),
                pruned_rows.records,
                hex::encode(&pruned_rows.digest)
            );
            self.add_difference(TableDifference::invalid(HISTORY_TABLE, entry.seq, why).with_rule("INV-3"));
        }
        Ok(())
    }
}
