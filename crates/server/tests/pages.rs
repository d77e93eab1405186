//! Pages end where they are full, whatever is in them: over real sockets, on both databases.

mod house;

use house::House;
use onceward_server::Settings;
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore};
use onceward_testkit::postgres::Server;
use onceward_testkit::{Folder, http};
use serde_json::{Value as Json, json};

const CREATE: &str = "/v1/lifecycles/house.job/records";

/// Nearly as large as fields, or an event's input, may be.
const LARGE: usize = 900_000;

/// So many that they take more than one page.
const MANY: usize = 12;

/// What the engine puts on a page, unless one thing alone is larger.
const PAGE: usize = 8 << 20;

#[expect(clippy::needless_pass_by_value, reason = "a closure, written where it is used")]
fn on_each(test: impl AsyncFn(&House)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let folder = Folder::new();
        let sqlite = SqliteStore::open(folder.file(), Clock::machine()).expect("a new file");
        let postgres = PostgresStore::open(&Server::shared().database()).await.expect("a new database");
        for store in [AnyStore::Sqlite(sqlite), AnyStore::Postgres(postgres)] {
            let house = House::open(store, Settings::default()).await;
            test(&house).await;
            house.close().await;
        }
    });
}

fn post(house: &House, path: &str, body: &Json) -> Json {
    http::call(house.address(), "POST", path, &[], Some(body.to_string().as_bytes())).ok()
}

/// All that is on these pages, and how many there were. None is longer than it may be, and none is empty.
fn read(house: &House, path: &str, name: &str) -> (Vec<Json>, usize) {
    let (mut all, mut pages, mut cursor) = (Vec::new(), 0, String::new());
    loop {
        let said = http::call(house.address(), "GET", &format!("{path}limit=1000{cursor}"), &[], None);
        assert!(said.body.len() <= PAGE, "{} bytes", said.body.len());
        let page = said.ok();
        let items = page[name].as_array().expect("a list");
        assert!(!items.is_empty(), "nothing on a page");
        all.extend(items.iter().cloned());
        pages += 1;
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return (all, pages),
        }
    }
}

#[test]
fn records_come_as_far_as_they_fit() {
    on_each(async |house| {
        let note = "x".repeat(LARGE);
        let made = |body: &Json| post(house, CREATE, body)["id"].clone();
        let mut ids = vec![made(&json!({}))];
        ids.extend((0..MANY).map(|_| made(&json!({ "fields": { "note": note } }))));
        ids.extend((0..100).map(|_| made(&json!({}))));
        let (records, pages) = read(house, "/v1/records?", "records");
        assert_eq!(records.iter().map(|record| record["id"].clone()).collect::<Vec<_>>(), ids);
        assert_eq!(pages, 2);
        // What is small comes together as before.
        let (records, pages) = read(house, &format!("/v1/records?state=waiting&cursor={}&", MANY + 1), "records");
        assert_eq!((records.len(), pages), (100, 1));
    });
}

#[test]
fn stories_and_attempts_come_as_far_as_they_fit() {
    on_each(async |house| {
        let id = post(house, CREATE, &json!({}))["id"].as_str().expect("an id").to_owned();
        for number in 0..MANY {
            let note = format!("{number}{}", "x".repeat(LARGE));
            post(house, &format!("/v1/records/{id}/events/write"), &json!({ "input": { "note": note } }));
        }
        let (entries, pages) = read(house, &format!("/v1/records/{id}/history?"), "entries");
        let versions: Vec<Json> = entries.iter().map(|entry| entry["version"].clone()).collect();
        assert_eq!(versions, (1..=MANY + 1).collect::<Vec<_>>());
        assert!(pages > 1, "{pages}");
        for token in 1..=3 {
            let wanted = json!({ "lifecycles": ["house.job"], "worker": "w" });
            assert_eq!(post(house, "/v1/leases", &wanted)["executions"][0]["token"], token);
            let error = json!({ "code": "E", "retryable": true });
            post(house, &format!("/v1/executions/{id}.{token}/fail"), &json!({ "token": token, "error": error }));
        }
        let get = |path: &str| http::call(house.address(), "GET", path, &[], None);
        let page = |query: &str| {
            let page = get(&format!("/v1/records/{id}/executions{query}")).ok();
            let tokens = page["executions"].as_array().expect("a list").iter().map(|one| one["token"].clone());
            (tokens.collect::<Vec<_>>(), page["next"].clone())
        };
        assert_eq!(page(""), (vec![json!(1), json!(2), json!(3)], Json::Null));
        assert_eq!(page("?limit=2"), (vec![json!(1), json!(2)], json!("2")));
        assert_eq!(page("?limit=2&cursor=2"), (vec![json!(3)], Json::Null));
        assert_eq!(page("?cursor=3"), (vec![], Json::Null));
        // One of them is had by itself, an old one as well as the last.
        for token in 1..=3 {
            let one = get(&format!("/v1/executions/{id}.{token}")).ok();
            assert_eq!((&one["token"], &one["status"]), (&json!(token), &json!("ABORTED")));
        }
        get(&format!("/v1/executions/{id}.4")).is_problem(404, "not_found");
    });
}
