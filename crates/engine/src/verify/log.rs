//! The log in order: its places, its hashes, and what each entry makes of its record.

use std::sync::Arc;

use onceward_core::counted;
use onceward_core::decide::DECIDING_VERSION;
use onceward_core::hex;
use onceward_core::time::Time;
use onceward_store::log::Body;
use onceward_store::scan::{Difference, LogRow, Scan, What};
use onceward_store::{Entry, KeyChange, StoreError};

use super::again::{Again, needs_result};
use super::report::Drift;
use super::{PAGE, Stop, Verify, invariants};

/// The table's name.
pub(super) const HISTORY: &str = "history";

/// Missing entries that are named one by one.
const NAMED: usize = 20;

/// An entry that was read, and what it says.
pub(super) struct Told {
    pub(super) entry: Entry,
    pub(super) body: Body<'static>,
    /// Its hash is as it must be.
    fits: bool,
}

impl Told {
    /// The place of its operation's first entry.
    fn first(&self) -> u64 {
        self.entry.seq.saturating_sub(u64::from(self.body.back))
    }
}

impl<S: Scan> Verify<'_, S> {
    /// The whole log, as far as it goes by now.
    pub(super) async fn read_log(&mut self) -> Result<(), Stop> {
        // What stands before the first place is in no page that starts there.
        let page = self.store.scan_log(i64::MIN, PAGE).await?;
        for row in page.rows.iter().filter(|row| row.seq <= 0) {
            self.found(Difference::new(HISTORY, row.seq, What::Extra));
        }
        let end = page.seq;
        self.catch_up(end).await
    }

    /// Read on to a place that a commit ended at.
    pub(super) async fn catch_up(&mut self, to: u64) -> Result<(), Stop> {
        let mut group: Vec<Told> = Vec::new();
        let mut next = self.scratch.seq + 1;
        while next <= to {
            let after = i64::try_from(next - 1).unwrap_or(i64::MAX);
            let rows = self.store.scan_log(after, PAGE).await?.rows;
            let before = next;
            for row in rows {
                let Ok(seq) = u64::try_from(row.seq) else { continue };
                if seq > to {
                    break;
                }
                self.gap(next, seq, NAMED).await?;
                if self.scratch.is_taken(seq)? {
                    self.found(Difference::broken(
                        HISTORY,
                        seq,
                        "it is there, and a checkpoint says that it was pruned",
                    ));
                }
                self.batch(seq, row.batch_end)?;
                next = seq + 1;
                self.report.entries += 1;
                let entry = self.entry(&row, seq);
                let body = entry.body();
                let first = body.as_ref().map_or(seq, |body| seq.saturating_sub(u64::from(body.back)));
                if group.first().is_some_and(|told| told.first() != first) {
                    self.carry(std::mem::take(&mut group)).await?;
                }
                let is_checkpoint = body.as_ref().is_ok_and(|body| body.pruned.is_some());
                let fits = self.chain(&row, &entry, is_checkpoint)?;
                match body {
                    Ok(body) => group.push(Told { entry, body, fits }),
                    Err(error) => {
                        self.found(Difference::broken(HISTORY, seq, error.to_string()));
                        self.lose(&entry)?;
                    }
                }
            }
            if next == before {
                // The store says that its log goes further, and has nothing there.
                self.gap(next, to + 1, 1).await?;
                break;
            }
            self.at("log", next - 1, to);
        }
        self.carry(group).await?;
        self.scratch.pass(to.max(self.scratch.seq));
        Ok(())
    }

    /// Where one batch ends, the next begins.
    fn batch(&mut self, seq: u64, end: Option<i64>) -> Result<(), StoreError> {
        if let Some((last, kept)) = self.batch_end
            && Some(kept) != end
            && i64::try_from(last) != Ok(kept)
        {
            // Its last entries may have been pruned, and then nothing else stands there.
            let to = u64::try_from(kept).unwrap_or(0);
            if to < last || to >= seq || self.scratch.not_taken(last + 1, to + 1, 0)?.1 > 0 {
                self.found(Difference::differs("batches", kept, "last", kept, last));
            }
        }
        self.batch_end = end.map(|end| (seq, end));
        Ok(())
    }

    fn entry(&mut self, row: &LogRow, seq: u64) -> Entry {
        if let Some(number) = row.nobody {
            let kept = format!("record row {number}, which is not there");
            self.found(Difference::differs(HISTORY, seq, "record", kept, "a record"));
        }
        let version = u64::try_from(row.version).unwrap_or_else(|_| {
            self.found(Difference::differs(HISTORY, seq, "version", row.version, "a version"));
            0
        });
        let at = Time::from_micros(row.at);
        self.latest = self.latest.max(at);
        Entry { seq, record: row.record, version, at, text: Arc::clone(&row.text), hash: row.hash }
    }

    /// An entry's hash is of what it says and of the record's entry before; and it says where that one stands.
    fn chain(&mut self, row: &LogRow, entry: &Entry, is_checkpoint: bool) -> Result<bool, StoreError> {
        let known = match entry.record {
            Some(id) => self.scratch.known(id)?,
            None => None,
        };
        let previous = match &known {
            Some(known) => known.head,
            None if is_checkpoint => self.scratch.standing().head,
            None => onceward_store::log::NO_HASH,
        };
        let told = entry.expected_hash(&previous);
        let fits = told == entry.hash;
        if !fits {
            let (kept, told) = (hex::encode(&entry.hash), hex::encode(&told));
            self.found(Difference::differs(HISTORY, entry.seq, "hash", kept, told).against("INV-3"));
        }
        if let Some(kept) = row.previous {
            let told = known.map(|known| i64::try_from(known.entry).unwrap_or(i64::MAX));
            if kept != told {
                let shown = |place: Option<i64>| place.map(|place| place.to_string().into());
                let what = What::Differs { column: "previous", kept: shown(kept), told: shown(told) };
                self.found(Difference::new(HISTORY, entry.seq, what));
            }
        }
        Ok(fits)
    }

    /// One operation: all of its entries.
    async fn carry(&mut self, group: Vec<Told>) -> Result<(), StoreError> {
        let Some(first) = group.first() else { return Ok(()) };
        if let Some(checkpoint) = &first.body.pruned {
            return self.checkpoint(&first.entry, checkpoint);
        }
        if let Some(used) = &first.body.used {
            return self.used(&first.entry, used).await;
        }
        if let Some(change) = &first.body.key {
            return self.key_change(&first.entry, change);
        }
        if first.body.catalog > self.scratch.catalog().number() {
            let learned = self.store.learn().await?;
            self.scratch.learn(&learned.catalog)?;
        }
        // Of an older operation some entries may be gone; then the others still know their places.
        let is_whole = first.first() > self.scratch.floor();
        let more = usize::try_from(first.body.more).unwrap_or(usize::MAX);
        if is_whole && first.body.back == 0 && group.len() - 1 != more {
            let more = counted(more, "more entry tells of its operation", "more entries tell of its operation");
            let why = format!("it says that {more}, and there are {}", group.len() - 1);
            self.found(Difference::broken(HISTORY, first.entry.seq, why).against("INV-3"));
        }
        for (number, told) in (0_u32..).zip(&group) {
            let number = if is_whole { number } else { told.body.back };
            if told.body.back != number || (number == 0) != told.body.operation.is_some() {
                let why = format!("it calls itself number {} of an operation and stands at {number}", told.body.back);
                self.found(Difference::broken(HISTORY, told.entry.seq, why).against("INV-3"));
            }
        }
        if is_whole {
            self.scratch.words_before(first.entry.seq)?;
            self.decide_again(&group).await?;
        } else {
            self.report.pruned.undecided += 1;
        }
        for told in group {
            self.scratch.pass(told.entry.seq);
            match self.scratch.apply(&told.entry, &told.body, told.fits) {
                Ok(Some(applied)) => {
                    for difference in invariants::of_change(&applied, &told.body, &told.entry) {
                        self.found(difference);
                    }
                }
                Ok(None) => {
                    for difference in invariants::of_refusal(&told.body, &told.entry) {
                        self.found(difference);
                    }
                }
                Err(onceward_store::Unfit::Store(error)) => return Err(error),
                Err(unfit) => {
                    self.found(Difference::broken(HISTORY, told.entry.seq, unfit.to_string()).against("INV-3"));
                    self.lose(&told.entry)?;
                }
            }
        }
        Ok(())
    }

    /// INV-8: a key is made once, and no two have one secret.
    fn key_change(&mut self, entry: &Entry, change: &KeyChange) -> Result<(), StoreError> {
        if entry.record.is_some() || entry.version != 0 {
            let why = "a change of API keys belongs to no record";
            self.found(Difference::broken(HISTORY, entry.seq, why).against("INV-3"));
        }
        for why in self.scratch.change_keys(entry, change)? {
            self.found(Difference::broken(HISTORY, entry.seq, why).against("INV-8"));
        }
        Ok(())
    }

    fn lose(&mut self, entry: &Entry) -> Result<(), StoreError> {
        entry.record.map_or(Ok(()), |id| self.scratch.lose(id, entry))
    }

    async fn decide_again(&mut self, group: &[Told]) -> Result<(), StoreError> {
        let Some(Told { entry, body, .. }) = group.first() else { return Ok(()) };
        if body.deciding != DECIDING_VERSION {
            self.report.undecided += 1;
            return Ok(());
        }
        let definitions = self.definitions(body.catalog);
        let result = match needs_result(&mut self.scratch, body)? {
            Some(record) => self.store.result(record).await?,
            None => None,
        };
        let (seq, is_refusal) = (entry.seq, body.refusal.is_some());
        match super::again::again(&mut self.scratch, &definitions, group, result)? {
            Again::Same => self.report.decided += 1,
            Again::Unknown => self.report.undecided += 1,
            Again::Pruned => self.report.pruned.undecided += 1,
            Again::Other(_) if is_refusal => {
                self.report.decided += 1;
                self.report.other_refusals += 1;
            }
            Again::Other(why) => {
                self.report.decided += 1;
                let drift = Drift { seq, why };
                self.watch.drift(&drift);
                self.report.drift(drift);
            }
        }
        Ok(())
    }
}
