//! Events by name, one or many.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use onceward_core::decide::Call;
use onceward_core::record::{Actor, Token};
use onceward_core::value::RecordId;
use onceward_engine::{Answer, EngineError, Submission};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::records::submit;
use crate::app::App;
use crate::caller::Caller;
use crate::input::{self, At, Calls, Given, Small};
use crate::observe;
use crate::problem::{self, Problem};
use crate::shape::{RecordShape, Text, ok};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(fire)).routes(routes!(fire_batch))
}

/// What comes with an event.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEvent {
    /// By name, as the event's rows take it.
    #[serde(default)]
    #[schema(value_type = Object)]
    input: Small<Map<String, Json>>,
    /// Of the execution, where a worker fires it.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    token: Option<u64>,
}

/// What came of an event.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Fired<'a> {
    /// As the event left it. Null where a key came before and the record is no longer there, or no longer for this caller.
    record: Option<RecordShape<'a>>,
    /// The ids of the records that were made by it.
    #[schema(value_type = Vec<String>)]
    spawned: Vec<Text<RecordId>>,
}

impl<'a> Fired<'a> {
    fn of(answer: &'a Answer) -> Self {
        let spawned = answer.spawned.iter().copied().map(Text).collect();
        Self { record: answer.record.as_deref().map(RecordShape::of), spawned }
    }
}

/// Fire an event
///
/// 409 where the record's state does not take it, 403 where it is not for the caller. With `If-Match`, 412 where the record's
/// version is none of those.
#[utoipa::path(
    post, path = "/v1/records/{id}/events/{event}", tag = "records",
    params(
        ("id" = String, Path, format = Uuid, description = "The record's id"),
        ("event" = String, Path, description = "The event's name"),
        ("If-Match" = Option<String>, Header, description = "The record's ETag, or several, any of which will do", pattern = "^([*]|(W/)?\"[!#-~]*\"( ?, ?(W/)?\"[!#-~]*\")*)$"),
        ("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]([ -~]{0,253}[!-~])?$", description = "However often it is sent, it is carried out once"),
    ),
    request_body = NewEvent,
    responses(
        (status = 200, description = "Taken", body = Fired),
        (status = 402, description = "Not enough money", body = problem::Shape, content_type = "application/problem+json"),
        (status = 409, description = "Refused", body = problem::Shape, content_type = "application/problem+json"),
        (status = 412, description = "Another version", body = problem::Shape, content_type = "application/problem+json"),
    )
)]
async fn fire(
    State(app): State<App>,
    caller: Caller,
    At((record, event)): At<(RecordId, String)>,
    headers: HeaderMap,
    Given(new): Given<NewEvent>,
) -> Result<Response, Problem> {
    let versions = input::if_match(&headers)?;
    let if_version = versions.as_deref().map(|versions| versions.first().copied().unwrap_or(NO_VERSION));
    let call =
        Call::Fire { record, event: event.into(), input: new.input.open()?, token: new.token.map(Token), if_version };
    let submission = input::keyed(&headers, Submission::new(&caller.actor, call).traced(observe::trace()))?;
    let answer = match versions.as_deref() {
        Some(versions @ [_, _, ..]) => any_of(&app, submission, record, versions).await?,
        _ => app.engine().submit(submission).await?,
    };
    ok(&Fired::of(&answer))
}

/// No record ever has it: what asks for it finds another.
const NO_VERSION: u64 = 0;

/// The engine compares with one version, in the moment in which it decides: with the one that the record has now, where that will do. Should
/// the record move on meanwhile, its next version may do as well. All are one call, under one key.
async fn any_of(app: &App, mut asked: Submission, record: RecordId, versions: &[u64]) -> Result<Answer, EngineError> {
    asked.once = asked.once.map(|once| once.with(&format!("{versions:?}")));
    let mut tries = versions.len();
    loop {
        let now = app.engine().get(&asked.actor, record).await?.map(|record| record.version);
        let fits = now.filter(|now| versions.contains(now));
        if let Call::Fire { if_version, .. } = &mut asked.call {
            *if_version = Some(fits.unwrap_or(NO_VERSION));
        }
        tries -= 1;
        match app.engine().submit(asked.clone()).await {
            Err(error) if error.code() == "version_mismatch" && fits.is_some() && tries > 0 => {}
            answer => return answer,
        }
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventOf {
    #[schema(value_type = String, format = Uuid)]
    record: RecordId,
    #[schema(value_type = String)]
    event: Arc<str>,
    #[serde(default)]
    #[schema(value_type = Object)]
    input: Small<Map<String, Json>>,
    #[serde(default)]
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    token: Option<u64>,
    /// Refuse unless the record has this version.
    #[serde(default)]
    #[schema(minimum = 1)]
    version: Option<u64>,
    /// Its idempotency key.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 255)]
    key: Option<String>,
}

impl EventOf {
    fn submission(self, actor: &Actor) -> Result<Submission, Problem> {
        let Self { record, event, input, token, version, key } = self;
        let call = Call::Fire { record, event, input: input.open()?, token: token.map(Token), if_version: version };
        let submission = Submission::new(actor, call).traced(observe::trace());
        Ok(match &key {
            Some(key) => submission.once(key),
            None => submission,
        })
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEvents {
    #[schema(value_type = Vec<EventOf>, max_items = 1000)]
    events: Calls<EventOf>,
}

/// What became of each, in the order of the call.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FiredEvents<'a> {
    results: Vec<FiredEvent<'a>>,
}

/// Either has `record` and `spawned`, or an `error`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FiredEvent<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<RecordShape<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<String>, required = false)]
    spawned: Option<Vec<Text<RecordId>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<problem::Shape<'a>>,
}

impl<'a> FiredEvent<'a> {
    fn of(answer: &'a Result<Answer, Problem>) -> Self {
        match answer {
            Ok(answer) => {
                let Fired { record, spawned } = Fired::of(answer);
                Self { record, spawned: Some(spawned), error: None }
            }
            Err(problem) => Self { record: None, spawned: None, error: Some(problem.shape()) },
        }
    }
}

/// Fire many events
///
/// In their order, each taken or refused on its own. One that has to ask the outside first (a `check`) is decided when that has answered, and
/// those after it do not wait for it.
#[utoipa::path(
    post, path = "/v1/events/batch", tag = "records",
    request_body = NewEvents,
    responses((status = 200, description = "What became of each", body = FiredEvents))
)]
async fn fire_batch(State(app): State<App>, caller: Caller, Given(new): Given<NewEvents>) -> Result<Response, Problem> {
    let submissions = new.events.0.into_iter().map(|event| event?.submission(&caller.actor));
    let answers = submit(&app, submissions.collect()).await?;
    ok(&FiredEvents { results: answers.iter().map(FiredEvent::of).collect() })
}
