//! What pruning took: by its checkpoints, which are chained like the entries of a record.

use onceward_core::counted;
use onceward_core::hex;
use onceward_store::log::Checkpoint;
use onceward_store::scan::{Difference, Scan, Table, What};
use onceward_store::{Entry, Standing, StoreError};

use super::log::HISTORY;
use super::{Stop, Verify};

impl<S: Scan> Verify<'_, S> {
    /// Know all checkpoints before the log is read. Whether they are what they say is looked at when their turn comes.
    pub(super) async fn stand(&mut self) -> Result<(), StoreError> {
        let newest = self.newest_checkpoint().await?;
        self.newest = newest;
        let mut next = newest;
        while next > 0 {
            let Some(checkpoint) = self.checkpoint_at(next).await? else {
                let why = format!("place {next} of the log should have a checkpoint, and has none");
                self.found(Difference::broken(Table::Pruned.name(), 1, why).against("INV-4"));
                break;
            };
            self.scratch.stand_on(next, &checkpoint)?;
            let pruned = &mut self.report.pruned;
            pruned.checkpoints += 1;
            pruned.records += checkpoint.records();
            pruned.entries += checkpoint.places.count();
            // Only backward: a damaged one must not lead round in a circle.
            next = checkpoint.before.filter(|before| *before < next).unwrap_or(0);
        }
        self.report.pruned.floor = self.scratch.floor();
        Ok(())
    }

    /// Where the store says that its newest checkpoint is.
    async fn newest_checkpoint(&self) -> Result<u64, StoreError> {
        let page = self.store.scan(Table::Pruned, None, 1).await?;
        let place = page.rows.first().and_then(|row| {
            let (_, place) = row.columns.iter().find(|(name, _)| *name == "checkpoint")?;
            place.as_deref()?.parse().ok()
        });
        Ok(place.unwrap_or(0))
    }

    async fn checkpoint_at(&self, place: u64) -> Result<Option<Checkpoint>, StoreError> {
        let after = i64::try_from(place - 1).unwrap_or(i64::MAX);
        let rows = self.store.scan_log(after, 2).await?.rows;
        let row = rows.into_iter().find(|row| u64::try_from(row.seq) == Ok(place));
        let entry = row.map(|row| Entry {
            seq: place,
            record: None,
            version: 0,
            at: onceward_core::time::Time::from_micros(row.at),
            text: row.text,
            hash: row.hash,
        });
        let body = entry.and_then(|entry| entry.body().ok());
        Ok(body.and_then(|body| body.pruned).map(std::borrow::Cow::into_owned))
    }

    /// Places from one to before another have no entries. What no checkpoint explains is missing, unless one has come since.
    pub(super) async fn gap(&mut self, from: u64, to: u64, named: usize) -> Result<(), Stop> {
        let (first, count) = self.scratch.not_taken(from, to, named)?;
        if count == 0 {
            return Ok(());
        }
        if self.newest_checkpoint().await? > self.newest {
            return Err(Stop::Pruned);
        }
        let more = count.saturating_sub(u64::try_from(first.len()).unwrap_or(0));
        for place in first {
            self.found(Difference::new(HISTORY, place, What::Missing).against("INV-4"));
        }
        if more > 0 {
            let why = counted(more, "more entry before it is not there", "more entries before it are not there");
            self.found(Difference::broken(HISTORY, to, why).against("INV-4"));
        }
        Ok(())
    }

    /// A checkpoint in its place.
    pub(super) fn checkpoint(&mut self, entry: &Entry, checkpoint: &Checkpoint) -> Result<(), StoreError> {
        let Standing { checkpoint: before, .. } = *self.scratch.standing();
        if checkpoint.before.unwrap_or(0) != before {
            let kept = checkpoint.before.unwrap_or(0);
            self.found(Difference::differs(HISTORY, entry.seq, "text", kept, before).against("INV-3"));
        }
        if entry.version != 0 || checkpoint.floor() >= entry.seq {
            let why = "a checkpoint takes only what stands before it, and belongs to no record";
            self.found(Difference::broken(HISTORY, entry.seq, why).against("INV-3"));
        }
        let Some(removed) = self.scratch.checkpoint(entry, checkpoint)? else { return Ok(()) };
        let pruned = &mut self.report.pruned;
        pruned.checkpoints += 1;
        pruned.records += removed.records;
        pruned.entries += checkpoint.places.count();
        if (removed.records, removed.digest) != (checkpoint.records(), checkpoint.digest) {
            let why = format!(
                "it says that {} went ({}), and {} did ({})",
                counted(checkpoint.records(), "record", "records"),
                hex::encode(&checkpoint.digest),
                removed.records,
                hex::encode(&removed.digest)
            );
            self.found(Difference::broken(HISTORY, entry.seq, why).against("INV-3"));
        }
        Ok(())
    }
}
