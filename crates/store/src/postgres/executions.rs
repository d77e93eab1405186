//! Writes executions and effects to PostgreSQL.

use onceward_core::record::{Execution, FencingToken};
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;

use super::pipeline::{Pipeline, SqlParameter, param};
use super::rows::{to_limit, to_signed};
use super::write::BatchWriter;
use crate::columns::{abort_message, retry_at, write_parts, write_status};
use crate::error::StoreError;

const INSERT_EXECUTIONS_SQL: &str = "INSERT INTO onceward.executions (record, token, worker, holder, status, leased_at, expires_at, \
     started_at, finished_at, abort_code, abort_retryable, finish_pending, key, abort_message, \
     retry_at, lease_duration) SELECT unnest($1::bigint[]), \
     unnest($2::bigint[]), unnest($3::text[]), unnest($4::text[]), unnest($5::smallint[]), unnest($6::bigint[]), \
     unnest($7::bigint[]), unnest($8::bigint[]), unnest($9::bigint[]), unnest($10::text[]), unnest($11::bool[]), \
     unnest($12::bool[]), unnest($13::text[]), unnest($14::text[]), unnest($15::bigint[]), \
     unnest($16::bigint[])";

const UPDATE_EXECUTIONS_SQL: &str = "WITH changed AS (UPDATE onceward.executions e SET status = n.status, \
     expires_at = n.expires_at, started_at = n.started_at, finished_at = n.finished_at, abort_code = n.abort_code, \
     abort_retryable = n.abort_retryable, finish_pending = n.finish_pending, key = n.key, \
     abort_message = n.abort_message, retry_at = n.retry_at FROM (SELECT \
     unnest($1::bigint[]) AS record, unnest($2::bigint[]) AS token, unnest($3::smallint[]) AS status, \
     unnest($4::bigint[]) AS expires_at, unnest($5::bigint[]) AS started_at, unnest($6::bigint[]) AS finished_at, \
     unnest($7::text[]) AS abort_code, unnest($8::bool[]) AS abort_retryable, unnest($9::bool[]) AS finish_pending, \
     unnest($10::text[]) AS key, unnest($11::text[]) AS abort_message, \
     unnest($12::bigint[]) AS retry_at) n \
     WHERE e.record = n.record AND e.token = n.token RETURNING 1) \
     SELECT 1 / (count(*) = $13::bigint)::int FROM changed";

const INSERT_EFFECTS_SQL: &str = "INSERT INTO onceward.effects (record, token, result) SELECT unnest($1::bigint[]), \
     unnest($2::bigint[]), unnest($3::text[])";

impl<'a> BatchWriter<'a> {
    /// Inserts or updates the executions of the batch. The read set contains each record's newest execution, and all
    /// earlier ones are stored. So exactly the later ones are new.
    pub(super) fn write_executions(&self, pipeline: &mut Pipeline<'a>) -> Result<(), StoreError> {
        let newest = |id| {
            self.read_set.original_record(id).and_then(|record| record.execution.as_ref()).map(|newest| newest.token)
        };
        let (new, old): (Vec<_>, Vec<_>) = self
            .write_set
            .executions
            .iter()
            .partition(|((id, token), _)| newest(*id).is_none_or(|newest| *token > newest));
        let rows = |of: &[(&(RecordId, FencingToken), &Execution)]| {
            of.iter().map(|((id, _), _)| self.row_id(*id)).collect::<Result<Vec<_>, _>>()
        };
        if !new.is_empty() {
            let all = || new.iter().map(|(_, execution)| *execution);
            let mut parameters = vec![
                param(rows(&new)?),
                param(all().map(|execution| to_signed(execution.token.0)).collect::<Vec<_>>()),
                param(all().map(|execution| &*execution.worker).collect::<Vec<&str>>()),
                param(all().map(|execution| &*execution.holder).collect::<Vec<&str>>()),
                param(all().map(|execution| i16::from(write_status(execution.status))).collect::<Vec<_>>()),
                param(all().map(|execution| execution.leased_at.micros()).collect::<Vec<_>>()),
            ];
            parameters.extend(mutable_columns(all)?);
            let length = |execution: &Execution| execution.lease_duration.map(Duration::micros);
            parameters.push(param(all().map(length).collect::<Vec<_>>()));
            pipeline.add(INSERT_EXECUTIONS_SQL, parameters);
        }
        if !old.is_empty() {
            let all = || old.iter().map(|(_, execution)| *execution);
            let mut parameters = vec![
                param(rows(&old)?),
                param(all().map(|execution| to_signed(execution.token.0)).collect::<Vec<_>>()),
                param(all().map(|execution| i16::from(write_status(execution.status))).collect::<Vec<_>>()),
            ];
            parameters.extend(mutable_columns(all)?);
            parameters.push(param(to_limit(old.len())));
            pipeline.add(UPDATE_EXECUTIONS_SQL, parameters);
        }
        Ok(())
    }

    pub(super) fn write_effects(&self, pipeline: &mut Pipeline<'a>) -> Result<(), StoreError> {
        let effects = &self.write_set.effects;
        if !effects.is_empty() {
            let rows = effects.iter().map(|effect| self.row_id(effect.record)).collect::<Result<Vec<_>, _>>()?;
            let tokens: Vec<i64> = effects.iter().map(|effect| to_signed(effect.token.0)).collect();
            let results: Vec<String> = effects.iter().map(|effect| effect.result.to_string()).collect();
            pipeline.add(INSERT_EFFECTS_SQL, vec![param(rows), param(tokens), param(results)]);
        }
        Ok(())
    }
}

/// Returns the columns that change during an execution, except its status.
fn mutable_columns<'a, I: Iterator<Item = &'a Execution>>(
    all: impl Fn() -> I,
) -> Result<Vec<SqlParameter<'a>>, StoreError> {
    let key = |execution: &Execution| execution.concurrency_key.as_deref().map(write_parts).transpose();
    Ok(vec![
        param(all().map(|execution| execution.expires_at.micros()).collect::<Vec<_>>()),
        param(all().map(|execution| execution.started_at.map(Time::micros)).collect::<Vec<_>>()),
        param(all().map(|execution| execution.finished_at.map(Time::micros)).collect::<Vec<_>>()),
        param(all().map(|execution| execution.aborted.as_ref().map(|abort| &*abort.code)).collect::<Vec<_>>()),
        param(all().map(|execution| execution.aborted.as_ref().map(|abort| abort.retryable)).collect::<Vec<_>>()),
        param(all().map(|execution| execution.finish_pending).collect::<Vec<_>>()),
        param(all().map(key).collect::<Result<Vec<_>, _>>()?),
        param(all().map(abort_message).collect::<Vec<_>>()),
        param(all().map(|execution| retry_at(execution).map(Time::micros)).collect::<Vec<_>>()),
    ])
}
