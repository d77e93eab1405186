//! The routing table and its middleware.

use axum::Router;
use axum::middleware::from_fn_with_state;
use utoipa_axum::router::OpenApiRouter;

use crate::app::AppState;
use crate::auth::authenticate;
use crate::capacity::limit_response_memory;
use crate::route_hints;
use crate::routes;
use crate::telemetry;

/// Returns the server's own routes with their OpenAPI annotations.
pub(crate) fn engine_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default()
        .merge(routes::home::routes())
        .merge(routes::health::routes())
        .merge(routes::lifecycles::routes())
        .merge(routes::lifecycle_versions::routes())
        .merge(routes::records::routes())
        .merge(routes::record_reads::routes())
        .merge(routes::events::routes())
        .merge(routes::leases::routes())
        .merge(routes::executions::routes())
        .merge(routes::stream::routes())
        .merge(routes::clock::routes())
        .merge(routes::prune::routes())
        .merge(routes::metrics::routes())
        .merge(routes::links::routes())
        .merge(routes::accounts::routes())
        .merge(routes::workers::routes())
        .merge(routes::api_keys::routes())
        .merge(routes::webhook_secret::routes())
}

/// Adds fallbacks, authentication and telemetry. Middleware that needs the matched path goes here.
pub(crate) fn with_middleware(routes: Router<AppState>, app: AppState) -> Router {
    routes
        .fallback(route_hints::route_not_found)
        .method_not_allowed_fallback(route_hints::method_not_allowed)
        // Inside authentication: each API key has its own limit.
        .layer(from_fn_with_state(app.clone(), limit_response_memory))
        // Covers the fallbacks, too, so that unauthenticated callers cannot probe for routes.
        .layer(from_fn_with_state(app.clone(), authenticate))
        // Outside authentication, so that rejected requests are counted.
        .layer(axum::middleware::from_fn(telemetry::record_matched_route))
        .with_state(app)
}
