//! Who comes for jobs.

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
use crate::extract::{QueryParams, parse_limit};
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

/// Those who came for jobs in the last day, the last first, and whoever holds a lease.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Workers)]
struct WorkersJson<'a> {
    workers: Vec<WorkerJson<'a>>,
    /// All leases were counted. Where very many timers run, `holding` may be less than there is.
    complete: bool,
}

/// A worker.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Worker)]
struct WorkerJson<'a> {
    /// What it calls itself.
    worker: &'a str,
    /// The owner of the key that it comes with.
    owner: &'a str,
    /// What it asked for, the last time.
    #[schema(value_type = Vec<String>)]
    lifecycles: &'a [Arc<str>],
    /// When it last asked, to half a minute where it asked another process; none where only its leases tell of it.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_seen: Option<Rfc3339>,
    /// How many executions it holds now.
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
/// Who came for jobs in the last day, to whichever process: all workers for an operator, else the caller's own.
#[utoipa::path(
    get, path = "/v1/workers", tag = "work", params(WorkersParams),
    responses((status = 200, description = "The last first", body = WorkersJson))
)]
async fn workers(
    State(app): State<AppState>,
    caller: Caller,
    QueryParams(params): QueryParams<WorkersParams>,
) -> Result<Response, Problem> {
    let found = app.engine().workers(&caller.actor, parse_limit(params.limit)?).await?;
    json_ok(&WorkersJson { workers: found.workers.iter().map(WorkerJson::new).collect(), complete: found.is_complete })
}
