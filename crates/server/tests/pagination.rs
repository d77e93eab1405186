//! Pages are limited in bytes, on both databases.

mod support;

use onceward_server::ServerConfig;
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore};
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::{TempDir, http};
use serde_json::{Value as Json, json};
use support::TestServer;

const CREATE_RECORD_PATH: &str = "/v1/lifecycles/house.job/records";

/// Just below the limit on fields and on an event's input.
const LARGE_FIELD_BYTES: usize = 900_000;

/// More than fit on one page.
const LARGE_ITEMS: usize = 12;

/// The engine's limit, exceeded only by a single larger item.
const MAX_PAGE_BYTES: usize = 8 << 20;

#[expect(clippy::needless_pass_by_value, reason = "callers write the configuration inline")]
fn on_each_store(test: impl AsyncFn(&TestServer)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("tokio runtime").block_on(async {
        let folder = TempDir::new();
        let sqlite = SqliteStore::open(folder.database_path(), Clock::machine()).expect("new database file");
        let postgres = PostgresStore::open(&PostgresServer::shared().create_database()).await.expect("new database");
        for store in [AnyStore::Sqlite(sqlite), AnyStore::Postgres(postgres)] {
            let server = TestServer::start(store, ServerConfig::default()).await;
            test(&server).await;
            server.close().await;
        }
    });
}

fn post(server: &TestServer, path: &str, body: &Json) -> Json {
    http::send_request(server.address(), "POST", path, &[], Some(body.to_string().as_bytes())).expect_ok()
}

/// Reads all pages and asserts that none is empty or too large. Returns all items and the number of pages.
fn read_all_pages(server: &TestServer, path: &str, name: &str) -> (Vec<Json>, usize) {
    let (mut all, mut pages, mut cursor) = (Vec::new(), 0, String::new());
    loop {
        let response = http::send_request(server.address(), "GET", &format!("{path}limit=1000{cursor}"), &[], None);
        assert!(response.body.len() <= MAX_PAGE_BYTES, "{} bytes", response.body.len());
        let page = response.expect_ok();
        let items = page[name].as_array().expect("JSON array");
        assert!(!items.is_empty(), "empty page");
        all.extend(items.iter().cloned());
        pages += 1;
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return (all, pages),
        }
    }
}

#[test]
fn record_pages_stay_within_byte_limit() {
    on_each_store(async |server| {
        let note = "x".repeat(LARGE_FIELD_BYTES);
        let create_record = |body: &Json| post(server, CREATE_RECORD_PATH, body)["id"].clone();
        let mut ids = vec![create_record(&json!({}))];
        ids.extend((0..LARGE_ITEMS).map(|_| create_record(&json!({ "fields": { "note": note } }))));
        ids.extend((0..100).map(|_| create_record(&json!({}))));
        let (records, pages) = read_all_pages(server, "/v1/records?", "records");
        assert_eq!(records.iter().map(|record| record["id"].clone()).collect::<Vec<_>>(), ids);
        assert_eq!(pages, 2);
        // Small records share one page.
        let (records, pages) =
            read_all_pages(server, &format!("/v1/records?state=waiting&cursor={}&", LARGE_ITEMS + 1), "records");
        assert_eq!((records.len(), pages), (100, 1));
    });
}

#[test]
fn history_and_execution_pages_stay_within_byte_limit() {
    on_each_store(async |server| {
        let id = post(server, CREATE_RECORD_PATH, &json!({}))["id"].as_str().expect("id").to_owned();
        for number in 0..LARGE_ITEMS {
            let note = format!("{number}{}", "x".repeat(LARGE_FIELD_BYTES));
            post(server, &format!("/v1/records/{id}/events/write"), &json!({ "input": { "note": note } }));
        }
        let (entries, pages) = read_all_pages(server, &format!("/v1/records/{id}/history?"), "entries");
        let versions: Vec<Json> = entries.iter().map(|entry| entry["version"].clone()).collect();
        assert_eq!(versions, (1..=LARGE_ITEMS + 1).collect::<Vec<_>>());
        assert!(pages > 1, "{pages}");
        for token in 1..=3 {
            let wanted = json!({ "lifecycles": ["house.job"], "worker": "w" });
            assert_eq!(post(server, "/v1/leases", &wanted)["executions"][0]["token"], token);
            let error = json!({ "code": "E", "retryable": true });
            post(server, &format!("/v1/executions/{id}.{token}/fail"), &json!({ "token": token, "error": error }));
        }
        let get = |path: &str| http::send_request(server.address(), "GET", path, &[], None);
        let page = |query: &str| {
            let page = get(&format!("/v1/records/{id}/executions{query}")).expect_ok();
            let tokens = page["executions"].as_array().expect("JSON array").iter().map(|one| one["token"].clone());
            (tokens.collect::<Vec<_>>(), page["next"].clone())
        };
        assert_eq!(page(""), (vec![json!(1), json!(2), json!(3)], Json::Null));
        assert_eq!(page("?limit=2"), (vec![json!(1), json!(2)], json!("2")));
        assert_eq!(page("?limit=2&cursor=2"), (vec![json!(3)], Json::Null));
        assert_eq!(page("?cursor=3"), (vec![], Json::Null));
        // Single executions can be read, old ones and the last.
        for token in 1..=3 {
            let one = get(&format!("/v1/executions/{id}.{token}")).expect_ok();
            assert_eq!((&one["token"], &one["status"]), (&json!(token), &json!("ABORTED")));
        }
        get(&format!("/v1/executions/{id}.4")).assert_problem(404, "not_found");
    });
}
