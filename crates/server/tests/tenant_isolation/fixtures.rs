//! Ann's records, and callers that own none of them.

use onceward_server::ServerConfig;
use onceward_store::{AnyStore, PostgresStore};
use onceward_testkit::postgres::PostgresServer;
use serde_json::Value as Json;

use crate::support::{TestServer, run_blocking, with_sqlite_server};

/// The id of a record that does not exist.
pub(crate) const MISSING_RECORD_ID: &str = "0199a000-0000-7000-8000-000000000001";

/// Runs a test on both databases.
pub(crate) fn on_both_stores(test: impl AsyncFn(TestServer)) {
    println!("on SQLite");
    with_sqlite_server(ServerConfig::default(), Vec::new(), &test);
    println!("on PostgreSQL");
    run_blocking(async {
        let store = PostgresStore::open(&PostgresServer::shared().create_database()).await.expect("new database");
        test(TestServer::start(AnyStore::Postgres(store), ServerConfig::default()).await).await;
    });
}

/// Creates API keys of callers that are not operators and own none of Ann's records.
pub(crate) async fn stranger_keys(server: &TestServer) -> Vec<(&'static str, String)> {
    vec![
        ("a producer", server.create_api_key("eve", &["producer"], &[]).await),
        ("a viewer", server.create_api_key("eve", &["viewer"], &[]).await),
        ("a worker", server.create_api_key("eve", &["worker"], &["house.other"]).await),
        ("of many roles", server.create_api_key("eve", &["producer", "viewer", "moderator"], &[]).await),
    ]
}

pub(crate) fn create_record(server: &TestServer, key: &str, body: &Json) -> String {
    let made = server.send(Some(key), "POST", "/v1/lifecycles/house.job/records", Some(body));
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["id"].as_str().expect("id").to_owned()
}
