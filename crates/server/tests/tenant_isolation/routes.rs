//! All routes of the OpenAPI document, and how each must answer a stranger. A test fails if a new route is not
//! listed.

use onceward_server::openapi_document;
use onceward_testkit::http::RawHttpResponse;
use serde_json::Value as Json;

use crate::fixtures::{MISSING_RECORD_ID, on_both_stores, stranger_keys};
use crate::support::TestServer;

/// How a route must answer a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StrangerAccess {
    /// Open to all callers, with or without an API key.
    Public,
    OperatorsOnly,
    /// About one record: equal for a foreign and a missing record.
    SingleRecord,
    /// About many records: independent of records of other owners.
    RecordList,
    /// Creates something: has its own tests.
    Creates,
    /// Never ends: has its own test.
    Stream,
}

/// Method, path, expected access, and the body, in which `ID` stands for the record.
pub(crate) const ROUTE_ACCESS: &[(&str, &str, StrangerAccess, &str)] = &[
    ("get", "/", StrangerAccess::Public, ""),
    ("get", "/livez", StrangerAccess::Public, ""),
    ("get", "/readyz", StrangerAccess::Public, ""),
    ("get", "/openapi.json", StrangerAccess::Public, ""),
    ("get", "/errors", StrangerAccess::Public, ""),
    ("get", "/errors/{code}", StrangerAccess::Public, ""),
    ("get", "/metrics", StrangerAccess::OperatorsOnly, ""),
    ("get", "/v1/keys", StrangerAccess::OperatorsOnly, ""),
    ("post", "/v1/keys", StrangerAccess::OperatorsOnly, r#"{"owner": "eve", "roles": ["operator"]}"#),
    ("delete", "/v1/keys/{id}", StrangerAccess::OperatorsOnly, ""),
    ("post", "/v1/prune", StrangerAccess::OperatorsOnly, "{}"),
    ("get", "/v1/clock", StrangerAccess::OperatorsOnly, ""),
    ("post", "/v1/clock/accept", StrangerAccess::OperatorsOnly, "{}"),
    ("get", "/v1/webhook-secret", StrangerAccess::Creates, ""),
    ("post", "/v1/webhook-secret/rotate", StrangerAccess::Creates, "{}"),
    ("get", "/v1/accounts", StrangerAccess::OperatorsOnly, ""),
    ("get", "/v1/accounts/{id}/entries", StrangerAccess::OperatorsOnly, ""),
    ("get", "/v1/workers", StrangerAccess::RecordList, ""),
    ("get", "/v1/lifecycles", StrangerAccess::RecordList, ""),
    ("get", "/v1/lifecycles/{name}", StrangerAccess::RecordList, ""),
    ("get", "/v1/lifecycles/{name}/diagram.svg", StrangerAccess::RecordList, ""),
    ("get", "/v1/lifecycles/{name}/diagram.mmd", StrangerAccess::RecordList, ""),
    ("get", "/v1/lifecycles/{name}/versions", StrangerAccess::RecordList, ""),
    ("post", "/v1/lifecycles/{name}/use", StrangerAccess::OperatorsOnly, r#"{"hash": "x"}"#),
    ("post", "/v1/lifecycles/{name}/move", StrangerAccess::OperatorsOnly, r#"{"map": {}}"#),
    ("get", "/v1/records", StrangerAccess::RecordList, ""),
    ("get", "/v1/records/{id}", StrangerAccess::SingleRecord, ""),
    ("get", "/v1/records/{id}/history", StrangerAccess::SingleRecord, ""),
    ("get", "/v1/records/{id}/executions", StrangerAccess::SingleRecord, ""),
    ("get", "/v1/records/{id}/links", StrangerAccess::SingleRecord, ""),
    ("get", "/v1/records/{id}/payload", StrangerAccess::SingleRecord, ""),
    ("get", "/v1/records/{id}/effect", StrangerAccess::SingleRecord, ""),
    ("post", "/v1/records/{id}/events/{event}", StrangerAccess::SingleRecord, r#"{"input": {}}"#),
    (
        "post",
        "/v1/events/batch",
        StrangerAccess::SingleRecord,
        r#"{"events": [{"record": "ID", "event": "drop", "key": "k"}, {"record": "ID", "event": "drop"}]}"#,
    ),
    ("get", "/v1/executions/{id}", StrangerAccess::SingleRecord, ""),
    (
        "post",
        "/v1/executions/{id}/{report}",
        StrangerAccess::SingleRecord,
        r#"{"token": 1, "error": {"code": "X", "message": "x"}, "result": 1}"#,
    ),
    (
        "post",
        "/v1/executions/batch",
        StrangerAccess::SingleRecord,
        r#"{"reports": [{"execution": "ID.1", "token": 1, "do": "commit", "result": 1, "finish": true}, {"execution": "ID.1", "token": 1, "do": "heartbeat"}]}"#,
    ),
    ("post", "/v1/leases", StrangerAccess::RecordList, r#"{"lifecycles": ["house.other"], "worker": "w"}"#),
    ("post", "/v1/lifecycles/{name}/records", StrangerAccess::Creates, ""),
    ("post", "/v1/lifecycles/{name}/records/batch", StrangerAccess::Creates, ""),
    ("get", "/v1/stream", StrangerAccess::Stream, ""),
];

/// Returns the concrete paths of a route for this record.
fn concrete_paths(path: &str, id: &str) -> Vec<String> {
    let mut paths = vec![path.to_owned()];
    let mut with = |name: &str, values: &[&str]| {
        paths = paths.iter().flat_map(|path| values.iter().map(|value| path.replace(name, value))).collect();
    };
    let execution = format!("{id}.1");
    let of_execution = path.starts_with("/v1/executions/");
    with("{id}", &[if of_execution { &execution } else { id }]);
    with("{event}", &["drop", "nothing", "commit"]);
    with("{report}", &["start", "heartbeat", "commit", "finish", "fail", "yield"]);
    with("{name}", &["house.job", "house.other"]);
    with("{code}", &["not_found"]);
    if path == "/v1/records" {
        let queries =
            ["", "?owner=ann", "?lifecycle=house.job", "?state=waiting", "?lifecycle=house.job&state=done", "?limit=1"];
        return queries.iter().map(|query| format!("{path}{query}")).collect();
    }
    paths
}

pub(crate) fn call_route(
    server: &TestServer,
    key: Option<&str>,
    (method, path, _, body): (&str, &str, StrangerAccess, &str),
    id: &str,
) -> Vec<(String, RawHttpResponse)> {
    let body: Option<Json> = (!body.is_empty()).then(|| serde_json::from_str(&body.replace("ID", id)).expect("JSON"));
    let mut response = Vec::new();
    for path in concrete_paths(path, id) {
        let answer = server.send(key, &method.to_uppercase(), &path, body.as_ref());
        response.push((path.replace(id, "ID"), answer.with_id_masked(id)));
    }
    response
}

/// INV-9
#[test]
fn every_contract_route_declares_stranger_access() {
    let api = serde_json::to_value(openapi_document(Vec::new())).expect("JSON");
    let mut contract_routes: Vec<(String, String)> = Vec::new();
    for (path, item) in api["paths"].as_object().expect("paths") {
        contract_routes.extend(item.as_object().expect("methods").keys().map(|method| (method.clone(), path.clone())));
    }
    let is_declared = |method: &str, path: &str| ROUTE_ACCESS.iter().any(|route| (route.0, route.1) == (method, path));
    let undeclared: Vec<_> = contract_routes.iter().filter(|(method, path)| !is_declared(method, path)).collect();
    assert!(undeclared.is_empty(), "declare the response to a stranger for: {undeclared:?}");
}

/// INV-9
#[test]
fn routes_reject_missing_key_and_missing_operator_role() {
    on_both_stores(async |server| {
        let strangers = stranger_keys(&server).await;
        for route in ROUTE_ACCESS.iter().copied() {
            for (path, response) in call_route(&server, None, route, MISSING_RECORD_ID) {
                if route.2 == StrangerAccess::Public {
                    assert!(response.status < 400, "{path}: {response:?}");
                } else {
                    assert_eq!((response.status, response.problem_code()), (401, "unauthorized".to_owned()), "{path}");
                    assert_eq!(response.header("www-authenticate"), Some("Bearer"));
                }
            }
            for (stranger, key) in strangers.iter().filter(|_| route.2 == StrangerAccess::OperatorsOnly) {
                for (path, response) in call_route(&server, Some(key), route, MISSING_RECORD_ID) {
                    let refused = response.status == 403 || response.problem_code() == "unknown_route";
                    assert!(refused, "{stranger}, {path}: {response:?}");
                }
            }
        }
        let wrong = format!("ow_{}_{}", "0".repeat(16), "0".repeat(64));
        let response = server.send(Some(&wrong), "GET", "/v1/records", None);
        assert_eq!((response.status, response.problem_code()), (401, "unauthorized".to_owned()));
        server.close().await;
    });
}
