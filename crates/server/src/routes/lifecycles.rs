//! Reads lifecycles, with record counts by state.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use onceward_api_types as wire;
use onceward_core::model::{EventKind, Lifecycle, StateReadiness};
use onceward_store::StateCount;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::PathParams;
use crate::known_names;
use crate::problem::Problem;
use crate::response::json_ok;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(list)).routes(routes!(get)).routes(routes!(svg)).routes(routes!(mermaid))
}

fn lifecycle_json(app: &AppState, lifecycle: &Lifecycle, counts: &[StateCount]) -> wire::Lifecycle {
    let own = counts.iter().filter(|count| count.lifecycle == lifecycle.name);
    let called = lifecycle.events.iter().filter(|event| event.kind == EventKind::Called);
    let states = lifecycle.states.iter().map(|state| wire::State {
        name: state.name.to_string(),
        about: state.about.to_string(),
        is_final: state.is_final,
        ready: state.readiness != StateReadiness::NotReady,
    });
    let fields = lifecycle
        .fields
        .iter()
        .map(|field| wire::Field { name: field.name.to_string(), about: field.about.to_string() });
    let file_hash = app.config().file_versions.get(&lifecycle.name).filter(|hash| **hash != lifecycle.hash);
    wire::Lifecycle {
        name: lifecycle.name.to_string(),
        about: lifecycle.about.to_string(),
        hash: lifecycle.hash.to_string(),
        file_hash: file_hash.map(ToString::to_string),
        lease: lifecycle.work.as_ref().map(|work| work.lease_duration.to_string()),
        states: states.collect(),
        fields: fields.collect(),
        events: called.map(|event| event.name.to_string()).collect(),
        counts: own.map(|count| (count.state.to_string(), count.count)).collect(),
    }
}

/// List lifecycles
#[utoipa::path(
    get, path = "/v1/lifecycles", operation_id = "list_lifecycles", tag = "lifecycles",
    responses((status = 200, description = "All lifecycles", body = wire::LifecycleList))
)]
async fn list(State(app): State<AppState>, caller: Caller) -> Result<Response, Problem> {
    let counts = app.engine().counts(&caller.actor).await?;
    let catalog = app.engine().lifecycles().await?;
    let lifecycles = catalog.definitions.lifecycles.values();
    json_ok(&wire::LifecycleList {
        lifecycles: lifecycles.map(|lifecycle| lifecycle_json(&app, lifecycle, &counts)).collect(),
    })
}

/// Get a lifecycle
#[utoipa::path(
    get, path = "/v1/lifecycles/{name}", operation_id = "get_lifecycle", tag = "lifecycles",
    params(("name" = String, Path, description = "Name of the lifecycle")),
    responses((status = 200, description = "The lifecycle", body = wire::Lifecycle))
)]
async fn get(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(name): PathParams<String>,
) -> Result<Response, Problem> {
    let lifecycle = find_lifecycle(&app, &name).await?;
    let counts = app.engine().counts(&caller.actor).await?;
    json_ok(&lifecycle_json(&app, &lifecycle, &counts))
}

async fn find_lifecycle(app: &AppState, name: &str) -> Result<Arc<Lifecycle>, Problem> {
    let catalog = app.engine().lifecycles().await?;
    catalog.definitions.get(name).cloned().ok_or_else(|| known_names::lifecycle_not_found(app, &catalog, name))
}

/// Draw a lifecycle as SVG
#[utoipa::path(
    get, path = "/v1/lifecycles/{name}/diagram.svg", operation_id = "draw_lifecycle_svg", tag = "lifecycles",
    params(("name" = String, Path, description = "Name of the lifecycle")),
    responses((status = 200, description = "SVG diagram", body = String, content_type = "image/svg+xml"))
)]
async fn svg(
    State(app): State<AppState>,
    _caller: Caller,
    PathParams(name): PathParams<String>,
) -> Result<Response, Problem> {
    let lifecycle = find_lifecycle(&app, &name).await?;
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("image/svg+xml"))], onceward_draw::render_svg(&lifecycle))
        .into_response())
}

/// Draw a lifecycle as Mermaid text
#[utoipa::path(
    get, path = "/v1/lifecycles/{name}/diagram.mmd", operation_id = "draw_lifecycle_mermaid", tag = "lifecycles",
    params(("name" = String, Path, description = "Name of the lifecycle")),
    responses((status = 200, description = "Mermaid text", body = String, content_type = "text/plain"))
)]
async fn mermaid(
    State(app): State<AppState>,
    _caller: Caller,
    PathParams(name): PathParams<String>,
) -> Result<Response, Problem> {
    let lifecycle = find_lifecycle(&app, &name).await?;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], onceward_draw::render_mermaid(&lifecycle)).into_response())
}
