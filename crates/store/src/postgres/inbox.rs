//! The inbox: a table into which users' transactions insert calls, and from which they read the results.

use onceward_core::decide::{Call, CreateRecord};
use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json};
use tokio_postgres::Row;
use uuid::Uuid;

use super::PostgresInner;
use super::pipeline::{Pipeline, param};
use super::rows::{self, to_limit};
use crate::error::StoreError;
use crate::inbox::{InboxCall, InboxRefusal, InboxReply};

/// Limit for the calls claimed at once. One call is always claimed; the table accepts at most 1 MB per call.
const MAX_CLAIMED_BYTES: i64 = 16 << 20;

/// Claims calls that are unclaimed or whose claim has expired. A claim only avoids duplicate work. The idempotency key
/// ensures that a call takes effect once.
const CLAIM_CALLS_SQL: &str = "UPDATE onceward.inbox i SET taken_until = clock_timestamp() + interval '30 seconds' \
     FROM (SELECT number, sum(bytes) OVER (ORDER BY number) - bytes AS before FROM ( \
     SELECT number, octet_length(input::text) AS bytes FROM onceward.inbox \
     WHERE answered_at IS NULL AND (taken_until IS NULL OR taken_until < clock_timestamp()) \
     ORDER BY number LIMIT $1 FOR UPDATE SKIP LOCKED) w) t WHERE i.number = t.number AND t.before < $2 \
     RETURNING i.number, i.owner, i.roles, i.key, i.lifecycle, i.event, i.record, i.input::text";

/// Keeps the first answer, with one exception: if a slow engine executed the call after another engine refused it, the
/// success replaces the refusal.
const ANSWER_CALLS_SQL: &str = "UPDATE onceward.inbox i SET answered_at = clock_timestamp(), subject = a.subject, status = a.status, \
     code = a.code, reason = a.reason FROM unnest($1::bigint[], $2::uuid[], $3::integer[], $4::text[], $5::text[]) \
     a(number, subject, status, code, reason) \
     WHERE i.number = a.number AND (i.answered_at IS NULL OR i.subject IS NULL AND a.subject IS NOT NULL)";

pub(super) async fn claim_calls(inner: &PostgresInner, limit: usize) -> Result<Vec<InboxCall>, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(CLAIM_CALLS_SQL, vec![param(to_limit(limit)), param(MAX_CLAIMED_BYTES)]);
    let answers = inner.run_pipeline(&pipeline).await?;
    let (mut calls, mut unreadable) = (Vec::new(), Vec::new());
    for row in answers.iter().flatten() {
        match parse_call(row)? {
            Ok(letter) => calls.push(letter),
            Err(reason) => {
                let refused = InboxRefusal { status: 422, code: "bad_letter".to_owned(), reason };
                unreadable.push(InboxReply { call_id: row.try_get(0)?, outcome: Err(refused) });
            }
        }
    }
    // Answer unreadable calls with a refusal, so that they do not block the others.
    if !unreadable.is_empty() {
        answer_calls(inner, &unreadable).await?;
    }
    calls.sort_unstable_by_key(|call| call.id);
    Ok(calls)
}

/// Converts a row to a call, or returns why it is invalid.
fn parse_call(row: &Row) -> Result<Result<InboxCall, String>, StoreError> {
    let roles: Vec<&str> = row.try_get(2)?;
    let actor = Actor::new(row.try_get(1)?, &roles);
    let input: Map<String, Json> = match serde_json::from_str(row.try_get(7)?) {
        Ok(input) => input,
        Err(error) => return Ok(Err(format!("the input is not a JSON object: {error}"))),
    };
    let record = rows::optional_column::<Uuid>(row, 6)?.map(RecordId);
    let call = match (row.try_get::<_, &str>(5)?, record) {
        ("create", id) => {
            let lifecycle = rows::optional_column::<&str>(row, 4)?.unwrap_or_default().into();
            Call::Create(CreateRecord { lifecycle, id, owner: None, fields: input, payload: None })
        }
        (event, Some(record)) => Call::Fire { record, event: event.into(), input, token: None, if_version: None },
        (_, None) => return Ok(Err("an event needs a record".to_owned())),
    };
    Ok(Ok(InboxCall { id: row.try_get(0)?, actor, idempotency_key: rows::text_column(row, 3)?, call }))
}

pub(super) async fn answer_calls(inner: &PostgresInner, replies: &[InboxReply]) -> Result<(), StoreError> {
    let refusals = || replies.iter().map(|answer| answer.outcome.as_ref().err());
    let numbers: Vec<i64> = replies.iter().map(|answer| answer.call_id).collect();
    let subjects = replies.iter().map(|answer| answer.outcome.as_ref().ok().map(|id| id.0));
    let subjects: Vec<Option<Uuid>> = subjects.collect();
    let statuses: Vec<Option<i32>> = refusals().map(|refused| refused.map(|refused| refused.status.into())).collect();
    let codes: Vec<Option<&str>> = refusals().map(|refused| refused.map(|refused| &*refused.code)).collect();
    let reasons: Vec<Option<&str>> = refusals().map(|refused| refused.map(|refused| &*refused.reason)).collect();
    let mut pipeline = Pipeline::default();
    pipeline
        .add(ANSWER_CALLS_SQL, vec![param(numbers), param(subjects), param(statuses), param(codes), param(reasons)]);
    inner.run_pipeline(&pipeline).await?;
    Ok(())
}
