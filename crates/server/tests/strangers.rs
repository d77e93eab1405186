//! One owner never sees or moves another's records: over every route that there is, what is foreign is answered like what is not there, byte for byte.
//!
//! The routes come from the contract. A new one must be told here, or the test fails.

mod house;

use std::io::BufReader;
use std::net::TcpStream;

use house::{House, Said, is_of_the_moment};
use onceward_server::{Settings, contract};
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore};
use onceward_testkit::postgres::Server;
use onceward_testkit::{Folder, http};
use serde_json::{Value as Json, json};

/// A record that is not there.
const NOBODY: &str = "0199a000-0000-7000-8000-000000000001";

/// How a route is to answer a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
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
const ROUTES: &[(&str, &str, Way, &str)] = &[
    ("get", "/", Way::Public, ""),
    ("get", "/livez", Way::Public, ""),
    ("get", "/readyz", Way::Public, ""),
    ("get", "/openapi.json", Way::Public, ""),
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

fn ask(
    house: &House,
    key: Option<&str>,
    (method, path, _, body): (&str, &str, Way, &str),
    id: &str,
) -> Vec<(String, Said)> {
    let body: Option<Json> = (!body.is_empty()).then(|| serde_json::from_str(&body.replace("ID", id)).expect("JSON"));
    let mut said = Vec::new();
    for path in paths(path, id) {
        let answer = house.send(key, &method.to_uppercase(), &path, body.as_ref());
        said.push((path.replace(id, "ID"), answer.without(id)));
    }
    said
}

/// The same on both databases.
fn on_both(test: impl AsyncFn(House)) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        println!("on SQLite");
        let folder = Folder::new();
        let store = SqliteStore::open(folder.file(), Clock::machine()).expect("a new file");
        test(House::open(AnyStore::Sqlite(store), Settings::default()).await).await;
        println!("on PostgreSQL");
        let store = PostgresStore::open(&Server::shared().database()).await.expect("a new database");
        test(House::open(AnyStore::Postgres(store), Settings::default()).await).await;
    });
}

/// Those who are no operators, and own nothing of ann's.
async fn strangers(house: &House) -> Vec<(&'static str, String)> {
    vec![
        ("a producer", house.key("eve", &["producer"], &[]).await),
        ("a viewer", house.key("eve", &["viewer"], &[]).await),
        ("a worker", house.key("eve", &["worker"], &["house.other"]).await),
        ("of many roles", house.key("eve", &["producer", "viewer", "moderator"], &[]).await),
    ]
}

