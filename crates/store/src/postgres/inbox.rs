//! The inbox: a table into which a user's own transaction inserts calls, and in which it sees what became of them.

use onceward_core::decide::{Call, Create};
use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json};
use tokio_postgres::Row;
use uuid::Uuid;

use super::Inner;
use super::pipeline::{Pipeline, arg};
use super::rows::{self, size};
use crate::error::StoreError;
use crate::inbox::{Letter, LetterAnswer, Refused};

/// What may be taken at once, however many letters that are; but one in any case. The table takes none of more than a megabyte.
const BYTES: i64 = 16 << 20;

/// Letters that nobody has taken, or that somebody took too long ago to be still at it. Taking one only keeps others from
/// doing the same: that it is carried out once is seen to by its key.
const TAKE: &str = "UPDATE onceward.inbox i SET taken_until = clock_timestamp() + interval '30 seconds' \
     FROM (SELECT number, sum(bytes) OVER (ORDER BY number) - bytes AS before FROM ( \
     SELECT number, octet_length(input::text) AS bytes FROM onceward.inbox \
     WHERE answered_at IS NULL AND (taken_until IS NULL OR taken_until < clock_timestamp()) \
     ORDER BY number LIMIT $1 FOR UPDATE SKIP LOCKED) w) t WHERE i.number = t.number AND t.before < $2 \
     RETURNING i.number, i.owner, i.roles, i.key, i.lifecycle, i.event, i.record, i.input::text";

/// The first answer stays, but for one: where an engine took so long that another had the letter meanwhile and refused it, that it
/// was carried out is the truth.
const ANSWER: &str = "UPDATE onceward.inbox i SET answered_at = clock_timestamp(), subject = a.subject, status = a.status, \
     code = a.code, reason = a.reason FROM unnest($1::bigint[], $2::uuid[], $3::integer[], $4::text[], $5::text[]) \
     a(number, subject, status, code, reason) \
     WHERE i.number = a.number AND (i.answered_at IS NULL OR i.subject IS NULL AND a.subject IS NOT NULL)";

pub(super) async fn take(inner: &Inner, limit: usize) -> Result<Vec<Letter>, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(TAKE, vec![arg(size(limit)), arg(BYTES)]);
    let answers = inner.run(&pipeline).await?;
    let (mut letters, mut unread) = (Vec::new(), Vec::new());
    for row in answers.iter().flatten() {
        match letter(row)? {
            Ok(letter) => letters.push(letter),
            Err(reason) => {
                let refused = Refused { status: 422, code: "bad_letter".to_owned(), reason };
                unread.push(LetterAnswer { number: row.try_get(0)?, outcome: Err(refused) });
            }
        }
    }
    // One that cannot be read must not stand in the way of the others for ever.
    if !unread.is_empty() {
        answer(inner, &unread).await?;
    }
    letters.sort_unstable_by_key(|letter| letter.number);
    Ok(letters)
}

/// A row as a call, or why it is none.
fn letter(row: &Row) -> Result<Result<Letter, String>, StoreError> {
    let roles: Vec<&str> = row.try_get(2)?;
    let actor = Actor::new(row.try_get(1)?, &roles);
    let input: Map<String, Json> = match serde_json::from_str(row.try_get(7)?) {
        Ok(input) => input,
        Err(error) => return Ok(Err(format!("the input: {error}"))),
    };
    let record = rows::some::<Uuid>(row, 6)?.map(RecordId);
    let call = match (row.try_get::<_, &str>(5)?, record) {
        ("create", id) => {
            let lifecycle = rows::some::<&str>(row, 4)?.unwrap_or_default().into();
            Call::Create(Create { lifecycle, id, owner: None, fields: input, payload: None })
        }
        (event, Some(record)) => Call::Fire { record, event: event.into(), input, token: None, if_version: None },
        (_, None) => return Ok(Err("an event needs its record".to_owned())),
    };
    Ok(Ok(Letter { number: row.try_get(0)?, actor, key: rows::text(row, 3)?, call }))
}

pub(super) async fn answer(inner: &Inner, answers: &[LetterAnswer]) -> Result<(), StoreError> {
    let refused = || answers.iter().map(|answer| answer.outcome.as_ref().err());
    let numbers: Vec<i64> = answers.iter().map(|answer| answer.number).collect();
    let subjects = answers.iter().map(|answer| answer.outcome.as_ref().ok().map(|id| id.0));
    let subjects: Vec<Option<Uuid>> = subjects.collect();
    let statuses: Vec<Option<i32>> = refused().map(|refused| refused.map(|refused| refused.status.into())).collect();
    let codes: Vec<Option<&str>> = refused().map(|refused| refused.map(|refused| &*refused.code)).collect();
    let reasons: Vec<Option<&str>> = refused().map(|refused| refused.map(|refused| &*refused.reason)).collect();
    let mut pipeline = Pipeline::default();
    pipeline.add(ANSWER, vec![arg(numbers), arg(subjects), arg(statuses), arg(codes), arg(reasons)]);
    inner.run(&pipeline).await?;
    Ok(())
}
