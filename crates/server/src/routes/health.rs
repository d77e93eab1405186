//! Liveness and readiness.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use onceward_api_types::HealthStatus;
use onceward_store::Store as _;
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
/// Returns 503 while the database does not respond and during shutdown.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses(
        (status = 200, description = "The server can serve requests", body = HealthStatus),
        (status = 503, description = "The database does not respond, or the server is shutting down", body = problem::ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn readyz(State(app): State<AppState>) -> Result<Response, Problem> {
    if app.capacity().is_draining() {
        return Err(Problem::draining());
    }
    match tokio::time::timeout(READINESS_TIMEOUT, app.engine().store().last_seq()).await {
        Ok(last) => last?,
        Err(_) => return Err(Problem::new(503, "store_unavailable", "the database does not respond")),
    };
    let clock = app.engine().store().clock_status().hold.map(|_| "held".to_owned());
    json_ok(&HealthStatus { status: "ready".to_owned(), clock })
}
