//! API keys in PostgreSQL. They are few and change rarely, so they are read as a whole. An edit locks the row of
//! `api_keys_revision`.

use std::sync::Arc;

use onceward_core::time::Time;
use tokio_postgres::Row;

use super::PostgresInner;
use super::pipeline::{Pipeline, param};
use super::pool::{BEGIN_WRITE_SQL, OpenTransaction};
use super::rows::{self, to_signed};
use super::write::{APPEND_BATCH_SQL, INSERT_HISTORY_SQL, LOCK_LOG_END_SQL};
use crate::api_keys::{ApiKey, ApiKeyEdit, ApiKeySaveResult, ApiKeySet, read_names, write_names};
use crate::error::StoreError;

const SELECT_REVISION_SQL: &str = "SELECT revision FROM onceward.api_keys_revision";

/// One statement, so that keys and revision match.
const SELECT_API_KEYS_SQL: &str = "SELECT c.revision, k.id, k.hash, k.owner, k.roles, k.lifecycles, k.name, k.created_at, k.expires_at, k.revoked_at \
     FROM onceward.api_keys_revision c LEFT JOIN onceward.api_keys k ON true ORDER BY k.created_at, k.id";

const LOCK_REVISION_SQL: &str = "SELECT revision FROM onceward.api_keys_revision FOR UPDATE";

const NEXT_BATCH_NUMBER_SQL: &str = "SELECT nextval('onceward.batch_numbers')";

const DELETE_API_KEYS_SQL: &str = "DELETE FROM onceward.api_keys WHERE id = ANY($1::text[])";

const REVOKE_API_KEY_SQL: &str = "UPDATE onceward.api_keys SET revoked_at = $2 WHERE id = $1";

const INSERT_API_KEY_SQL: &str = "INSERT INTO onceward.api_keys (id, hash, owner, roles, lifecycles, name, created_at, expires_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

const RAISE_REVISION_SQL: &str = "UPDATE onceward.api_keys_revision SET revision = revision + 1";

pub(super) async fn revision(inner: &PostgresInner) -> Result<u64, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(SELECT_REVISION_SQL, Vec::new());
    let answers = inner.run_pipeline(&pipeline).await?;
    read_revision(&answers[0])
}

fn read_revision(found: &[Row]) -> Result<u64, StoreError> {
    rows::unsigned_column(found.first().ok_or_else(|| StoreError::corrupt("`api_keys_revision` has no row"))?, 0)
}

pub(super) async fn api_keys(inner: &PostgresInner) -> Result<ApiKeySet, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(SELECT_API_KEYS_SQL, Vec::new());
    let answers = inner.run_pipeline(&pipeline).await?;
    let mut key_set = ApiKeySet { revision: read_revision(&answers[0])?, keys: Vec::new() };
    for row in &answers[0] {
        if row.try_get::<_, Option<&str>>(1)?.is_some() {
            key_set.keys.push(read_api_key(row)?);
        }
    }
    Ok(key_set)
}

fn read_api_key(row: &Row) -> Result<ApiKey, StoreError> {
    Ok(ApiKey {
        id: rows::text_column(row, 1)?,
        hash: rows::to_hash(row.try_get(2)?)?,
        owner: rows::text_column(row, 3)?,
        roles: read_names(row.try_get(4)?)?,
        lifecycles: row.try_get::<_, Option<&str>>(5)?.map(read_names).transpose()?,
        name: rows::text_column(row, 6)?,
        created_at: rows::time_column(row, 7)?,
        expires_at: rows::optional_time_column(row, 8)?,
        revoked_at: rows::optional_time_column(row, 9)?,
    })
}

pub(super) async fn edit_api_keys(
    inner: Arc<PostgresInner>,
    edit: Arc<ApiKeyEdit>,
) -> Result<ApiKeySaveResult, StoreError> {
    let transaction = OpenTransaction::new(inner.pool.get().await?);
    match write_edit(&transaction, &edit).await {
        Ok(Some(seq)) => {
            transaction.release();
            inner.notify_channel.notify();
            Ok(ApiKeySaveResult::Saved(seq))
        }
        Ok(None) => {
            transaction.rollback().await;
            Ok(ApiKeySaveResult::Conflict)
        }
        Err(error) => {
            transaction.rollback().await;
            Err(error)
        }
    }
}

/// Writes the edit and returns the seq of its log entry, or `None` if the keys have changed.
async fn write_edit(transaction: &OpenTransaction, edit: &ApiKeyEdit) -> Result<Option<u64>, StoreError> {
    let client = transaction.client()?;
    let mut pipeline = Pipeline::default();
    pipeline.add_plain(BEGIN_WRITE_SQL);
    let revision = pipeline.add(LOCK_REVISION_SQL, Vec::new());
    let number = pipeline.add(NEXT_BATCH_NUMBER_SQL, Vec::new());
    let answers = pipeline.run(client).await?;
    if read_revision(&answers[revision])? != edit.expected_revision {
        return Ok(None);
    }
    let batch =
        answers[number].first().ok_or_else(|| StoreError::corrupt("the database assigned no number to the batch"))?;
    let batch: i64 = batch.try_get(0)?;
    let entry = edit.log_entry()?;
    let mut pipeline = Pipeline::default();
    let deleted: Vec<&str> = edit.deleted.iter().map(|id| &**id).collect();
    pipeline.add(DELETE_API_KEYS_SQL, vec![param(deleted)]);
    if let Some(id) = &edit.revoked {
        pipeline.add(REVOKE_API_KEY_SQL, vec![param(&**id), param(edit.now.micros())]);
    }
    if let Some(key) = &edit.created {
        let lifecycles = key.lifecycles.as_deref().map(write_names).transpose()?;
        let parameters = vec![
            param(&*key.id),
            param(key.hash.to_vec()),
            param(&*key.owner),
            param(write_names(&key.roles)?),
            param(lifecycles),
            param(&*key.name),
            param(key.created_at.micros()),
            param(key.expires_at.map(Time::micros)),
        ];
        pipeline.add(INSERT_API_KEY_SQL, parameters);
    }
    pipeline.add(RAISE_REVISION_SQL, Vec::new());
    let parameters = vec![
        param(vec![batch << 20]),
        param(vec![None::<i64>]),
        param(vec![to_signed(entry.version)]),
        param(vec![entry.at.micros()]),
        param(vec![None::<i64>]),
        param(vec![&*entry.text]),
        param(vec![&entry.hash[..]]),
    ];
    pipeline.add(INSERT_HISTORY_SQL, parameters);
    // Last, as in every save, so that the log has commit order.
    pipeline.add(LOCK_LOG_END_SQL, Vec::new());
    let appended = pipeline.add(APPEND_BATCH_SQL, vec![param(1_i64), param(batch)]);
    pipeline.add_plain("COMMIT");
    let answers = pipeline.run(client).await?;
    let row = answers.get(appended).and_then(|rows| rows.first());
    Ok(Some(rows::unsigned_column(row.ok_or_else(|| StoreError::corrupt("`log_seq` has no row"))?, 1)?))
}
