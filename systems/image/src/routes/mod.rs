//! Orders, pictures and credits as their users know them. Each call is one of the engine's; what it does is for the lifecycles to say.

mod assets;
mod credits;
mod jobs;

use axum::http::StatusCode;
use onceward_engine::Receipt;
use onceward_server::SystemRoutes;
use utoipa_axum::router::OpenApiRouter;

/// The image system's routes.
pub fn system_routes() -> SystemRoutes {
    let routes = OpenApiRouter::default().merge(jobs::routes()).merge(assets::routes()).merge(credits::routes());
    SystemRoutes { router: routes, ..SystemRoutes::default() }
}

/// 201 for what was made, 200 for what was there before.
fn created_or_ok(receipt: &Receipt) -> StatusCode {
    if receipt.is_new() { StatusCode::CREATED } else { StatusCode::OK }
}
