//! The Prometheus metrics endpoint.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::telemetry;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(metrics))
}

/// Get metrics
///
/// Prometheus text format, or `OpenMetrics` if `Accept` asks for it. For operators and API keys with the role
/// `metrics`.
#[utoipa::path(get, path = "/metrics", operation_id = "get_metrics", tag = "server",
    responses((status = 200, description = "The metrics", content_type = "text/plain", body = String)))]
async fn metrics(State(app): State<AppState>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let (kind, page) = telemetry::render_metrics(&app, accept).await;
    ([(header::CONTENT_TYPE, kind)], page).into_response()
}
