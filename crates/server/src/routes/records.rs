//! Making records, one or many.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use onceward_core::decide::{Call, Create};
use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_engine::{Answer, EngineError, Submission};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::caller::Caller;
use crate::input::{self, At, Calls, Given, IDEMPOTENCY_KEY, Small};
use crate::named;
use crate::observe;
use crate::problem::{self, Problem};
use crate::shape::{RecordShape, ok};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(create)).routes(routes!(create_batch))
}

/// What a record is made of.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRecord {
    /// A UUID of version 7. Made by the server where it is left out.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")]
    id: Option<RecordId>,
    /// By name; those that the lifecycle takes from a caller.
    #[serde(default)]
    #[schema(value_type = Object)]
    fields: Small<Map<String, Json>>,
    /// Any JSON. It is kept as it is written here, byte for byte; null is none.
    #[serde(default)]
    #[schema(value_type = Option<Value>)]
    payload: Option<Box<RawValue>>,
    /// Bytes in place of JSON.
    #[serde(default)]
    #[schema(content_encoding = "base64")]
    payload_base64: Option<String>,
    /// For operators: whose it is.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 1000)]
    owner: Option<String>,
    /// The record's idempotency key, in a batch. A single call has the header `Idempotency-Key`.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 255)]
    key: Option<String>,
}

impl NewRecord {
    fn submission(self, actor: &Actor, lifecycle: &str) -> Result<Submission, Problem> {
        let content = input::content(self.payload, self.payload_base64.as_deref())?;
        let payload = content.as_ref().map(|content| content.payload);
        let owner = self.owner.map(Into::into);
        let fields = self.fields.open()?;
        let create = Create { lifecycle: lifecycle.into(), id: self.id, owner, fields, payload };
        let submission =
            Submission { contents: content.into_iter().collect(), ..Submission::new(actor, Call::Create(create)) }
                .traced(observe::trace());
        Ok(match &self.key {
            Some(key) => submission.once(key),
            None => submission,
        })
    }
}

/// Make a record
///
/// 201 with the new record. 200 with the first one where the same `Idempotency-Key` came before, or where a unique key
/// returns its holder.
#[utoipa::path(
    post, path = "/v1/lifecycles/{name}/records", tag = "records",
    params(
        ("name" = String, Path, description = "The lifecycle's name"),
        ("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]([ -~]{0,253}[!-~])?$", description = "However often it is sent, it is carried out once"),
    ),
    request_body = NewRecord,
    responses(
        (status = 201, description = "Made", body = RecordShape, headers(("ETag" = String))),
        (status = 200, description = "It was there before", body = RecordShape, headers(("ETag" = String))),
        (status = 402, description = "Not enough money", body = problem::Shape, content_type = "application/problem+json"),
        (status = 409, description = "Refused", body = problem::Shape, content_type = "application/problem+json"),
        (status = 410, description = "It was made before, and is gone", body = problem::Shape, content_type = "application/problem+json"),
    )
)]
async fn create(
    State(app): State<App>,
    caller: Caller,
    At(lifecycle): At<String>,
    headers: HeaderMap,
    Given(mut new): Given<NewRecord>,
) -> Result<Response, Problem> {
    if let Some(key) = input::text(&headers, &IDEMPOTENCY_KEY)? {
        if new.key.as_ref().is_some_and(|other| *other != *key) {
            return Err(Problem::bad_input("`key` and the header Idempotency-Key differ"));
        }
        new.key = Some(key.to_owned());
    }
    let submission = new.submission(&caller.actor, &lifecycle)?;
    let submitted = app.engine().submit(submission).await;
    let answer = submitted.map_err(|error| named::explained(&app, error, &lifecycle))?;
    let status = if answer.is_new() { StatusCode::CREATED } else { StatusCode::OK };
    match &answer.record {
        Some(record) => RecordShape::answer(status, record),
        None => Err(Problem::gone(answer.subject)),
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRecords {
    #[schema(value_type = Vec<NewRecord>, max_items = 1000)]
    records: Calls<NewRecord>,
}

/// What became of each, in the order of the call.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MadeRecords<'a> {
    results: Vec<MadeRecord<'a>>,
}

/// Either has its `record`, or an `error`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MadeRecord<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<RecordShape<'a>>,
    /// Whether it is new, or was there before.
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<problem::Shape<'a>>,
}

impl<'a> MadeRecord<'a> {
    fn of(answer: &'a Result<Answer, Problem>) -> Self {
        match answer {
            Ok(answer) => Self {
                record: answer.record.as_deref().map(RecordShape::of),
                created: Some(answer.is_new()),
                error: None,
            },
            Err(problem) => Self { record: None, created: None, error: Some(problem.shape()) },
        }
    }
}

/// Make many records
///
/// Each is made or refused on its own, each under its own `key`; one transaction for all of them.
#[utoipa::path(
    post, path = "/v1/lifecycles/{name}/records/batch", tag = "records",
    params(("name" = String, Path, description = "The lifecycle's name")),
    request_body = NewRecords,
    responses((status = 200, description = "What became of each", body = MadeRecords))
)]
async fn create_batch(
    State(app): State<App>,
    caller: Caller,
    At(lifecycle): At<String>,
    Given(new): Given<NewRecords>,
) -> Result<Response, Problem> {
    let submissions = new.records.0.into_iter().map(|new| new?.submission(&caller.actor, &lifecycle));
    let answers = submit(&app, submissions.collect()).await?;
    let answers = answers.into_iter().map(|answer| match answer {
        Ok(answer) if answer.record.is_none() => Err(Problem::gone(answer.subject)),
        other => other,
    });
    let answers: Vec<_> = answers.collect();
    ok(&MadeRecords { results: answers.iter().map(MadeRecord::of).collect() })
}

/// Hand in those that are of the right shape, and answer all in their order.
pub(super) async fn submit(
    app: &App,
    submissions: Vec<Result<Submission, Problem>>,
) -> Result<Vec<Result<Answer, Problem>>, Problem> {
    let most = app.settings().batch;
    if submissions.len() > most {
        return Err(EngineError::BatchTooLarge { most }.into());
    }
    let (mut good, mut answers) = (Vec::with_capacity(submissions.len()), Vec::with_capacity(submissions.len()));
    for submission in submissions {
        match submission {
            Ok(submission) => {
                good.push(submission);
                answers.push(None);
            }
            Err(problem) => answers.push(Some(Err(problem))),
        }
    }
    let mut given = app.engine().submit_all(good).await?.into_iter();
    let all = answers.into_iter().map(|answer| match answer {
        Some(answer) => answer,
        None => given.next().unwrap_or(Err(EngineError::Closed)).map_err(Problem::from),
    });
    Ok(all.collect())
}
