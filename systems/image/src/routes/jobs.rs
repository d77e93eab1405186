//! Routes of image jobs: create, read, withdraw, block and replay.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use onceward_core::decide::{Call, CreateRecord};
use onceward_core::model::LinkSource;
use onceward_core::record::Record;
use onceward_core::value::RecordId;
use onceward_engine::Submission;
use onceward_server::{
    AppState, Caller, EmptyBody, JsonBody, PathParams, Problem, ProblemBody, Rfc3339, current_trace, fire_event,
    json_ok, json_response, require_visible, with_idempotency_key,
};
use onceward_store::{LinkQuery, PayloadBytes, Store as _};
use serde::{Deserialize, Serialize};
use serde_json::Map;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{assets, created_or_ok};
use crate::provider::{ImageRequest, ImageSize};
use crate::{ASSET_LIFECYCLE, JOB_LIFECYCLE, prompt_payload};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    let routes = OpenApiRouter::default().routes(routes!(create)).routes(routes!(get));
    routes.routes(routes!(withdraw)).routes(routes!(replay)).routes(routes!(block))
}

/// As the schema of [`NewImage`] says.
const MAX_PROMPT_CHARS: usize = 30_000;

/// A request for an image.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewImage)]
struct NewImage {
    /// Description of the image. Prompt and size together have at most 32 KB as JSON.
    #[schema(min_length = 1, max_length = 30_000)]
    prompt: String,
    /// Default 1024x1024.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^(256x256|512x512|1024x1024)$")]
    size: Option<ImageSize>,
}

/// An image job and its status.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ImageJob)]
struct ImageJobJson<'a> {
    #[schema(value_type = String, format = Uuid)]
    id: String,
    /// `queued`, `running`, `failed` (a retry is scheduled), `completed`, `rejected` or `dead_letter`.
    state: &'a str,
    owner: &'a str,
    /// Price in credits.
    #[schema(minimum = 0)]
    cost: i64,
    /// Number of failures so far.
    #[schema(minimum = 0)]
    retry_count: i64,
    /// Time of the next retry, while the job is `failed`.
    #[schema(value_type = Option<String>, format = DateTime)]
    retry_at: Option<Rfc3339>,
    last_error: Option<&'a str>,
    /// Path of the image, for its owner only; null before it exists and after it is removed.
    result_url: Option<String>,
    /// The image in the owner's library.
    #[schema(value_type = Option<String>, format = Uuid)]
    asset: Option<String>,
    /// The dead letter that this job replays.
    #[schema(value_type = Option<String>, format = Uuid)]
    replay_of: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Rfc3339,
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<Rfc3339>,
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Rfc3339>,
}

impl<'a> ImageJobJson<'a> {
    fn from_record(job: &'a Record, asset: Option<&Record>) -> Self {
        let is_waiting_for_retry = &**job.state_name() == "failed";
        Self {
            id: job.id.to_string(),
            state: job.state_name(),
            owner: &job.owner,
            cost: job.int_field("cost").unwrap_or_default(),
            retry_count: job.int_field("retryCount").unwrap_or_default(),
            retry_at: job.time_field("retryAt").filter(|_| is_waiting_for_retry).map(Rfc3339),
            last_error: job.text_field("lastError"),
            result_url: asset.filter(|asset| assets::is_stored(asset)).map(|asset| assets::image_path(asset.id)),
            asset: asset.map(|asset| asset.id.to_string()),
            replay_of: job.ref_field("replayOf").map(|old| old.to_string()),
            created_at: Rfc3339(job.created_at),
            started_at: job.started_at.map(Rfc3339),
            finished_at: job.finished_at.map(Rfc3339),
        }
    }
}

/// Builds the response of a job, with its asset if it is completed.
async fn job_response(app: &AppState, caller: &Caller, status: StatusCode, job: &Record) -> Result<Response, Problem> {
    let mut asset = None;
    if &**job.state_name() == "completed" {
        asset = find_asset(app, caller, job.id).await?;
    }
    json_response(status, &ImageJobJson::from_record(job, asset.as_deref()))
}

/// Returns the job's asset if the caller may see it.
async fn find_asset(app: &AppState, caller: &Caller, job: RecordId) -> Result<Option<Arc<Record>>, Problem> {
    let from = vec![LinkSource { lifecycle: ASSET_LIFECYCLE.into(), field: "job".into() }];
    let page = app.engine().store().linked_records(&LinkQuery { target: job, from, after: None, limit: 1 }).await?;
    match page.records.first() {
        Some(asset) => Ok(app.engine().get(&caller.actor, *asset).await?),
        None => Ok(None),
    }
}

