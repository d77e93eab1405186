//! Orders: placing one, looking at it, blocking it, and trying a dead one again.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use onceward_core::decide::{Call, Create};
use onceward_core::model::LinkSource;
use onceward_core::record::Record;
use onceward_core::value::RecordId;
use onceward_engine::Submission;
use onceward_server::{
    App, At, Caller, Given, Nothing, Problem, ProblemShape, When, answer, fire, keyed, ok, seen, trace,
};
use onceward_store::{Content, LinkQuery, Store as _};
use serde::{Deserialize, Serialize};
use serde_json::Map;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{assets, status};
use crate::provider::{Order, Size};
use crate::{ASSET, JOB, order};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(create)).routes(routes!(get)).routes(routes!(replay)).routes(routes!(block))
}

/// What is to be drawn.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewImage)]
struct NewImage {
    /// In words. With the size it has at most 32 KB as JSON.
    #[schema(min_length = 1, max_length = 30_000)]
    prompt: String,
    /// 1024x1024 where it is left out.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^(256x256|512x512|1024x1024)$")]
    size: Option<Size>,
}

/// An order and what has become of it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ImageJob)]
struct JobShape<'a> {
    #[schema(value_type = String, format = Uuid)]
    id: String,
    /// `queued`, `running`, `failed` (it will be tried again), `completed`, `rejected` or `dead_letter`.
    state: &'a str,
    owner: &'a str,
    /// Credits.
    #[schema(minimum = 0)]
    cost: i64,
    /// Failures so far.
    #[schema(minimum = 0)]
    retry_count: i64,
    /// When it is tried again, while it is `failed`.
    #[schema(value_type = Option<String>, format = DateTime)]
    retry_at: Option<When>,
    last_error: Option<&'a str>,
    /// Where its owner gets the picture, once there is one.
    result_url: Option<String>,
    /// The picture in the owner's library.
    #[schema(value_type = Option<String>, format = Uuid)]
    asset: Option<String>,
    /// The dead letter that this job tries again.
    #[schema(value_type = Option<String>, format = Uuid)]
    replay_of: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: When,
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<When>,
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<When>,
}

impl<'a> JobShape<'a> {
    fn of(job: &'a Record, asset: Option<RecordId>) -> Self {
        let waits = &**job.state_name() == "failed";
        Self {
            id: job.id.to_string(),
            state: job.state_name(),
            owner: &job.owner,
            cost: job.int("cost").unwrap_or_default(),
            retry_count: job.int("retryCount").unwrap_or_default(),
            retry_at: job.time("retryAt").filter(|_| waits).map(When),
            last_error: job.text("lastError"),
            result_url: asset.map(assets::image_of),
            asset: asset.map(|asset| asset.to_string()),
            replay_of: job.named("replayOf").map(|old| old.to_string()),
            created_at: When(job.created_at),
            started_at: job.started_at.map(When),
            finished_at: job.finished_at.map(When),
        }
    }
}

/// The job as an answer, with its picture where it has one.
async fn shown(app: &App, caller: &Caller, status: StatusCode, job: &Record) -> Result<Response, Problem> {
    let mut asset = None;
    if &**job.state_name() == "completed" {
        asset = pointing(app, caller, job.id, (ASSET, "job")).await?.first().map(|asset| asset.id);
    }
    answer(status, &JobShape::of(job, asset))
}

/// Who points to a job by this field, of those that the caller may see, the first first. A job has one asset, and few replays: each of them but
/// the last is dead.
async fn pointing(
    app: &App,
    caller: &Caller,
    job: RecordId,
    (lifecycle, field): (&str, &str),
) -> Result<Vec<Arc<Record>>, Problem> {
    let from = vec![LinkSource { lifecycle: lifecycle.into(), field: field.into() }];
    let mut query = LinkQuery { target: job, from, after: None, limit: 100 };
    let mut all = Vec::new();
    loop {
        let page = app.engine().store().linked(&query).await?;
        for id in page.records {
            all.extend(app.engine().get(&caller.actor, id).await?);
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(all),
        }
    }
}

