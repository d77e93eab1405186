//! HTTP routes of the image system: jobs, assets and credits. The lifecycles contain the rules.

mod assets;
mod credits;
mod jobs;

use axum::http::StatusCode;
use onceward_engine::Receipt;
use onceward_server::SystemRoutes;
use utoipa_axum::router::OpenApiRouter;

/// Returns the routes of the image system.
pub fn system_routes() -> SystemRoutes {
    let routes = OpenApiRouter::default().merge(jobs::routes()).merge(assets::routes()).merge(credits::routes());
    SystemRoutes { router: routes, ..SystemRoutes::default() }
}

/// Returns 201 if the call created a record, 200 if it found an existing one.
fn created_or_ok(receipt: &Receipt) -> StatusCode {
    if receipt.is_new() { StatusCode::CREATED } else { StatusCode::OK }
}
