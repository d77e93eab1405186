//! Liveness and readiness.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use onceward_api_types::HealthStatus;
use onceward_store::Store as _;
use tokio::task::JoinSet;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::problem::{self, Problem};
use crate::response::json_ok;

/// If the database does not answer within this time, the server is not ready.
const READINESS_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(livez)).routes(routes!(readyz))
}

/// Check liveness
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, description = "The server runs", body = HealthStatus)))]
async fn livez() -> Result<Response, Problem> {
    json_ok(&HealthStatus { status: "live".to_owned(), clock: None })
}

/// Check readiness
///
/// Returns 503 while the database does not respond, during shutdown, and after a task of the engine died.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses(
        (status = 200, description = "The server can serve requests", body = HealthStatus),
        (status = 503, description = "The database does not respond, the server is shutting down, or a task of the engine died", body = problem::ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn readyz(State(app): State<AppState>) -> Result<Response, Problem> {
    if let Some(task) = app.engine().dead_task() {
        let detail = format!("the task `{task}` of the engine ended unexpectedly; the process must be restarted");
        return Err(Problem::new(503, "engine_task_died", detail));
    }
    if app.capacity().is_draining() {
        return Err(Problem::draining());
    }
    // On the engine's runtime, because the database's connections belong to it, and it may be blocked.
    let (engine, mut read) = (app.engine().internal_handle(), JoinSet::new());
    read.spawn_on(async move { engine.store().last_seq().await }, app.engine().runtime());
    match tokio::time::timeout(READINESS_TIMEOUT, read.join_next()).await {
        Ok(Some(Ok(last))) => last?,
        _ => return Err(Problem::new(503, "store_unavailable", "the database does not respond")),
    };
    let clock = app.engine().store().clock_status().hold.map(|_| "held".to_owned());
    json_ok(&HealthStatus { status: "ready".to_owned(), clock })
}