/// Order a picture
///
/// 201 with a queued job; its credits are set aside. 200 with the first job where the caller has ordered the same in the same minute, or where
/// the same `Idempotency-Key` came before: nothing is charged then. 402 `insufficient_credits`, 422 `policy_violation`, 429 `one_active_job` or
/// `quota`.
#[utoipa::path(
    post, path = "/image/jobs", tag = "image",
    params(("Idempotency-Key" = Option<String>, Header, description = "However often it is sent, it is carried out once")),
    request_body = NewImage,
    responses(
        (status = 201, description = "Ordered", body = JobShape),
        (status = 200, description = "It was ordered before", body = JobShape),
        (status = 402, description = "Not enough credits", body = ProblemShape, content_type = "application/problem+json"),
        (status = 409, description = "Refused", body = ProblemShape, content_type = "application/problem+json"),
        (status = 410, description = "It was made before, and is gone", body = ProblemShape, content_type = "application/problem+json"),
    )
)]
async fn create(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Given(new): Given<NewImage>,
) -> Result<Response, Problem> {
    if new.prompt.trim().is_empty() {
        return Err(Problem::bad_input("`prompt` says nothing"));
    }
    let order = Order { prompt: new.prompt, size: new.size.unwrap_or_default() };
    let create = Create { lifecycle: JOB.into(), id: None, owner: None, fields: Map::new(), payload: None };
    let payload = Content::of(order::canonical(&order));
    let submission = Submission::new(&caller.actor, Call::Create(create)).traced(trace()).carrying(payload.into());
    let answer = app.engine().submit(keyed(&headers, submission)?).await?;
    let job = answer.record.as_ref().ok_or_else(|| Problem::gone(answer.subject))?;
    shown(&app, &caller, status(&answer), job).await
}

/// Look at an order
///
/// For its owner, for operators and for moderators.
#[utoipa::path(
    get, path = "/image/jobs/{id}", tag = "image",
    params(("id" = String, Path, format = Uuid, description = "The job's id")),
    responses((status = 200, description = "The job", body = JobShape))
)]
async fn get(State(app): State<App>, caller: Caller, At(id): At<RecordId>) -> Result<Response, Problem> {
    let job = seen(&app, &caller, JOB, id).await?;
    shown(&app, &caller, StatusCode::OK, &job).await
}

/// Try a dead letter again
///
/// 201 with a new job that points to the old one: an order like any other, paid for by the owner. 200 with the job that already does so. 409
/// where the job is no dead letter.
#[utoipa::path(
    post, path = "/image/jobs/{id}/replay", tag = "image",
    params(
        ("id" = String, Path, format = Uuid, description = "The dead letter's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "However often it is sent, it is carried out once"),
    ),
    request_body = Nothing,
    responses(
        (status = 201, description = "Ordered again", body = JobShape),
        (status = 200, description = "It was ordered again before", body = JobShape),
        (status = 402, description = "Not enough credits", body = ProblemShape, content_type = "application/problem+json"),
        (status = 409, description = "It is no dead letter", body = ProblemShape, content_type = "application/problem+json"),
    )
)]
async fn replay(
    State(app): State<App>,
    caller: Caller,
    At(id): At<RecordId>,
    headers: HeaderMap,
    Given(Nothing {}): Given<Nothing>,
) -> Result<Response, Problem> {
    let fired = fire(&app, &caller, (JOB, id), "replay", &headers).await?;
    let status = status(&fired);
    let job = match fired.spawned.first() {
        Some(new) => app.engine().get(&caller.actor, *new).await?,
        // Those that died on the way have been tried again, too.
        None => pointing(&app, &caller, id, (JOB, "replayOf")).await?.into_iter().rfind(|job| !is_dead(job)),
    };
    let job = job.ok_or_else(|| Problem::gone(id))?;
    shown(&app, &caller, status, &job).await
}

fn is_dead(job: &Record) -> bool {
    &**job.state_name() == "dead_letter"
}

/// Block an order
///
/// By a moderator, before it runs: it is rejected, and its credits are kept as a penalty.
#[utoipa::path(
    post, path = "/image/jobs/{id}/block", tag = "image",
    params(
        ("id" = String, Path, format = Uuid, description = "The job's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "However often it is sent, it is carried out once"),
    ),
    request_body = Nothing,
    responses(
        (status = 200, description = "Blocked", body = JobShape),
        (status = 409, description = "It waits no more", body = ProblemShape, content_type = "application/problem+json"),
    )
)]
async fn block(
    State(app): State<App>,
    caller: Caller,
    At(id): At<RecordId>,
    headers: HeaderMap,
    Given(Nothing {}): Given<Nothing>,
) -> Result<Response, Problem> {
    let fired = fire(&app, &caller, (JOB, id), "block", &headers).await?;
    let job = fired.record.ok_or_else(|| Problem::gone(id))?;
    ok(&JobShape::of(&job, None))
}
