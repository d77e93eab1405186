//! Saving a batch: compare, write, take a place in the log, commit.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onceward_core::decide::Key;
use onceward_core::time::Time;
use rusqlite::{Connection, TransactionBehavior};

use super::checkpoint::Checkpoints;
use super::write::Writing;
use super::{Shared, load, read};
use crate::base::Base;
use crate::batch::{Batch, Conflict, Save};
use crate::error::StoreError;
use crate::names::Known;
use crate::net::{Net, Told};

/// Batches whose writes are remembered: more than an engine has on their way at once.
const LATELY: usize = 8;

/// What the thread that writes has at hand.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) shared: Arc<Shared>,
    /// The last row number given to a record. Only this thread gives them.
    last_row: u64,
    /// FM-7: the latest time that lanes were settled at. They are never settled at an earlier one: a job that had waited then would
    /// be passed over, and nobody would come back for it when the clock is there again.
    latest: Time,
    lately: Lately,
    checkpoints: Checkpoints,
}

/// What the last few batches wrote, each under the generation that it ended.
#[derive(Debug, Default)]
struct Lately(VecDeque<(u64, HashSet<Key>)>);

impl Lately {
    fn put(&mut self, generation: u64, written: HashSet<Key>) {
        self.0.push_back((generation, written));
        if self.0.len() > LATELY {
            self.0.pop_front();
        }
    }

    /// Where it is not known what became of a write, all that was loaded before it is compared.
    fn forget(&mut self) {
        self.0.clear();
    }

    /// Whether a key may have changed since a generation: certainly not where no batch since then wrote it.
    fn may_have_changed(&self, key: &Key, since: u64) -> bool {
        let known = self.0.front().is_some_and(|(first, _)| *first <= since);
        !known || self.0.iter().any(|(generation, written)| *generation >= since && written.contains(key))
    }
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        shared: Arc<Shared>,
        checkpoints: Checkpoints,
    ) -> Result<Self, StoreError> {
        let last_row = connection.query_row("SELECT coalesce(max(row), 0) FROM records", [], |row| row.get(0))?;
        let latest = "SELECT coalesce(max(ready_at), ?1) FROM lanes WHERE front = 0";
        let latest = connection.query_row(latest, [Time::MIN.micros()], |row| row.get(0))?;
        let (latest, lately) = (Time::from_micros(latest), Lately::default());
        Ok(Self { connection, shared, last_row, latest, lately, checkpoints })
    }

    pub(super) fn save(&mut self, base: &Base, batch: &Batch, told: Told) -> Result<Save, StoreError> {
        let saved = self.write(base, batch, told);
        if saved.is_err() {
            // Whether it was written is not known: nothing that was loaded or remembered before is taken on trust.
            self.shared.recent().forget();
            self.lately.forget();
            self.shared.generation.fetch_add(1, Ordering::Release);
        }
        saved
    }

    fn write(&mut self, base: &Base, batch: &Batch, told: Told) -> Result<Save, StoreError> {
        let net = Net::with(base, batch, told)?;
        let known = self.shared.known();
        // FM-2, INV-2: all of the batch or nothing of it.
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let generation = self.shared.generation.load(Ordering::Acquire);
        let conflict = conflict(&transaction, &known, base, &net, (generation, &self.lately))?;
        if !conflict.is_empty() {
            return Ok(Save::Conflict(conflict));
        }
        let latest = self.latest.max(net.latest);
        let mut writing = Writing::new(&transaction, &known, base, self.last_row);
        let (first, last) = writing.all(&net, batch.now, latest)?;
        let places = net.records.iter().map(|record| writing.stored(record)).collect::<Result<Vec<_>, _>>()?;
        let last_row = writing.last_row;
        transaction.commit()?;
        (self.last_row, self.latest) = (last_row, latest);
        let mut recent = self.shared.recent();
        for (record, stored) in net.records.iter().zip(places) {
            recent.put(stored, &record.after);
        }
        drop(recent);
        // After the commit: whoever sees the new number sees what was written.
        self.shared.generation.fetch_add(1, Ordering::Release);
        self.lately.put(generation, net.written());
        self.checkpoints.written(&self.connection, &net);
        Ok(Save::Saved { first, last })
    }
}

/// What no longer holds. Where nothing was saved since the base was begun, nothing can have changed: this process is the only
/// one that writes; where something was, only what it wrote. What the base does not hold at all is still found out.
fn conflict(
    connection: &Connection,
    known: &Known,
    base: &Base,
    net: &Net,
    (generation, lately): (u64, &Lately),
) -> Result<Conflict, StoreError> {
    let mut requests = net.repeated.clone();
    for request in &net.requests {
        if read::request(connection, &request.name)?.is_some() {
            requests.push(request.name.clone());
        }
    }
    let since = base.generation().unwrap_or(0);
    let keys = if since == generation {
        net.untold(base)
    } else {
        let mut keys: Vec<Key> = net.compared(base);
        keys.retain(|key| !base.was_told(key) || lately.may_have_changed(key, since));
        let mut fresh = base.probe();
        load::load(connection, known, &mut fresh, &keys)?;
        base.changed_in(&fresh)
    };
    Ok(Conflict { keys, requests })
}
