//! Workers that lease jobs.

use axum::extract::State;
use axum::response::Response;
use onceward_api_types as wire;
use onceward_engine::WorkerStatus;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::{QueryParams, validate_limit};
use crate::problem::Problem;
use crate::response::{json_ok, texts, timestamp};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(workers))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WorkersParams {
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<u32>,
}

fn worker_json(worker: &WorkerStatus) -> wire::Worker {
    wire::Worker {
        worker: worker.name.worker.to_string(),
        owner: worker.name.holder.to_string(),
        lifecycles: texts(&worker.lifecycles),
        last_seen: worker.last_seen_at.map(timestamp),
        holding: worker.live_leases,
    }
}

/// List workers
///
/// Workers that asked any process for jobs within the last day. Operators see all workers, other callers
/// their own.
#[utoipa::path(
    get, path = "/v1/workers", operation_id = "list_workers", tag = "work", params(WorkersParams),
    responses((status = 200, description = "The workers, most recent first", body = wire::Workers))
)]
async fn workers(
    State(app): State<AppState>,
    caller: Caller,
    QueryParams(params): QueryParams<WorkersParams>,
) -> Result<Response, Problem> {
    let found = app.engine().workers(&caller.actor, validate_limit(params.limit)?).await?;
    json_ok(&wire::Workers { workers: found.workers.iter().map(worker_json).collect(), complete: found.is_complete })
}
