//! Refuses query parameters that a route does not have. An ignored one, such as a mistyped filter, would return records
//! that the caller did not ask for.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{MatchedPath, Query, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};

use crate::problem::Problem;

/// The parameters of each route, as the OpenAPI document lists them.
#[derive(Debug, Default)]
pub(crate) struct QueryParameters(HashMap<(Method, String), Vec<String>>);

impl QueryParameters {
    pub(crate) fn from_api(api: &OpenApi) -> Self {
        let mut routes = HashMap::new();
        for (path, item) in &api.paths.paths {
            let methods = [
                (Method::GET, &item.get),
                (Method::POST, &item.post),
                (Method::PUT, &item.put),
                (Method::DELETE, &item.delete),
            ];
            for (method, operation) in methods {
                if let Some(operation) = operation {
                    routes.insert((method, path.clone()), names(operation));
                }
            }
        }
        Self(routes)
    }

    /// Returns what is wrong with the query of a request to this route.
    fn find_problem(&self, request: &Request) -> Option<String> {
        request.uri().query().filter(|query| !query.is_empty())?;
        let path = request.extensions().get::<MatchedPath>()?.as_str().to_owned();
        // A HEAD request is answered by the GET route.
        let method = if request.method() == Method::HEAD { Method::GET } else { request.method().clone() };
        let known = self.0.get(&(method, path))?;
        // The route's own extractor reports a malformed query string.
        let Query(given) = Query::<Vec<(String, String)>>::try_from_uri(request.uri()).ok()?;
        let (unknown, _) = given.iter().find(|(name, _)| !known.contains(name))?;
        let expected: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
        Some(match &*expected {
            [] => format!("the query parameter `{unknown}` is unknown; the route has none"),
            [only] => format!("the query parameter `{unknown}` is unknown; expected {only}"),
            all => format!("the query parameter `{unknown}` is unknown; expected one of {}", all.join(", ")),
        })
    }
}

fn names(operation: &Operation) -> Vec<String> {
    let query_name = |parameter: &RefOr<Parameter>| match parameter {
        RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => Some(parameter.name.clone()),
        _ => None,
    };
    operation.parameters.iter().flatten().filter_map(query_name).collect()
}

pub(crate) async fn refuse_unknown(
    State(known): State<Arc<QueryParameters>>,
    request: Request,
    next: Next,
) -> Response {
    match known.find_problem(&request) {
        Some(reason) => Problem::invalid_input(reason).into_response(),
        None => next.run(request).await,
    }
}
