//! All routes, and how each is to answer a stranger. They come from the contract: a new one must be told here, or a test fails.

use onceward_server::contract;
use onceward_testkit::http::Reply;
use serde_json::Value as Json;

use crate::house::House;
use crate::people::{NOBODY, on_both, strangers};

/// How a route is to answer a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To everybody, key or not.
    Public,
    /// To operators only.
    Operators,
    /// About one record: the same for a foreign one and for none.
    OfOne,
    /// About many: the same whether others have some or not.
    OfMany,
    /// Makes something: told apart below.
    Makes,
    /// Never ends: told apart below.
    Stream,
}

/// Method, path, how to answer, and a body where one is sent: `ID` stands for the record.
pub(crate) const ROUTES: &[(&str, &str, Way, &str)] = &[
    ("get", "/", Way::Public, ""),
    ("get", "/livez", Way::Public, ""),
    ("get", "/readyz", Way::Public, ""),
    ("get", "/openapi.json", Way::Public, ""),
    ("get", "/errors", Way::Public, ""),
    ("get", "/errors/{code}", Way::Public, ""),
    ("get", "/metrics", Way::Operators, ""),
    ("get", "/v1/keys", Way::Operators, ""),
    ("post", "/v1/keys", Way::Operators, r#"{"owner": "eve", "roles": ["operator"]}"#),
    ("delete", "/v1/keys/{id}", Way::Operators, ""),
    ("post", "/v1/prune", Way::Operators, "{}"),
    ("get", "/v1/accounts", Way::Operators, ""),
    ("get", "/v1/accounts/{id}/entries", Way::Operators, ""),
    ("get", "/v1/workers", Way::OfMany, ""),
    ("get", "/v1/lifecycles", Way::OfMany, ""),
    ("get", "/v1/lifecycles/{name}", Way::OfMany, ""),
    ("get", "/v1/lifecycles/{name}/diagram.svg", Way::OfMany, ""),
    ("get", "/v1/lifecycles/{name}/diagram.mmd", Way::OfMany, ""),
    ("get", "/v1/lifecycles/{name}/versions", Way::OfMany, ""),
    ("post", "/v1/lifecycles/{name}/use", Way::Operators, r#"{"hash": "x"}"#),
    ("post", "/v1/lifecycles/{name}/move", Way::Operators, r#"{"map": {}}"#),
    ("get", "/v1/records", Way::OfMany, ""),
    ("get", "/v1/records/{id}", Way::OfOne, ""),
    ("get", "/v1/records/{id}/history", Way::OfOne, ""),
    ("get", "/v1/records/{id}/executions", Way::OfOne, ""),
    ("get", "/v1/records/{id}/links", Way::OfOne, ""),
    ("get", "/v1/records/{id}/payload", Way::OfOne, ""),
    ("get", "/v1/records/{id}/effect", Way::OfOne, ""),
    ("post", "/v1/records/{id}/events/{event}", Way::OfOne, r#"{"input": {}}"#),
    (
        "post",
        "/v1/events/batch",
        Way::OfOne,
        r#"{"events": [{"record": "ID", "event": "drop", "key": "k"}, {"record": "ID", "event": "drop"}]}"#,
    ),
    ("get", "/v1/executions/{id}", Way::OfOne, ""),
    (
        "post",
        "/v1/executions/{id}/{report}",
        Way::OfOne,
        r#"{"token": 1, "error": {"code": "X", "message": "x"}, "result": 1}"#,
    ),
    (
        "post",
        "/v1/executions/batch",
        Way::OfOne,
        r#"{"reports": [{"execution": "ID.1", "token": 1, "do": "commit", "result": 1, "finish": true}, {"execution": "ID.1", "token": 1, "do": "heartbeat"}]}"#,
    ),
    ("post", "/v1/leases", Way::OfMany, r#"{"lifecycles": ["house.other"], "worker": "w"}"#),
    ("post", "/v1/lifecycles/{name}/records", Way::Makes, ""),
    ("post", "/v1/lifecycles/{name}/records/batch", Way::Makes, ""),
    ("get", "/v1/stream", Way::Stream, ""),
];

/// The paths that a route stands for, about a record.
fn paths(path: &str, id: &str) -> Vec<String> {
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

pub(crate) fn ask(
    house: &House,
    key: Option<&str>,
    (method, path, _, body): (&str, &str, Way, &str),
    id: &str,
) -> Vec<(String, Reply)> {
    let body: Option<Json> = (!body.is_empty()).then(|| serde_json::from_str(&body.replace("ID", id)).expect("JSON"));
    let mut said = Vec::new();
    for path in paths(path, id) {
        let answer = house.send(key, &method.to_uppercase(), &path, body.as_ref());
        said.push((path.replace(id, "ID"), answer.without(id)));
    }
    said
}

/// INV-9: every route that the contract has is told above.
#[test]
fn no_route_is_forgotten() {
    let api = serde_json::to_value(contract(Vec::new())).expect("JSON");
    let mut there: Vec<(String, String)> = Vec::new();
    for (path, item) in api["paths"].as_object().expect("paths") {
        there.extend(item.as_object().expect("methods").keys().map(|method| (method.clone(), path.clone())));
    }
    let told = |method: &str, path: &str| ROUTES.iter().any(|route| (route.0, route.1) == (method, path));
    let untold: Vec<_> = there.iter().filter(|(method, path)| !told(method, path)).collect();
    assert!(untold.is_empty(), "say how these answer a stranger: {untold:?}");
}

/// INV-9: what is for operators is refused to others, and what is not public is for nobody without a key.
#[test]
fn without_the_role_or_the_key_nothing_is_had() {
    on_both(async |house| {
        let strangers = strangers(&house).await;
        for route in ROUTES.iter().copied() {
            for (path, said) in ask(&house, None, route, NOBODY) {
                if route.2 == Way::Public {
                    assert!(said.status < 400, "{path}: {said:?}");
                } else {
                    assert_eq!((said.status, said.code()), (401, "unauthorized".to_owned()), "{path}");
                    assert_eq!(said.header("www-authenticate"), Some("Bearer"));
                }
            }
            for (who, key) in strangers.iter().filter(|_| route.2 == Way::Operators) {
                for (path, said) in ask(&house, Some(key), route, NOBODY) {
                    let refused = said.status == 403 || said.code() == "no_such_route";
                    assert!(refused, "{who}, {path}: {said:?}");
                }
            }
        }
        let wrong = format!("ow_{}_{}", "0".repeat(16), "0".repeat(64));
        let said = house.send(Some(&wrong), "GET", "/v1/records", None);
        assert_eq!((said.status, said.code()), (401, "unauthorized".to_owned()));
        house.close().await;
    });
}
