//! Generates the OpenAPI 3.1 document from the routes and adds the responses common to all of them.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, ParameterIn, PathItem};
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, InfoBuilder, LicenseBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder};

use crate::app::AppState;
use crate::query_parameters::{QueryParameters, refuse_unknown};
use crate::router;
use crate::system_routes::SystemRoutes;

const PROBLEM_CONTENT_TYPE: &str = "application/problem+json";

/// Responses that any call may return besides its own.
const COMMON_RESPONSES: &[(&str, &str)] = &[
    ("400", "The request is malformed."),
    ("401", "The API key is missing or invalid."),
    ("403", "The caller lacks the required role, or the server rejects the origin of the request."),
    ("404", "The route or the resource does not exist, or the caller may not read it."),
    ("405", "The route does not support the method; `Allow` lists those that it does."),
    ("408", "The request did not arrive in time."),
    ("413", "The request is too large."),
    ("415", "The `Content-Type` is not the one that the route accepts."),
    ("422", "A parameter or a member of the body is invalid."),
    ("429", "A limit of the lifecycle or of the API key is reached; retry after `Retry-After`."),
    ("500", "Internal error; the server's log has the cause."),
    ("503", "The server or its database is overloaded, unavailable or shutting down; retry after `Retry-After`."),
    ("507", "The database or the object storage is full."),
];

/// Returns the OpenAPI document of a server with these systems.
pub fn openapi_document(systems: Vec<SystemRoutes>) -> OpenApi {
    build_routes(systems).1
}

/// Builds the routes of a server with these systems, and their OpenAPI document.
pub(crate) fn build_routes(systems: Vec<SystemRoutes>) -> (Router<AppState>, OpenApi) {
    let all = systems.into_iter().fold(router::engine_routes(), |routes, part| routes.merge(part.router));
    let (routes, mut api) = all.split_for_parts();
    api.info = InfoBuilder::new()
        .title("Onceward")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("A durable lifecycle engine: lifecycles, their records, and workers that lease jobs."))
        .license(Some(LicenseBuilder::new().name("Apache-2.0 OR MIT").build()))
        .build();
    api.servers = None;
    let bearer = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("ow_").build());
    api.components.get_or_insert_default().add_security_scheme("key", bearer);
    // Without an API key, while none was ever created.
    api.security = Some(vec![SecurityRequirement::new("key", Vec::<String>::new()), SecurityRequirement::default()]);
    for item in api.paths.paths.values_mut() {
        operations(item).into_iter().flatten().for_each(add_common_responses);
    }
    let known = Arc::new(QueryParameters::from_api(&api));
    (routes.layer(from_fn_with_state(known, refuse_unknown)), api)
}

/// Formats the document as it is served and checked in.
pub(crate) fn to_json_text(api: &OpenApi) -> String {
    // Cannot fail: the document contains only text and numbers.
    api.to_pretty_json().unwrap_or_default() + "\n"
}

fn operations(item: &mut PathItem) -> [Option<&mut Operation>; 4] {
    [item.get.as_mut(), item.post.as_mut(), item.put.as_mut(), item.delete.as_mut()]
}

fn add_common_responses(operation: &mut Operation) {
    // A header may be absent but is never null.
    for parameter in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(parameter) = parameter
            && parameter.parameter_in == ParameterIn::Header
            && let Some(RefOr::T(Schema::Object(schema))) = &mut parameter.schema
        {
            schema.schema_type = SchemaType::Type(Type::String);
        }
    }
    for (status, description) in COMMON_RESPONSES {
        let responses = &mut operation.responses.responses;
        responses.entry((*status).to_owned()).or_insert_with(|| RefOr::T(problem_response(status, description)));
    }
    // A lifecycle may refuse with its own status.
    let description = "The lifecycle refuses the call with a code and a status of its own.";
    operation
        .responses
        .responses
        .entry("4XX".to_owned())
        .or_insert_with(|| RefOr::T(problem_response("4XX", description)));
}

fn problem_response(status: &str, description: &str) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let mut response = ResponseBuilder::new().description(description).content(PROBLEM_CONTENT_TYPE, content);
    if matches!(status, "429" | "503") {
        let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).build();
        response = response.header("Retry-After", HeaderBuilder::new().schema(Some(seconds)).build());
    }
    response.build()
}
