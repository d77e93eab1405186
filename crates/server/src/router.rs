//! Which path leads where.

use axum::Router;
use axum::middleware::from_fn_with_state;
use utoipa_axum::router::OpenApiRouter;

use crate::app::AppState;
use crate::auth::authenticate;
use crate::route_hints;
use crate::routes;
use crate::telemetry;

/// The server's own routes, with their share of the contract.
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
        .merge(routes::prune::routes())
        .merge(routes::metrics::routes())
        .merge(routes::links::routes())
        .merge(routes::accounts::routes())
        .merge(routes::workers::routes())
        .merge(routes::api_keys::routes())
}

/// What answers requests. A layer around all routes, which sees the path that matched, goes here.
pub(crate) fn with_middleware(routes: Router<AppState>, app: AppState) -> Router {
    routes
        .fallback(route_hints::route_not_found)
        .method_not_allowed_fallback(route_hints::method_not_allowed)
        // Around all of them, those that are not there too: whoever is not let in learns nothing.
        .layer(from_fn_with_state(app.clone(), authenticate))
        // Outside of that: whoever is not let in is counted, too.
        .layer(axum::middleware::from_fn(telemetry::record_matched_route))
        .with_state(app)
}
