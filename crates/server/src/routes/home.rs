//! The home page, the OpenAPI document and the error pages.

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse as _, Response};
use onceward_store::Store as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::error_pages;
use crate::extract::PathParams;
use crate::problem::Problem;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default()
        .routes(routes!(home))
        .routes(routes!(contract))
        .routes(routes!(errors))
        .routes(routes!(error))
}

/// Home page
#[utoipa::path(
    get, path = "/", operation_id = "get_home_page", tag = "documentation",
    responses((status = 200, description = "HTML page", body = String, content_type = "text/html"))
)]
async fn home(State(app): State<AppState>, caller: Result<Caller, Problem>) -> Result<Response, Problem> {
    let catalog = app.engine().store().catalog().await?;
    let names = catalog.definitions.lifecycles.keys().filter(|name| !name.starts_with("onceward."));
    // Callers without API key do not see which lifecycles exist.
    let names = names.filter(|_| caller.is_ok());
    // Names need no escaping: they contain only letters, digits, dots, hyphens and underscores.
    let names: Vec<String> = names
        .map(|name| format!("<li><a href=\"/v1/lifecycles/{name}\">{name}</a> (<a href=\"/v1/lifecycles/{name}/diagram.svg\">diagram</a>)</li>\n"))
        .collect();
    let lifecycles = names.concat();
    let version = env!("CARGO_PKG_VERSION");
    Ok(Html(format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Onceward</title>\n\
         <h1>Onceward {version}</h1>\n<p>A durable lifecycle engine. There is no dashboard yet; use the HTTP API or the <code>onceward</code> command.</p>\n\
         <ul>\n<li><a href=\"/openapi.json\">/openapi.json</a>: OpenAPI document</li>\n\
         <li><a href=\"/errors\">/errors</a>: error codes</li>\n\
         <li><a href=\"/v1/lifecycles\">/v1/lifecycles</a>: lifecycles, with record counts by state</li>\n\
         <li><a href=\"/v1/records\">/v1/records</a>: records</li>\n\
         <li><a href=\"/v1/stream?after=0\">/v1/stream</a>: log as server-sent events</li>\n\
         <li><a href=\"/livez\">/livez</a>, <a href=\"/readyz\">/readyz</a>: health checks</li>\n</ul>\n\
         <h2>Lifecycles</h2>\n<ul>\n{lifecycles}</ul>\n</html>\n"
    ))
    .into_response())
}

/// Get the OpenAPI document
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "get_openapi_document", tag = "documentation",
    responses((status = 200, description = "OpenAPI 3.1 document", body = serde_json::Value))
)]
async fn contract(State(app): State<AppState>) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], app.openapi_json().to_owned())
        .into_response()
}

const MARKDOWN_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("text/markdown; charset=utf-8");

/// List error codes
#[utoipa::path(
    get, path = "/errors", operation_id = "list_error_codes", tag = "documentation",
    responses((status = 200, description = "Markdown page", body = String, content_type = "text/markdown"))
)]
async fn errors() -> Response {
    ([(header::CONTENT_TYPE, MARKDOWN_CONTENT_TYPE)], error_pages::render_index()).into_response()
}

/// Explain an error code
#[utoipa::path(
    get, path = "/errors/{code}", operation_id = "get_error_page", tag = "documentation",
    params(("code" = String, Path, description = "`code` of a problem")),
    responses((status = 200, description = "Markdown page", body = String, content_type = "text/markdown"))
)]
async fn error(PathParams(code): PathParams<String>) -> Result<Response, Problem> {
    let page = error_pages::render_page(&code)
        .ok_or_else(|| Problem::new(404, "not_found", "unknown error code; /errors lists all codes"))?;
    Ok(([(header::CONTENT_TYPE, MARKDOWN_CONTENT_TYPE)], page).into_response())
}
