//! Who comes for jobs.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use onceward_engine::WorkerNow;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::caller::Caller;
use crate::input::{Asked, limit};
use crate::problem::Problem;
use crate::shape::{When, ok};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(workers))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Which {
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<u32>,
}

/// Those who came for jobs in the last day, the last first, and whoever holds a lease.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Workers)]
struct WorkersShape<'a> {
    workers: Vec<WorkerShape<'a>>,
    /// All leases were counted. Where very many timers run, `holding` may be less than there is.
    complete: bool,
}

/// A worker.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Worker)]
struct WorkerShape<'a> {
    /// What it calls itself.
    worker: &'a str,
    /// The owner of the key that it comes with.
    owner: &'a str,
    /// What it asked for, the last time.
    #[schema(value_type = Vec<String>)]
    lifecycles: &'a [Arc<str>],
    /// When it last asked, to half a minute where it asked another process; none where only its leases tell of it.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_seen: Option<When>,
    /// How many executions it holds now.
    #[schema(minimum = 0)]
    holding: u64,
}

impl<'a> WorkerShape<'a> {
    fn of(worker: &'a WorkerNow) -> Self {
        Self {
            worker: &worker.name.worker,
            owner: &worker.name.holder,
            lifecycles: &worker.lifecycles,
            last_seen: worker.seen.map(When),
            holding: worker.holds,
        }
    }
}

/// List workers
///
/// Who came for jobs in the last day, to whichever process: all workers for an operator, else the caller's own.
#[utoipa::path(
    get, path = "/v1/workers", tag = "work", params(Which),
    responses((status = 200, description = "The last first", body = WorkersShape))
)]
async fn workers(State(app): State<App>, caller: Caller, Asked(which): Asked<Which>) -> Result<Response, Problem> {
    let found = app.engine().workers(&caller.actor, limit(which.limit)?).await?;
    ok(&WorkersShape { workers: found.workers.iter().map(WorkerShape::of).collect(), complete: found.is_whole })
}
