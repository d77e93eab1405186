//! A house with ann's records, and those who have none there.

use onceward_server::Settings;
use onceward_store::{AnyStore, PostgresStore};
use onceward_testkit::postgres::Server;
use serde_json::Value as Json;

use crate::house::{House, blocking, on_sqlite};

/// A record that is not there.
pub(crate) const NOBODY: &str = "0199a000-0000-7000-8000-000000000001";

/// The same on both databases.
pub(crate) fn on_both(test: impl AsyncFn(House)) {
    println!("on SQLite");
    on_sqlite(Settings::default(), Vec::new(), &test);
    println!("on PostgreSQL");
    blocking(async {
        let store = PostgresStore::open(&Server::shared().database()).await.expect("a new database");
        test(House::open(AnyStore::Postgres(store), Settings::default()).await).await;
    });
}

/// Those who are no operators, and own nothing of ann's.
pub(crate) async fn strangers(house: &House) -> Vec<(&'static str, String)> {
    vec![
        ("a producer", house.key("eve", &["producer"], &[]).await),
        ("a viewer", house.key("eve", &["viewer"], &[]).await),
        ("a worker", house.key("eve", &["worker"], &["house.other"]).await),
        ("of many roles", house.key("eve", &["producer", "viewer", "moderator"], &[]).await),
    ]
}

pub(crate) fn create(house: &House, key: &str, body: &Json) -> String {
    let made = house.send(Some(key), "POST", "/v1/lifecycles/house.job/records", Some(body));
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["id"].as_str().expect("an id").to_owned()
}
