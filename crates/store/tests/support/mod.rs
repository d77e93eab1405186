//! Common lifecycles and helpers for store tests.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod driver;
pub(crate) mod growing_database;

use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::time::Time;
use onceward_store::{AnyStore, Clock, MemoryStore, PostgresStore, SqliteStore};
pub(crate) use onceward_testkit::TempDir;
use onceward_testkit::postgres::PostgresServer;

pub(crate) fn suite_files() -> InputFiles {
    let file = |name: &str, text: &str| InputFile { name: name.to_owned(), text: text.into() };
    InputFiles {
        files: vec![
            file("box.toml", include_str!("box.toml")),
            file("step.toml", include_str!("step.toml")),
            file("stub.toml", include_str!("stub.toml")),
            file("task.toml", include_str!("task.toml")),
        ],
    }
}

/// The suite's lifecycles in a later version. Tasks have other state and field names, another lane limit and the
/// reverse weight. Boxes have lost a reference field.
pub(crate) fn migrated_suite_files() -> InputFiles {
    let mut files = suite_files();
    for file in &mut files.files {
        file.text = file
            .text
            .replace("waiting = {", "queued  = {")
            .replace("waiting", "queued")
            .replace("limit = 2", "limit = 1")
            .replace("weight  = {", "more    = { type = \"string\", default = \"yes\" }\nweight  = {")
            .replace(
                "type = \"int\", default = 0 }\nreadyAt",
                "type = \"int\", default = 0, min = -1000, max = 1000 }\nreadyAt",
            )
            .replace("priority = \"record.weight\"", "priority = \"0 - record.weight\"")
            .replace("beside  = { type = \"ref\", to = \"suite.box\", optional = true }\n", "")
            .replace("\"beside\", ", "")
            .into();
    }
    files
}

/// Returns the lifecycle files of a shipped system.
pub(crate) fn system_files(name: &str) -> InputFiles {
    InputFiles { files: onceward_testkit::systems::source_files(name) }
}

/// Returns the time at which every test begins.
pub(crate) fn start_time() -> Time {
    "2026-11-15T20:00:00Z".parse().expect("a valid time")
}

/// Runs a future on a new single-threaded runtime.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// Runs a test on every store.
#[allow(clippy::needless_pass_by_value, reason = "callers pass closures")]
pub(crate) fn on_each_store(test: impl AsyncFn(&AnyStore, &Clock)) {
    let clock = Clock::manual(start_time());
    println!("on memory");
    block_on(test(&AnyStore::Memory(MemoryStore::new(clock.clone())), &clock));
    println!("on SQLite");
    let (clock, folder) = (Clock::manual(start_time()), TempDir::new());
    let store = SqliteStore::open(folder.database_path(), clock.clone()).expect("a new file");
    block_on(test(&AnyStore::Sqlite(store), &clock));
    println!("on PostgreSQL");
    let clock = Clock::manual(start_time());
    block_on(async { test(&new_postgres_store(&clock).await, &clock).await });
}

/// Creates a new database on a real server.
pub(crate) async fn new_postgres_store(clock: &Clock) -> AnyStore {
    let url = PostgresServer::shared().create_database();
    AnyStore::Postgres(PostgresStore::open_with_clock(&url, clock.clone()).await.expect("a new database"))
}
