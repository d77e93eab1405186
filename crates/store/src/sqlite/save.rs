//! Saving a batch: compare, write, take a place in the log, commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use onceward_core::decide::Key;
use onceward_core::time::Time;
use rusqlite::{Connection, TransactionBehavior};

use super::write::Writing;
use super::{Shared, load, read};
use crate::base::Base;
use crate::batch::{Batch, Conflict, Save};
use crate::error::StoreError;
use crate::names::Known;
use crate::net::Net;

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
}

impl Writer {
    pub(super) fn new(connection: Connection, shared: Arc<Shared>) -> Result<Self, StoreError> {
        let last_row = connection.query_row("SELECT coalesce(max(row), 0) FROM records", [], |row| row.get(0))?;
        let latest = "SELECT coalesce(max(ready_at), ?1) FROM lanes WHERE front = 0";
        let latest = connection.query_row(latest, [Time::MIN.micros()], |row| row.get(0))?;
        Ok(Self { connection, shared, last_row, latest: Time::from_micros(latest) })
    }

    pub(super) fn save(&mut self, base: &Base, batch: &Batch) -> Result<Save, StoreError> {
        let saved = self.write(base, batch);
        if saved.is_err() {
            // Whether it was written is not known: nothing that was loaded or remembered before is taken on trust.
            self.shared.recent().forget();
            self.shared.generation.fetch_add(1, Ordering::Release);
        }
        saved
    }

    fn write(&mut self, base: &Base, batch: &Batch) -> Result<Save, StoreError> {
        let net = Net::of(base, batch)?;
        let known = self.shared.known();
        // FM-2, INV-2: all of the batch or nothing of it.
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let conflict = conflict(&transaction, &known, base, &net, self.shared.generation.load(Ordering::Acquire))?;
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
        Ok(Save::Saved { first, last })
    }
}

/// What no longer holds. Where nothing was saved since the base was begun, nothing can have changed: this process is the only
/// one that writes. What the base does not hold at all is still found out.
fn conflict(
    connection: &Connection,
    known: &Known,
    base: &Base,
    net: &Net,
    generation: u64,
) -> Result<Conflict, StoreError> {
    let mut requests = net.repeated.clone();
    for request in &net.requests {
        if read::request(connection, &request.name)?.is_some() {
            requests.push(request.name.clone());
        }
    }
    let keys = if base.generation() == Some(generation) {
        net.untold(base)
    } else {
        let keys: Vec<Key> = net.compared(base);
        let mut fresh = base.probe();
        load::load(connection, known, &mut fresh, &keys)?;
        base.changed_in(&fresh)
    };
    Ok(Conflict { keys, requests })
}
