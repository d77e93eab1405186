//! Writing attempts at jobs, and what they leave.

use onceward_core::record::{Execution, Token};
use onceward_core::time::Time;
use onceward_core::value::RecordId;

use super::pipeline::{Parameter, Pipeline, arg};
use super::rows::{signed, size};
use super::write::Writing;
use crate::columns::{write_parts, write_status};
use crate::error::StoreError;

const BEGIN_EXECUTION: &str = "INSERT INTO onceward.executions (record, token, worker, holder, status, leased_at, expires_at, \
     started_at, finished_at, abort_code, abort_retryable, finish_moves, key) SELECT unnest($1::bigint[]), \
     unnest($2::bigint[]), unnest($3::text[]), unnest($4::text[]), unnest($5::smallint[]), unnest($6::bigint[]), \
     unnest($7::bigint[]), unnest($8::bigint[]), unnest($9::bigint[]), unnest($10::text[]), unnest($11::bool[]), \
     unnest($12::bool[]), unnest($13::text[])";

const CHANGE_EXECUTION: &str = "WITH changed AS (UPDATE onceward.executions e SET status = n.status, \
     expires_at = n.expires_at, started_at = n.started_at, finished_at = n.finished_at, abort_code = n.abort_code, \
     abort_retryable = n.abort_retryable, finish_moves = n.finish_moves, key = n.key FROM (SELECT \
     unnest($1::bigint[]) AS record, unnest($2::bigint[]) AS token, unnest($3::smallint[]) AS status, \
     unnest($4::bigint[]) AS expires_at, unnest($5::bigint[]) AS started_at, unnest($6::bigint[]) AS finished_at, \
     unnest($7::text[]) AS abort_code, unnest($8::bool[]) AS abort_retryable, unnest($9::bool[]) AS finish_moves, \
     unnest($10::text[]) AS key) n WHERE e.record = n.record AND e.token = n.token RETURNING 1) \
     SELECT 1 / (count(*) = $11::bigint)::int FROM changed";

const EFFECTS: &str = "INSERT INTO onceward.effects (record, token, result) SELECT unnest($1::bigint[]), \
     unnest($2::bigint[]), unnest($3::text[])";

impl<'a> Writing<'a> {
    /// A record's newest execution is known with it, and all before it are in the database: only one after it is new.
    pub(super) fn executions(&self, pipeline: &mut Pipeline<'a>) -> Result<(), StoreError> {
        let newest =
            |id| self.base.original(id).and_then(|record| record.execution.as_ref()).map(|newest| newest.token);
        let (new, old): (Vec<_>, Vec<_>) =
            self.net.executions.iter().partition(|((id, token), _)| newest(*id).is_none_or(|newest| *token > newest));
        let rows = |of: &[(&(RecordId, Token), &Execution)]| {
            of.iter().map(|((id, _), _)| self.row(*id)).collect::<Result<Vec<_>, _>>()
        };
        if !new.is_empty() {
            let all = || new.iter().map(|(_, execution)| *execution);
            let mut parameters = vec![
                arg(rows(&new)?),
                arg(all().map(|execution| signed(execution.token.0)).collect::<Vec<_>>()),
                arg(all().map(|execution| &*execution.worker).collect::<Vec<&str>>()),
                arg(all().map(|execution| &*execution.holder).collect::<Vec<&str>>()),
                arg(all().map(|execution| i16::from(write_status(execution.status))).collect::<Vec<_>>()),
                arg(all().map(|execution| execution.leased_at.micros()).collect::<Vec<_>>()),
            ];
            parameters.extend(course(all)?);
            pipeline.add(BEGIN_EXECUTION, parameters);
        }
        if !old.is_empty() {
            let all = || old.iter().map(|(_, execution)| *execution);
            let mut parameters = vec![
                arg(rows(&old)?),
                arg(all().map(|execution| signed(execution.token.0)).collect::<Vec<_>>()),
                arg(all().map(|execution| i16::from(write_status(execution.status))).collect::<Vec<_>>()),
            ];
            parameters.extend(course(all)?);
            parameters.push(arg(size(old.len())));
            pipeline.add(CHANGE_EXECUTION, parameters);
        }
        Ok(())
    }

    pub(super) fn effects(&self, pipeline: &mut Pipeline<'a>) -> Result<(), StoreError> {
        let effects = &self.net.effects;
        if !effects.is_empty() {
            let rows = effects.iter().map(|effect| self.row(effect.record)).collect::<Result<Vec<_>, _>>()?;
            let tokens: Vec<i64> = effects.iter().map(|effect| signed(effect.token.0)).collect();
            let results: Vec<String> = effects.iter().map(|effect| effect.result.to_string()).collect();
            pipeline.add(EFFECTS, vec![arg(rows), arg(tokens), arg(results)]);
        }
        Ok(())
    }
}

/// What changes in the course of an execution besides its status, in columns.
fn course<'a, I: Iterator<Item = &'a Execution>>(all: impl Fn() -> I) -> Result<Vec<Parameter<'a>>, StoreError> {
    let key = |execution: &Execution| execution.key.as_deref().map(write_parts).transpose();
    Ok(vec![
        arg(all().map(|execution| execution.expires_at.micros()).collect::<Vec<_>>()),
        arg(all().map(|execution| execution.started_at.map(Time::micros)).collect::<Vec<_>>()),
        arg(all().map(|execution| execution.finished_at.map(Time::micros)).collect::<Vec<_>>()),
        arg(all().map(|execution| execution.aborted.as_ref().map(|abort| &*abort.code)).collect::<Vec<_>>()),
        arg(all().map(|execution| execution.aborted.as_ref().map(|abort| abort.retryable)).collect::<Vec<_>>()),
        arg(all().map(|execution| execution.finish_moves).collect::<Vec<_>>()),
        arg(all().map(key).collect::<Result<Vec<_>, _>>()?),
    ])
}
