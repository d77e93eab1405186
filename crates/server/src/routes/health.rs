//! Whether the server lives, and whether it can serve.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use onceward_store::Store as _;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::problem::{self, Problem};
use crate::shape::ok;

/// A database that has not told its time by then is not ready.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(livez)).routes(routes!(readyz))
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    status: &'static str,
}

/// Whether the process lives
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, description = "It does", body = Health)))]
async fn livez() -> Result<Response, Problem> {
    ok(&Health { status: "live" })
}

/// Whether it can serve
///
/// 503 while the database does not answer, and from the moment on when the server is to stop.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses(
        (status = 200, description = "It can", body = Health),
        (status = 503, description = "It cannot now", body = problem::Shape, content_type = "application/problem+json"),
    )
)]
async fn readyz(State(app): State<App>) -> Result<Response, Problem> {
    if app.gate().is_leaving() {
        return Err(Problem::leaving());
    }
    match tokio::time::timeout(PATIENCE, app.engine().store().last()).await {
        Ok(last) => last?,
        Err(_) => return Err(Problem::new(503, "store_unavailable", "the database does not answer")),
    };
    ok(&Health { status: "ready" })
}
