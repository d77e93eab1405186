//! Reads lifecycles, with record counts by state.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use onceward_core::model::{EventKind, Lifecycle, StateReadiness};
use onceward_store::StateCount;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::PathParams;
use crate::known_names;
use crate::problem::Problem;
use crate::response::{DisplayText, json_ok};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(list)).routes(routes!(get)).routes(routes!(svg)).routes(routes!(mermaid))
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LifecycleList<'a> {
    lifecycles: Vec<LifecycleJson<'a>>,
}

/// A lifecycle.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Lifecycle)]
pub(crate) struct LifecycleJson<'a> {
    name: &'a str,
    about: &'a str,
    /// Identifies this version.
    hash: &'a str,
    /// Default length of a lease; null if workers do not lease its records.
    #[schema(value_type = Option<String>)]
    lease: Option<DisplayText<onceward_core::time::Duration>>,
    states: Vec<StateJson<'a>>,
    fields: Vec<FieldJson<'a>>,
    /// Events that callers can fire.
    events: Vec<&'a str>,
    /// Number of records per state that the caller may count; empty states are omitted.
    counts: BTreeMap<&'a str, u64>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = State)]
struct StateJson<'a> {
    name: &'a str,
    about: &'a str,
    /// Whether a record ends in this state.
    #[serde(rename = "final")]
    is_final: bool,
    /// Whether workers may lease a record in this state.
    ready: bool,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Field)]
struct FieldJson<'a> {
    name: &'a str,
    about: &'a str,
}

impl<'a> LifecycleJson<'a> {
    fn new(lifecycle: &'a Lifecycle, counts: &'a [StateCount]) -> Self {
        let own = counts.iter().filter(|count| count.lifecycle == lifecycle.name);
        let called = lifecycle.events.iter().filter(|event| event.kind == EventKind::Called);
        Self {
            name: &lifecycle.name,
            about: &lifecycle.about,
            hash: &lifecycle.hash,
            lease: lifecycle.work.as_ref().map(|work| DisplayText(work.lease_duration)),
            states: lifecycle
                .states
                .iter()
                .map(|state| StateJson {
                    name: &state.name,
                    about: &state.about,
                    is_final: state.is_final,
                    ready: state.readiness != StateReadiness::NotReady,
                })
                .collect(),
            fields: lifecycle.fields.iter().map(|field| FieldJson { name: &field.name, about: &field.about }).collect(),
            events: called.map(|event| &*event.name).collect(),
            counts: own.map(|count| (&*count.state, count.count)).collect(),
        }
    }
}

/// List lifecycles
#[utoipa::path(
    get, path = "/v1/lifecycles", tag = "lifecycles",
    responses((status = 200, description = "All of them", body = LifecycleList))
)]
async fn list(State(app): State<AppState>, caller: Caller) -> Result<Response, Problem> {
    let counts = app.engine().counts(&caller.actor).await?;
    let catalog = app.engine().lifecycles().await?;
    let lifecycles = catalog.definitions.lifecycles.values();
    json_ok(&LifecycleList { lifecycles: lifecycles.map(|lifecycle| LifecycleJson::new(lifecycle, &counts)).collect() })
}

/// Get a lifecycle
#[utoipa::path(
    get, path = "/v1/lifecycles/{name}", tag = "lifecycles",
    params(("name" = String, Path, description = "The lifecycle's name")),
    responses((status = 200, description = "The lifecycle", body = LifecycleJson))
)]
async fn get(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(name): PathParams<String>,
) -> Result<Response, Problem> {
    let lifecycle = find_lifecycle(&app, &name).await?;
    let counts = app.engine().counts(&caller.actor).await?;
    json_ok(&LifecycleJson::new(&lifecycle, &counts))
}

async fn find_lifecycle(app: &AppState, name: &str) -> Result<Arc<Lifecycle>, Problem> {
    let catalog = app.engine().lifecycles().await?;
    catalog.definitions.get(name).cloned().ok_or_else(|| known_names::lifecycle_not_found(app, &catalog, name))
}

/// Draw a lifecycle as SVG
#[utoipa::path(
    get, path = "/v1/lifecycles/{name}/diagram.svg", tag = "lifecycles",
    params(("name" = String, Path, description = "The lifecycle's name")),
    responses((status = 200, description = "SVG", body = String, content_type = "image/svg+xml"))
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
    get, path = "/v1/lifecycles/{name}/diagram.mmd", tag = "lifecycles",
    params(("name" = String, Path, description = "The lifecycle's name")),
    responses((status = 200, description = "Mermaid", body = String, content_type = "text/plain"))
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
