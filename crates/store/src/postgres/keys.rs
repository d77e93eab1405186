//! API keys: few, seldom changed, read as a whole. Whoever changes them holds the row of `key_changes`.

use std::sync::Arc;

use onceward_core::time::Time;
use tokio_postgres::Row;

use super::Inner;
use super::connect::{BEGIN, InTransaction};
use super::pipeline::{Pipeline, arg};
use super::rows::{self, signed};
use super::write::{END, HISTORY, PLACE};
use crate::api_keys::{ApiKey, KeptKeys, KeyEdit, KeySave, read_names, write_names};
use crate::error::StoreError;

const CHANGES: &str = "SELECT changes FROM onceward.key_changes";

/// One statement, so that both are of one moment.
const KEYS: &str = "SELECT c.changes, k.id, k.hash, k.owner, k.roles, k.lifecycles, k.name, k.created_at, k.expires_at, k.revoked_at \
     FROM onceward.key_changes c LEFT JOIN onceward.api_keys k ON true ORDER BY k.created_at, k.id";

const TURN: &str = "SELECT changes FROM onceward.key_changes FOR UPDATE";

const NUMBER: &str = "SELECT nextval('onceward.batch_numbers')";

const FORGET: &str = "DELETE FROM onceward.api_keys WHERE id = ANY($1::text[])";

const REVOKE: &str = "UPDATE onceward.api_keys SET revoked_at = $2 WHERE id = $1";

const MAKE: &str = "INSERT INTO onceward.api_keys (id, hash, owner, roles, lifecycles, name, created_at, expires_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

const CHANGED: &str = "UPDATE onceward.key_changes SET changes = changes + 1";

pub(super) async fn changes(inner: &Inner) -> Result<u64, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(CHANGES, Vec::new());
    let answers = inner.run(&pipeline).await?;
    first(&answers[0])
}

fn first(found: &[Row]) -> Result<u64, StoreError> {
    rows::unsigned(found.first().ok_or_else(|| StoreError::corrupt("`key_changes` has no row"))?, 0)
}

pub(super) async fn keys(inner: &Inner) -> Result<KeptKeys, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(KEYS, Vec::new());
    let answers = inner.run(&pipeline).await?;
    let mut kept = KeptKeys { changes: first(&answers[0])?, keys: Vec::new() };
    for row in &answers[0] {
        if row.try_get::<_, Option<&str>>(1)?.is_some() {
            kept.keys.push(key(row)?);
        }
    }
    Ok(kept)
}

fn key(row: &Row) -> Result<ApiKey, StoreError> {
    Ok(ApiKey {
        id: rows::text(row, 1)?,
        hash: rows::hash(row.try_get(2)?)?,
        owner: rows::text(row, 3)?,
        roles: read_names(row.try_get(4)?)?,
        lifecycles: row.try_get::<_, Option<&str>>(5)?.map(read_names).transpose()?,
        name: rows::text(row, 6)?,
        created_at: rows::time(row, 7)?,
        expires_at: rows::some_time(row, 8)?,
        revoked_at: rows::some_time(row, 9)?,
    })
}

pub(super) async fn edit(inner: Arc<Inner>, edit: Arc<KeyEdit>) -> Result<KeySave, StoreError> {
    let transaction = InTransaction::new(inner.pool.get().await?);
    match write(&transaction, &edit).await {
        Ok(Some(seq)) => {
            transaction.ended();
            inner.news.tell();
            Ok(KeySave::Saved(seq))
        }
        Ok(None) => {
            transaction.roll_back().await;
            Ok(KeySave::Conflict)
        }
        Err(error) => {
            transaction.roll_back().await;
            Err(error)
        }
    }
}

/// The place of its entry; `None` where the keys have changed.
async fn write(transaction: &InTransaction, edit: &KeyEdit) -> Result<Option<u64>, StoreError> {
    let client = transaction.client()?;
    let mut pipeline = Pipeline::default();
    pipeline.plain(BEGIN);
    let turn = pipeline.add(TURN, Vec::new());
    let number = pipeline.add(NUMBER, Vec::new());
    let answers = pipeline.run(client).await?;
    if first(&answers[turn])? != edit.since {
        return Ok(None);
    }
    let batch = answers[number].first().ok_or_else(|| StoreError::corrupt("a batch without a number"))?;
    let batch: i64 = batch.try_get(0)?;
    let entry = edit.entry()?;
    let mut pipeline = Pipeline::default();
    let forgotten: Vec<&str> = edit.forgotten.iter().map(|id| &**id).collect();
    pipeline.add(FORGET, vec![arg(forgotten)]);
    if let Some(id) = &edit.revoked {
        pipeline.add(REVOKE, vec![arg(&**id), arg(edit.now.micros())]);
    }
    if let Some(key) = &edit.made {
        let lifecycles = key.lifecycles.as_deref().map(write_names).transpose()?;
        let parameters = vec![
            arg(&*key.id),
            arg(key.hash.to_vec()),
            arg(&*key.owner),
            arg(write_names(&key.roles)?),
            arg(lifecycles),
            arg(&*key.name),
            arg(key.created_at.micros()),
            arg(key.expires_at.map(Time::micros)),
        ];
        pipeline.add(MAKE, parameters);
    }
    pipeline.add(CHANGED, Vec::new());
    let parameters = vec![
        arg(vec![batch << 20]),
        arg(vec![None::<i64>]),
        arg(vec![signed(entry.version)]),
        arg(vec![entry.at.micros()]),
        arg(vec![None::<i64>]),
        arg(vec![&*entry.text]),
        arg(vec![&entry.hash[..]]),
    ];
    pipeline.add(HISTORY, parameters);
    // Last of all, as every save does it: the order of the log is the order of commit.
    pipeline.add(END, Vec::new());
    let place = pipeline.add(PLACE, vec![arg(1_i64), arg(batch)]);
    pipeline.plain("COMMIT");
    let answers = pipeline.run(client).await?;
    let row = answers.get(place).and_then(|rows| rows.first());
    Ok(Some(rows::unsigned(row.ok_or_else(|| StoreError::corrupt("the log has no end"))?, 1)?))
}
