//! Saving a batch: stand on firm ground, write, take a place in the log, commit. Two round trips; three where work keys are
//! settled.

use std::sync::Arc;

use tokio_postgres::error::DbError;

use super::claim::Ground;
use super::connect::InTransaction;
use super::errors::Failed;
use super::lanes::{self, Lane};
use super::pipeline::Pipeline;
use super::rows;
use super::write::Writing;
use super::{Inner, Known};
use crate::base::Base;
use crate::batch::{Batch, Conflict, Save};
use crate::error::StoreError;
use crate::histogram::Histogram;
use crate::net::Net;

/// Attempts at a save that got in another's way, or whose connection was found dead before anything was written.
const ATTEMPTS: usize = 5;

pub(super) async fn save(inner: Arc<Inner>, base: Arc<Base>, batch: Arc<Batch>) -> Result<Save, StoreError> {
    let net = Net::of(&base, &batch)?;
    let mut last = StoreError::Busy;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            inner.refresh().await?;
        }
        match once(&inner, &inner.known(), &base, &batch, &net).await {
            Err(Failure { error, again: true }) => last = error,
            Err(Failure { error, again: false }) => return Err(error),
            Ok(save) => return Ok(save),
        }
    }
    Err(last)
}

/// An attempt that failed, and whether another may be made: never once a commit was asked for.
struct Failure {
    error: StoreError,
    again: bool,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let again = matches!(error, StoreError::Busy | StoreError::UnknownDefinition { .. });
        Self { error, again }
    }
}

async fn once(inner: &Inner, known: &Known, base: &Base, batch: &Batch, net: &Net<'_>) -> Result<Save, Failure> {
    for record in &net.records {
        known.catalog.number_of(&record.after.lifecycle)?;
    }
    let ground = Ground::of(base, net, known)?;
    let transaction = InTransaction::new(inner.pool.get().await?);
    let asked = ground.ask(known, batch.now.micros())?;
    let answers = match asked.pipeline.run(transaction.client()?).await {
        Ok(answers) => answers,
        Err(error) => {
            // A connection that died while it lay idle: nothing was done on it.
            let dead = transaction.client()?.is_closed();
            transaction.roll_back().await;
            let failure = Failure::from(error);
            return Err(Failure { again: failure.again || dead, ..failure });
        }
    };
    if asked.is_outdated(&answers, batch.catalog)? {
        transaction.roll_back().await;
        inner.refresh().await?;
        return Ok(Save::Conflict(Conflict::default()));
    }
    if ground.lost_a_count(&asked, &answers) {
        transaction.roll_back().await;
        return Err(StoreError::Busy.into());
    }
    let stood = ground.stood(asked, &answers, known)?;
    if !stood.conflict.is_empty() {
        transaction.roll_back().await;
        inner.memory.forget(&stood.conflict.keys);
        return Ok(Save::Conflict(stood.conflict));
    }
    let mut writing = Writing::new(known, base, net, &stood)?;
    match write(&transaction, &mut writing, &ground, net, &inner.commits).await {
        Ok(save) => {
            transaction.ended();
            inner.marks.lower(&writing.ranks);
            inner.memory.put(net.records.iter().filter_map(|record| writing.saved(record)));
            inner.news.tell();
            inner.sweeps.written(batch.writes.len());
            Ok(save)
        }
        Err(error) => {
            // The commit may have come through all the same.
            inner.marks.lower(&writing.ranks);
            inner.memory.forget_all();
            transaction.roll_back().await;
            let ids = ground.asked_for.clone();
            // Somebody made a record of this id after we had looked.
            if error.id_taken && !ids.is_empty() {
                return Ok(Save::Conflict(Conflict { keys: ids, requests: Vec::new() }));
            }
            Err(error.error.into())
        }
    }
}

/// Nothing was written.
pub(super) struct Unwritten {
    pub(super) error: StoreError,
    /// Because there is a record of an id that was to be a new one's.
    id_taken: bool,
}

impl From<StoreError> for Unwritten {
    fn from(error: StoreError) -> Self {
        Self { error, id_taken: false }
    }
}

impl From<Failed> for Unwritten {
    fn from(error: Failed) -> Self {
        let said = if let Failed::Said(error) = &error { error.as_db_error() } else { None };
        let id_taken = said.and_then(DbError::constraint) == Some("records_id");
        Self { error: error.into(), id_taken }
    }
}

async fn write(
    transaction: &InTransaction,
    writing: &mut Writing<'_>,
    ground: &Ground<'_>,
    net: &Net<'_>,
    commits: &Histogram,
) -> Result<Save, Unwritten> {
    let client = transaction.client()?;
    let mut pipeline = Pipeline::default();
    writing.all(&mut pipeline, ground)?;
    if !ground.touched.is_empty() {
        let known = writing.known;
        let touched = ground.touched.iter().map(|key| Lane::of(known, key)).collect::<Result<Vec<_>, _>>()?;
        let touched: Vec<Lane> = touched.into_iter().flatten().collect();
        pipeline = lanes::settle((client, pipeline), known, &touched, net.latest, &mut writing.ranks).await?;
    }
    let end = writing.end(&mut pipeline)?;
    pipeline.plain("COMMIT");
    let (answers, commit) = pipeline.attempt_and_time(client).await?;
    commits.add_time(commit);
    let row = answers.get(end).and_then(|rows| rows.first());
    let row = row.ok_or_else(|| StoreError::corrupt("the log has no end"))?;
    Ok(Save::Saved { first: rows::unsigned(row, 0)?, last: rows::unsigned(row, 1)? })
}
