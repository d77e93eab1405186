//! Tests `onceward clock` against a server whose log is ahead of the clock.

mod support;

use onceward_core::time::{Duration, Time};
use onceward_engine::{Engine, EngineConfig};
use onceward_store::{Clock, SqliteStore};
use serde_json::{Value, json};
use support::{create_test_folder, database_with_notes, run_onceward, start_server, utf8};

#[test]
fn operator_accepts_the_clock_after_a_step_back() {
    let folder = create_test_folder("clock_accept");
    drop(database_with_notes(&folder));
    let year = Duration::from_secs(365 * 86_400);
    let ahead: Time = Clock::machine().now().checked_add(year).expect("a time");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("tokio runtime");
    runtime.block_on(async {
        let store = SqliteStore::open(folder.join("onceward.db"), Clock::manual(ahead)).expect("the database");
        let engine = Engine::open(store, EngineConfig::default());
        let fields = serde_json::Map::from_iter([("text".to_owned(), json!("late"))]);
        let ann = onceward_core::record::Actor::new("ann", &["producer"]);
        engine.create(&ann, "desk.note", fields).await.expect("note");
        engine.close().await;
    });

    let server = start_server(&folder, &[], &[]);
    let url = server.url();
    let clock = |verb: &str| {
        let done = run_onceward(&folder, &["clock", verb, "--json", "--server", &url]);
        let reply: Value = serde_json::from_str(&utf8(&done.stdout)).expect("JSON");
        (done.status.code(), reply)
    };
    let (code, held) = clock("status");
    assert_eq!((code, &held["hold"]["needs_operator"]), (Some(1), &json!(true)), "{held}");
    let shown = utf8(&run_onceward(&folder, &["clock", "status", "--server", &url]).stdout);
    assert!(shown.contains("keeps its own time") && shown.contains("onceward clock accept"), "{shown}");
    let pruned = run_onceward(&folder, &["prune", "--older-than", "1s", "--server", &url]);
    assert_eq!(pruned.status.code(), Some(1));
    assert!(utf8(&pruned.stderr).contains("clock_held"), "{}", utf8(&pruned.stderr));

    let (code, accepted) = clock("accept");
    assert_eq!((code, &accepted["hold"]), (Some(0), &Value::Null), "{accepted}");
    let (code, refused) = clock("accept");
    assert_eq!((code, &refused["error"]["code"]), (Some(1), &json!("clock_not_held")), "{refused}");
}
