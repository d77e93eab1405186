//! What a caller is told who asks for what is not there yet, or who shows a key where none is needed.

mod house;

use house::House;
use onceward_server::Settings;
use onceward_store::{AnyStore, Clock, SqliteStore};
use onceward_testkit::Folder;

fn with(test: impl AsyncFn(House)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let folder = Folder::new();
        let store = SqliteStore::open(folder.file(), Clock::machine()).expect("a new file");
        test(House::open(AnyStore::Sqlite(store), Settings::default()).await).await;
    });
}

/// After an older copy of a database was put back, a follower's place may be one that the log has not reached. It must not wait there in
/// silence until it has.
#[test]
fn a_place_beyond_the_log_is_not_followed() {
    with(async |house| {
        let said = house.send(None, "GET", "/v1/stream?after=1000000", None);
        assert_eq!((said.status, said.code().as_str()), (409, "beyond_the_log"));
        let last = said.json()["last"].as_u64().expect("how far it reaches");
        let said = house.send(None, "GET", &format!("/v1/stream?after={last}&wait_ms=0"), None);
        assert_eq!(said.status, 200);
        house.close().await;
    });
}

#[test]
fn the_front_page_names_lifecycles_only_to_who_shows_a_key() {
    with(async |house| {
        let key = house.key("ann", &["viewer"], &[]).await;
        for (key, is_told) in [(None, false), (Some("ow_no_such_key"), false), (Some(key.as_str()), true)] {
            let said = house.send(key, "GET", "/", None);
            assert_eq!((said.status, said.body.contains("house.job")), (200, is_told), "{key:?}");
        }
        house.close().await;
    });
}
