//! Workers that lease jobs.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use onceward_engine::WorkerStatus;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::{QueryParams, validate_limit};
use crate::problem::Problem;
use crate::response::{Rfc3339, json_ok};

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

/// Workers that asked for jobs within the last day, most recent first, and workers that hold a lease.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Workers)]
struct WorkersJson<'a> {
    workers: Vec<WorkerJson<'a>>,
    /// Whether all leases were counted. If false, `holding` may be too low.
    complete: bool,
}

/// A worker.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Worker)]
struct WorkerJson<'a> {
    /// The name that the worker gave itself.
    worker: &'a str,
    /// The owner of its API key.
    owner: &'a str,
    /// The lifecycles of its latest lease request.
    #[schema(value_type = Vec<String>)]
    lifecycles: &'a [Arc<str>],
    /// Time of its latest lease request, accurate to 30 seconds if another process answered it. Null if only its
    /// leases are known.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_seen: Option<Rfc3339>,
    /// Number of executions that it holds.
    #[schema(minimum = 0)]
    holding: u64,
}

impl<'a> WorkerJson<'a> {
    fn new(worker: &'a WorkerStatus) -> Self {
        Self {
            worker: &worker.name.worker,
            owner: &worker.name.holder,
            lifecycles: &worker.lifecycles,
            last_seen: worker.last_seen_at.map(Rfc3339),
            holding: worker.live_leases,
        }
    }
}

/// List workers
///
/// Workers that asked for jobs within the last day, from any process. Operators see all workers, other callers
/// their own.
#[utoipa::path(
    get, path = "/v1/workers", tag = "work", params(WorkersParams),
    responses((status = 200, description = "The last first", body = WorkersJson))
)]
async fn workers(
    State(app): State<AppState>,
    caller: Caller,
    QueryParams(params): QueryParams<WorkersParams>,
) -> Result<Response, Problem> {
    let found = app.engine().workers(&caller.actor, validate_limit(params.limit)?).await?;
    json_ok(&WorkersJson { workers: found.workers.iter().map(WorkerJson::new).collect(), complete: found.is_complete })
}
