//! Orders, pictures and credits as their users know them. Each call is one of the engine's; what it does is for the lifecycles to say.

mod assets;
mod credits;
mod jobs;

use axum::http::StatusCode;
use onceward_engine::Answer;
use onceward_server::Part;
use utoipa_axum::router::OpenApiRouter;

/// The image system's routes.
pub fn part() -> Part {
    let routes = OpenApiRouter::default().merge(jobs::routes()).merge(assets::routes()).merge(credits::routes());
    Part { routes, ..Part::default() }
}

/// 201 for what was made, 200 for what was there before.
fn status(answer: &Answer) -> StatusCode {
    if answer.is_new() { StatusCode::CREATED } else { StatusCode::OK }
}