fn create(house: &House, key: &str, body: &Json) -> String {
    let made = house.send(Some(key), "POST", "/v1/lifecycles/house.job/records", Some(body));
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["id"].as_str().expect("an id").to_owned()
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

/// INV-9: one record, in each of its states, for every kind of stranger: 404 or `lease_lost`, the same bytes as for no record at all.
#[test]
fn a_foreign_record_is_answered_like_none() {
    on_both(async |house| {
        let (ann, bob) = (house.key("ann", &["producer"], &[]).await, house.key("bob", &["worker"], &[]).await);
        let strangers = strangers(&house).await;
        let id = create(&house, &ann, &json!({ "payload": { "secret": "of ann's" }, "fields": { "name": "anns" } }));
        create(&house, &ann, &json!({ "fields": { "near": id } }));
        let mut compared = 0;
        for turn in ["waiting", "running", "done"] {
            for route in ROUTES.iter().copied().filter(|route| route.2 == Way::OfOne) {
                for (who, key) in &strangers {
                    let foreign = ask(&house, Some(key), route, &id);
                    let none = ask(&house, Some(key), route, NOBODY);
                    assert_eq!(foreign, none, "{turn}, {who}");
                    for (path, said) in &foreign {
                        // Of a route that is not there yet nothing can be told.
                        assert!(!said.body.contains("waiting") && !said.body.contains("of ann's"), "{path}: {said:?}");
                        let hidden = matches!(said.status, 404 | 409 | 403) || path.ends_with("/batch");
                        assert!(hidden, "{turn}, {who}, {path}: {said:?}");
                        compared += 1;
                    }
                }
            }
            let own = house.send(Some(&ann), "GET", &format!("/v1/records/{id}"), None);
            assert_eq!(own.json()["state"], turn, "nobody has moved it");
            if turn == "waiting" {
                let wanted = json!({ "lifecycles": ["house.job"], "worker": "w" });
                let leased = house.send(Some(&bob), "POST", "/v1/leases", Some(&wanted));
                assert_eq!(leased.json()["executions"][0]["record"]["id"], id, "{leased:?}");
                let seen = house.send(Some(&bob), "GET", &format!("/v1/records/{id}/payload"), None);
                assert_eq!((seen.status, &*seen.body), (200, r#"{"secret":"of ann's"}"#));
            } else if turn == "running" {
                let report = json!({ "token": 1, "result": "made", "finish": true });
                let done = house.send(Some(&bob), "POST", &format!("/v1/executions/{id}.1/commit"), Some(&report));
                assert_eq!(done.status, 200, "{done:?}");
                let seen = house.send(Some(&bob), "GET", &format!("/v1/records/{id}/payload"), None);
                assert_eq!(seen.status, 404, "the lease is over");
                // The same report again is taken, and shows nothing of what the record has become.
                let again = house.send(Some(&bob), "POST", &format!("/v1/executions/{id}.1/commit"), Some(&report));
                assert_eq!(
                    (again.status, &again.json()["record"], &again.json()["execution"]),
                    (200, &Json::Null, &Json::Null)
                );
                let batch = json!({ "reports": [{ "execution": format!("{id}.1"), "do": "commit", "token": 1, "result": "made", "finish": true }] });
                let again = house.send(Some(&bob), "POST", "/v1/executions/batch", Some(&batch));
                assert!(again.status == 200 && !again.body.contains("anns"), "{again:?}");
            }
        }
        println!("{compared} answers compared");
        assert!(compared > 200);
        house.close().await;
    });
}

/// Without the times at which a worker was last seen: they go on.
fn timeless(said: Vec<(String, Said)>) -> Vec<(String, Said)> {
    let hide = |said: Said| match serde_json::from_str::<Json>(&said.body) {
        Ok(mut body) if body["workers"].is_array() => {
            for worker in body["workers"].as_array_mut().into_iter().flatten() {
                worker["last_seen"] = Json::Null;
            }
            // A time may have fewer digits than another.
            let headers = said.headers.into_iter().filter(|line| !line.starts_with("content-length")).collect();
            Said { status: said.status, headers, body: body.to_string() }
        }
        _ => said,
    };
    said.into_iter().map(|(path, said)| (path, hide(said))).collect()
}

/// INV-9: lists, counts, lifecycles, workers and leases tell a stranger the same whether others have records or not.
#[test]
fn what_others_have_is_in_no_list() {
    on_both(async |house| {
        let ann = house.key("ann", &["producer"], &[]).await;
        let strangers = strangers(&house).await;
        let routes: Vec<_> = ROUTES.iter().copied().filter(|route| route.2 == Way::OfMany).collect();
        let mut before = Vec::new();
        // Twice: whoever has asked for work is a worker of its own list from then on.
        for round in 0..2 {
            for route in &routes {
                for (_, key) in &strangers {
                    let said = ask(&house, Some(key), *route, NOBODY);
                    before.extend((round == 1).then(|| timeless(said)));
                }
            }
        }
        let id = create(&house, &ann, &json!({ "fields": { "name": "anns" } }));
        create(&house, &ann, &json!({ "fields": { "near": id } }));
        let mut before = before.into_iter();
        for route in &routes {
            for (who, key) in &strangers {
                let after = timeless(ask(&house, Some(key), *route, NOBODY));
                assert_eq!(Some(after), before.next(), "{who}");
            }
        }
        let own = house.send(Some(&ann), "GET", "/v1/records", None);
        assert_eq!(own.json()["records"].as_array().map(Vec::len), Some(2));
        house.close().await;
    });
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
                    assert!(said.headers.iter().any(|line| line.eq_ignore_ascii_case("www-authenticate: Bearer")));
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

/// A taken id and a taken key tell that they are taken, and nothing of who has them. Idempotency keys are each owner's own.
#[test]
fn a_clash_shows_nothing_of_the_other() {
    on_both(async |house| {
        let (ann, eve) = (house.key("ann", &["producer"], &[]).await, house.key("eve", &["producer"], &[]).await);
        let viewer = house.key("eve", &["viewer"], &[]).await;
        let anns = create(&house, &ann, &json!({ "fields": { "name": "anns" }, "key": "one" }));
        let eves = create(&house, &eve, &json!({ "fields": { "name": "eves" }, "key": "one" }));
        assert_ne!(anns, eves, "the same key of another owner is another key");
        for path in ["/v1/lifecycles/house.job/records", "/v1/lifecycles/house.job/records/batch"] {
            let of = |new: Json| if path.ends_with("batch") { json!({ "records": [new] }) } else { new };
            let mut said = Vec::new();
            for id in [&anns, &eves] {
                said.push(house.send(Some(&eve), "POST", path, Some(&of(json!({ "id": id })))).without(id));
            }
            assert_eq!(said[0], said[1], "a foreign id and one's own");
            assert!(said[0].body.contains("id_taken"), "{said:?}");
            let mut said = Vec::new();
            for name in ["anns", "eves"] {
                said.push(house.send(Some(&eve), "POST", path, Some(&of(json!({ "fields": { "name": name } })))));
            }
            for one in &said {
                assert!(
                    one.body.contains("name_taken") && !one.body.contains(&anns) && !one.body.contains("ann\""),
                    "{one:?}"
                );
            }
            // Pointing to a record is a way of asking whether it is there.
            let mut said = Vec::new();
            for id in [&*anns, NOBODY] {
                let near = of(json!({ "fields": { "near": id } }));
                said.push(house.send(Some(&eve), "POST", path, Some(&near)).without(id));
            }
            assert_eq!(said[0], said[1]);
            assert!(said[0].body.contains("error") || said[0].status >= 400, "{said:?}");
            // Who could not have made one is not even told that it is taken.
            let mut said = Vec::new();
            for id in [&*anns, NOBODY] {
                said.push(house.send(Some(&viewer), "POST", path, Some(&of(json!({ "id": id })))).without(id));
            }
            assert_eq!(said[0], said[1]);
            assert!(said[0].body.contains("not_allowed"), "{said:?}");
        }
        house.close().await;
    });
}

/// A stream of the log, and what has come of it.
struct Following {
    from: BufReader<TcpStream>,
    said: String,
}

impl Following {
    /// It has begun when this comes back.
    fn start(house: &House, key: &str, query: &str) -> Self {
        let mut stream = http::connect(house.address());
        let path = format!("/v1/stream?after=0{query}");
        http::write(&mut stream, "GET", &path, &[("authorization", &format!("Bearer {key}"))], None);
        let mut from = BufReader::new(stream);
        let head = http::head(&mut from);
        let said = head.lines().filter(|line| !is_of_the_moment(line)).collect::<Vec<_>>().join("\n");
        Self { from, said }
    }

    fn more(&mut self) -> bool {
        let piece = http::chunk(&mut self.from);
        self.said.push_str(&String::from_utf8_lossy(piece.as_deref().unwrap_or_default()));
        piece.is_some()
    }

    fn until(&mut self, word: &str) {
        while !self.said.contains(word) {
            assert!(self.more(), "it ended: {}", self.said);
        }
    }

    fn end(mut self) -> String {
        while self.more() {}
        self.said
    }
}

/// INV-9: a stream tells its reader of its own records; of a foreign one as much as of none.
#[test]
fn a_stream_is_its_readers() {
    on_both(async |house| {
        let (ann, eve) = (house.key("ann", &["producer"], &[]).await, house.key("eve", &["producer"], &[]).await);
        let anns = create(&house, &ann, &json!({ "fields": { "name": "anns" } }));
        let eves = create(&house, &eve, &json!({}));
        let follow = |query: &str| Following::start(&house, &eve, query);
        let (mut all, mut own) = (follow(""), follow(&format!("&record={eves}")));
        let (foreign, none) = (follow(&format!("&record={anns}")), follow(&format!("&record={NOBODY}")));
        all.until(&eves);
        own.until(&eves);
        // One more of each: when the last has come to the one, all have come past the first.
        create(&house, &ann, &json!({ "fields": { "near": anns } }));
        let last = create(&house, &eve, &json!({}));
        all.until(&last);
        house.close().await;
        let (all, foreign, none) = (all.end(), foreign.end(), none.end());
        assert!(!all.contains(&anns) && !all.contains("anns"), "{all}");
        assert_eq!(foreign, none);
        assert!(foreign.starts_with("HTTP/1.1 200") && !own.end().contains(&last));
    });
}
