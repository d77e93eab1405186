//! Hints at the right route for common mistakes in 404 and 405 responses.

use axum::http::{Method, Uri};

use crate::problem::Problem;

/// Common mistakes: methods, path pattern with `{…}` as wildcard, and hint. The first match wins. Text in backticks
/// that begins with a method names an existing route.
const ROUTE_HINTS: &[(&[&str], &str, &str)] = &[
    (&["POST", "PUT"], "/v1/records", "`POST /v1/lifecycles/{name}/records` creates a record"),
    (&["POST", "PUT"], "/v1/records/batch", "`POST /v1/lifecycles/{name}/records/batch` creates many records"),
    (
        &["DELETE"],
        "/v1/records/{id}",
        "an event ends a record, `POST /v1/records/{id}/events/{event}`; `POST /v1/prune` deletes ended records",
    ),
    (
        &["POST", "PUT", "PATCH"],
        "/v1/records/{id}",
        "`POST /v1/records/{id}/events/{event}` fires an event on a record",
    ),
    (&["GET"], "/v1/records/{id}/events", "`GET /v1/records/{id}/history` returns the log of a record"),
    (&["POST"], "/v1/records/{id}/{event}", "`POST /v1/records/{id}/events/{event}` fires an event on a record"),
    (&["GET"], "/v1/lifecycles/{name}/records", "`GET /v1/records` with `?lifecycle=NAME` lists them"),
    (
        &["POST", "PUT", "PATCH"],
        "/v1/lifecycles",
        "lifecycles come from files: `onceward serve --lifecycles DIR` loads them",
    ),
    (
        &["POST", "PUT", "PATCH"],
        "/v1/lifecycles/{name}",
        "lifecycles come from files: `onceward serve --lifecycles DIR` loads them; `POST /v1/lifecycles/{name}/records` creates a record",
    ),
    (&["GET"], "/health", HEALTH_HINT),
    (&["GET"], "/healthz", HEALTH_HINT),
    (&["GET"], "/v1/jobs", "jobs are records: `GET /v1/records` lists them"),
    (&["POST", "PUT"], "/v1/jobs", "jobs are records: `POST /v1/lifecycles/{name}/records` creates one"),
    (
        &["GET"],
        "/v1/events",
        "`GET /v1/stream` streams the log, `GET /v1/records/{id}/history` returns that of one record",
    ),
    (&["GET"], "/v1/executions", "`GET /v1/records/{id}/executions` lists the executions of a job"),
    (
        &["GET"],
        "/v1/leases",
        "`POST /v1/leases` leases jobs, `GET /v1/records/{id}/executions` shows who holds a lease",
    ),
];

const HEALTH_HINT: &str = "`GET /livez` checks that the server runs, `GET /readyz` that it can serve requests";

/// First path segments of the server's routes below `/v1`.
const V1_RESOURCES: [&str; 12] = [
    "accounts",
    "clock",
    "events",
    "executions",
    "keys",
    "leases",
    "lifecycles",
    "prune",
    "records",
    "stream",
    "webhook-secret",
    "workers",
];

pub(crate) async fn route_not_found(method: Method, uri: Uri) -> Problem {
    let detail = "no such route; /openapi.json lists all routes";
    Problem::new(404, "unknown_route", with_hint(detail, &method, uri.path()))
}

pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let detail = "the route does not support the method; the header `Allow` lists those that it does";
    Problem::new(405, "method_not_allowed", with_hint(detail, &method, uri.path()))
}

fn with_hint(detail: &str, method: &Method, path: &str) -> String {
    find_hint(method.as_str(), path).map_or_else(|| detail.to_owned(), |hint| format!("{detail}; {hint}"))
}

/// The hint never repeats the request's path, which may contain anything.
fn find_hint(method: &str, path: &str) -> Option<&'static str> {
    let entry =
        ROUTE_HINTS.iter().find(|(methods, pattern, _)| methods.contains(&method) && matches_pattern(pattern, path));
    if let Some((_, _, hint)) = entry {
        return Some(hint);
    }
    if path.split('/').nth(1).is_some_and(|first| V1_RESOURCES.contains(&first)) {
        return Some("the engine's own routes begin with /v1");
    }
    (path.len() > 1 && path.ends_with('/')).then_some("no route ends with a slash")
}

fn matches_pattern(pattern: &str, path: &str) -> bool {
    let (mut patterns, mut parts) = (pattern.split('/'), path.split('/'));
    loop {
        match (patterns.next(), parts.next()) {
            (None, None) => return true,
            (Some(pattern), Some(part)) if pattern == part || pattern.starts_with('{') && !part.is_empty() => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns method and path of all routes.
    fn contract_routes() -> BTreeSet<(String, String)> {
        let api = serde_json::to_value(crate::openapi_document(Vec::new())).unwrap();
        let paths = api["paths"].as_object().unwrap();
        let methods_of = |(path, item): (&String, &serde_json::Value)| {
            let methods: Vec<_> = item.as_object().unwrap().keys().map(|method| method.to_uppercase()).collect();
            methods.into_iter().map(|method| (method, path.clone())).collect::<Vec<_>>()
        };
        paths.iter().flat_map(methods_of).collect()
    }

    #[test]
    fn hints_match_unknown_routes_and_name_existing_ones() {
        let routes = contract_routes();
        for (methods, mistake, hint) in ROUTE_HINTS {
            for method in *methods {
                assert!(
                    !routes.contains(&((*method).to_owned(), (*mistake).to_owned())),
                    "{method} {mistake} is a route"
                );
                assert_eq!(find_hint(method, mistake), Some(*hint), "{method} {mistake}");
            }
            for named in hint.split('`').skip(1).step_by(2) {
                let Some((method, path)) = named.split_once(' ').filter(|_| !named.starts_with("onceward ")) else {
                    continue;
                };
                assert!(routes.contains(&(method.to_owned(), path.to_owned())), "{named} is not a route");
            }
        }
        let first: BTreeSet<_> =
            routes.iter().filter_map(|(_, path)| path.strip_prefix("/v1/")?.split('/').next()).collect();
        assert_eq!(first, BTreeSet::from(V1_RESOURCES));
    }

    #[test]
    fn near_misses_get_hints_and_unrelated_paths_none() {
        let record = "/v1/records/0199a000-0000-7000-8000-000000000001";
        assert!(find_hint("PATCH", record).unwrap().contains("/events/{event}"));
        assert!(find_hint("POST", &format!("{record}/cancel")).unwrap().contains("/events/{event}"));
        assert_eq!(find_hint("GET", "/records"), Some("the engine's own routes begin with /v1"));
        assert_eq!(find_hint("GET", "/v1/records/"), Some("no route ends with a slash"));
        for far in ["/", "/v1", "/v2/records", "/v1/records/a/b/c/d", "/v1/recordss"] {
            assert_eq!(find_hint("POST", far), None, "{far}");
        }
    }
}