/// Order an image
///
/// Answers 201 with a queued job and reserves its credits. If the caller ordered the same image in the same minute or
/// repeats an `Idempotency-Key`, the answer is 200 with the first job and nothing is charged. Refusals: 402
/// `insufficient_credits`, 422 `policy_violation`, 429 `one_active_job` or `quota`.
#[utoipa::path(
    post, path = "/image/jobs", operation_id = "order_image", tag = "image",
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes the call safe to repeat: a repeated call returns the first response")),
    request_body = NewImage,
    responses(
        (status = 201, description = "Ordered", body = ImageJobJson),
        (status = 200, description = "Ordered before", body = ImageJobJson),
        (status = 402, description = "Not enough credits", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "Refused", body = ProblemBody, content_type = "application/problem+json"),
        (status = 410, description = "The job was created before and has been pruned", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn create(
    State(app): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    JsonBody(new_job): JsonBody<NewImage>,
) -> Result<Response, Problem> {
    if prompt_payload::is_blank(&new_job.prompt) {
        return Err(Problem::invalid_input("`prompt` contains no visible character"));
    }
    if new_job.prompt.chars().count() > MAX_PROMPT_CHARS {
        return Err(Problem::invalid_input("`prompt` has more than 30,000 characters"));
    }
    let request = ImageRequest { prompt: new_job.prompt, size: new_job.size.unwrap_or_default() };
    let create =
        CreateRecord { lifecycle: JOB_LIFECYCLE.into(), id: None, owner: None, fields: Map::new(), payload: None };
    let payload = PayloadBytes::from_bytes(prompt_payload::encode_canonical(&request));
    let submission =
        Submission::new(&caller.actor, Call::Create(create)).with_trace(current_trace()).with_payload(payload.into());
    let receipt = app.engine().submit(with_idempotency_key(&headers, submission)?).await?;
    let job = receipt.record.as_ref().ok_or_else(|| Problem::gone(receipt.subject))?;
    job_response(&app, &caller, created_or_ok(&receipt), job).await
}

/// Get an image job
///
/// For its owner, operators and moderators.
#[utoipa::path(
    get, path = "/image/jobs/{id}", operation_id = "get_image_job", tag = "image",
    params(("id" = String, Path, format = Uuid, description = "The job's id")),
    responses((status = 200, description = "The job", body = ImageJobJson))
)]
async fn get(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<RecordId>,
) -> Result<Response, Problem> {
    let job = require_visible(&app, &caller, JOB_LIFECYCLE, id).await?;
    job_response(&app, &caller, StatusCode::OK, &job).await
}

/// Withdraw an image job
///
/// For its owner and operators, while the job waits for a worker or a retry. The job becomes a dead letter and its
/// credits are refunded. A running job cannot be withdrawn.
#[utoipa::path(
    post, path = "/image/jobs/{id}/withdraw", operation_id = "withdraw_image_job", tag = "image",
    params(
        ("id" = String, Path, format = Uuid, description = "The job's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes the call safe to repeat: a repeated call returns the first response"),
    ),
    request_body = EmptyBody,
    responses(
        (status = 200, description = "Withdrawn", body = ImageJobJson),
        (status = 409, description = "The job is running or has ended", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn withdraw(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<RecordId>,
    headers: HeaderMap,
    JsonBody(EmptyBody {}): JsonBody<EmptyBody>,
) -> Result<Response, Problem> {
    let receipt = fire_event(&app, &caller, (JOB_LIFECYCLE, id), "withdraw", &headers).await?;
    let job = receipt.record.ok_or_else(|| Problem::gone(id))?;
    json_ok(&ImageJobJson::from_record(&job, None))
}

/// Replay a dead letter
///
/// Answers 201 with a new job that references the dead letter and is charged to its owner. If a replay exists, or the
/// owner ordered the same image in the same minute, the answer is 200 with that job. If the job is not a dead letter,
/// the answer is 409.
#[utoipa::path(
    post, path = "/image/jobs/{id}/replay", operation_id = "replay_image_job", tag = "image",
    params(
        ("id" = String, Path, format = Uuid, description = "The dead letter's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes the call safe to repeat: a repeated call returns the first response"),
    ),
    request_body = EmptyBody,
    responses(
        (status = 201, description = "Replayed", body = ImageJobJson),
        (status = 200, description = "Replayed before", body = ImageJobJson),
        (status = 402, description = "Not enough credits", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "The job is not a dead letter", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn replay(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<RecordId>,
    headers: HeaderMap,
    JsonBody(EmptyBody {}): JsonBody<EmptyBody>,
) -> Result<Response, Problem> {
    let receipt = fire_event(&app, &caller, (JOB_LIFECYCLE, id), "replay", &headers).await?;
    let status = created_or_ok(&receipt);
    // The new job, or the existing one: an earlier replay or the same order of the same minute.
    let job = receipt.spawned.first().or(receipt.existing.first()).ok_or_else(|| Problem::gone(id))?;
    let job = app.engine().get(&caller.actor, *job).await?.ok_or_else(|| Problem::gone(id))?;
    job_response(&app, &caller, status, &job).await
}

/// Block an image job
///
/// For moderators, before the job runs. The job is rejected and its credits are kept as a penalty.
#[utoipa::path(
    post, path = "/image/jobs/{id}/block", operation_id = "block_image_job", tag = "image",
    params(
        ("id" = String, Path, format = Uuid, description = "The job's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes the call safe to repeat: a repeated call returns the first response"),
    ),
    request_body = EmptyBody,
    responses(
        (status = 200, description = "Blocked", body = ImageJobJson),
        (status = 409, description = "The job is no longer queued", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn block(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<RecordId>,
    headers: HeaderMap,
    JsonBody(EmptyBody {}): JsonBody<EmptyBody>,
) -> Result<Response, Problem> {
    let receipt = fire_event(&app, &caller, (JOB_LIFECYCLE, id), "block", &headers).await?;
    let job = receipt.record.ok_or_else(|| Problem::gone(id))?;
    json_ok(&ImageJobJson::from_record(&job, None))
}
