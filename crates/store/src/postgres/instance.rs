//! Named instances. Processes that share a database cannot tell whether another one has ended. But if a process starts
//! under a name, it replaces the previous process of that name. In-process workers of the previous one have ended, or
//! their fencing tokens make them harmless.

use std::sync::Arc;

use onceward_core::record::FencingToken;
use onceward_core::value::RecordId;

use super::PostgresInner;
use super::pipeline::{Pipeline, param};
use super::rows::{self, to_limit};
use crate::error::StoreError;
use crate::query::in_process_worker_name;

const INSERT_INSTANCE_SQL: &str = "INSERT INTO onceward.instances AS o (name, number) VALUES ($1, 1) \
     ON CONFLICT (name) DO UPDATE SET number = o.number + 1 RETURNING number";

/// Scans only timers, because each live lease has one for its expiry. Returns only leases of earlier instances, so that
/// an old process that still runs cannot end leases of its successor.
const SELECT_ORPHANED_LEASES_SQL: &str = "SELECT r.id, e.token FROM onceward.timers t JOIN onceward.records r ON r.row = t.record \
     JOIN onceward.executions e ON e.record = r.row AND e.token = r.attempt \
     WHERE e.status < 3 AND starts_with(e.worker, $1) \
     AND CASE WHEN substr(e.worker, length($1) + 1) ~ '^[0-9]{1,18} ' \
     THEN split_part(substr(e.worker, length($1) + 1), ' ', 1)::bigint < $2 ELSE false END LIMIT $3";

/// One start of a named server.
#[derive(Debug)]
pub(super) struct Instance {
    name: Arc<str>,
    number: i64,
}

impl Instance {
    /// Returns the instance mark in the names of its in-process workers.
    pub(super) fn worker_mark(&self) -> Arc<str> {
        format!("{}:{}", self.name, self.number).into()
    }
}

/// Registers a new instance under a name.
pub(super) async fn start_instance(inner: &PostgresInner, name: &str) -> Result<Instance, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(INSERT_INSTANCE_SQL, vec![param(name)]);
    let answers = pipeline.run(&inner.pool.get().await?).await?;
    let row =
        answers[0].first().ok_or_else(|| StoreError::corrupt("the instance that was just registered is missing"))?;
    Ok(Instance { name: name.into(), number: row.try_get(0)? })
}

pub(super) async fn orphaned_leases(
    inner: &PostgresInner,
    instance: &Instance,
    limit: usize,
) -> Result<Vec<(RecordId, FencingToken)>, StoreError> {
    // The part of the worker name before the instance number.
    let worker_prefix = in_process_worker_name(&format!("{}:", instance.name), "");
    let mut pipeline = Pipeline::default();
    pipeline.add(
        SELECT_ORPHANED_LEASES_SQL,
        vec![param(worker_prefix.trim_end()), param(instance.number), param(to_limit(limit))],
    );
    let answers = inner.run_pipeline(&pipeline).await?;
    answers
        .iter()
        .flatten()
        .map(|row| Ok((rows::record_id_column(row, 0)?, FencingToken(rows::unsigned_column(row, 1)?))))
        .collect()
}
