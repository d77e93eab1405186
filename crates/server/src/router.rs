//! Which path leads where.

use axum::Router;
use axum::middleware::from_fn_with_state;
use utoipa_axum::router::OpenApiRouter;

use crate::admission::admit;
use crate::app::App;
use crate::near_miss;
use crate::observe;
use crate::routes;

/// The server's own routes, with their share of the contract.
pub(crate) fn own() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .merge(routes::home::routes())
        .merge(routes::health::routes())
        .merge(routes::lifecycles::routes())
        .merge(routes::versions::routes())
        .merge(routes::records::routes())
        .merge(routes::looking::routes())
        .merge(routes::events::routes())
        .merge(routes::leases::routes())
        .merge(routes::executions::routes())
        .merge(routes::stream::routes())
        .merge(routes::prune::routes())
        .merge(routes::metrics::routes())
        .merge(routes::links::routes())
        .merge(routes::accounts::routes())
        .merge(routes::workers::routes())
        .merge(routes::keys::routes())
}

/// What answers requests. A layer around all routes, which sees the path that matched, goes here.
pub(crate) fn around(routes: Router<App>, app: App) -> Router {
    routes
        .fallback(near_miss::no_route)
        .method_not_allowed_fallback(near_miss::no_method)
        // Around all of them, those that are not there too: whoever is not let in learns nothing.
        .layer(from_fn_with_state(app.clone(), admit))
        // Outside of that: whoever is not let in is counted, too.
        .layer(axum::middleware::from_fn(observe::matched))
        .with_state(app)
}
