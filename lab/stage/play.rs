//! The real engine on each store in turn, under a clock that the test moves.

use std::path::Path;

use onceward_core::decide::Call;
use onceward_core::diagnostic::{File, Files};
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_engine::{Config, Engine, Leased, Submission, Wanted};
use onceward_store::{AnyStore, Clock, MemoryStore, PostgresStore, SqliteStore, Store as _, StoreError};
use onceward_testkit::postgres::Server;
use onceward_testkit::{Folder, user, worker};
use serde_json::{Map, Value as Json, json};

use super::process::alone;
use crate::outside;

/// Longer than anything here takes: who waits so long has failed.
pub(crate) const LONG: std::time::Duration = std::time::Duration::from_mins(1);

/// The shipped `execution`, and lifecycles of the lab's own.
fn files() -> Files {
    let file = |name: &str, text: &str| File { name: name.to_owned(), text: text.into() };
    let mut files = onceward_testkit::systems::sources("execution");
    files.push(file("alarm.toml", include_str!("../lifecycles/alarm.toml")));
    files.push(file("charge.toml", include_str!("../lifecycles/charge.toml")));
    files.push(file("lane.toml", include_str!("../lifecycles/lane.toml")));
    files.push(file("seat.toml", include_str!("../lifecycles/seat.toml")));
    Files { files }
}

/// So many seconds after the beginning of every play.
pub(crate) fn time(seconds: i64) -> Time {
    let start: Time = "2026-11-16T03:00:00Z".parse().expect("a time as we write them");
    start.checked_add(Duration::from_secs(seconds)).expect("a time that there is")
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// A database file, new or found.
pub(crate) fn sqlite(file: &Path, clock: &Clock) -> Result<SqliteStore, StoreError> {
    alone(|| SqliteStore::open(file, clock.clone()))
}

/// An engine and its clock.
pub(crate) struct Play {
    pub(crate) engine: Engine<AnyStore>,
    clock: Clock,
}

/// The same play on every store.
#[allow(clippy::needless_pass_by_value, reason = "tests are given as closures, written where they are called")]
pub(crate) fn on_each(test: impl AsyncFn(&Play)) {
    println!("on memory");
    let clock = Clock::manual(time(0));
    wait(async {
        let play = Play::open(AnyStore::Memory(MemoryStore::new(clock.clone())), &clock).await;
        test(&play).await;
        play.engine.close().await;
    });
    on_postgres(async |play, _| test(play).await);
    on_sqlite(test);
}

/// A play on a new database of a real server, and its URL.
#[allow(clippy::needless_pass_by_value, reason = "tests are given as closures, written where they are called")]
pub(crate) fn on_postgres(test: impl AsyncFn(&Play, &str)) {
    println!("on PostgreSQL");
    on_server(alone(Server::shared), test);
}

/// The same on a server that the test knows.
#[allow(clippy::needless_pass_by_value, reason = "tests are given as closures, written where they are called")]
pub(crate) fn on_server<T>(server: &Server, test: impl AsyncFn(&Play, &str) -> T) -> T {
    let url = alone(|| server.database());
    wait(async {
        let clock = Clock::manual(time(0));
        let store = PostgresStore::open_with_clock(&url, clock.clone()).await.expect("a new database");
        let play = Play::open(AnyStore::Postgres(store), &clock).await;
        let shown = test(&play, &url).await;
        play.engine.close().await;
        shown
    })
}

/// A play on a database file.
#[allow(clippy::needless_pass_by_value, reason = "tests are given as closures, written where they are called")]
pub(crate) fn on_sqlite(test: impl AsyncFn(&Play)) {
    println!("on SQLite");
    let folder = Folder::new();
    wait(async {
        let play = Play::open_file(&folder, 0).await;
        test(&play).await;
        play.engine.close().await;
    });
}

impl Play {
    async fn open(store: AnyStore, clock: &Clock) -> Self {
        // Nobody polls: what happens was caused by the test.
        let engine = Engine::open(store, Config { poll: LONG, checks: outside::checks(), ..Config::default() });
        engine.define(&files()).await.expect("lifecycles that compile");
        Self { engine, clock: clock.clone() }
    }

    /// On a file, new or found, when the clock says so.
    pub(crate) async fn open_file(folder: &Folder, seconds: i64) -> Self {
        let clock = Clock::manual(time(seconds));
        let store = sqlite(&folder.file(), &clock).expect("the file opens");
        Self::open(AnyStore::Sqlite(store), &clock).await
    }

    /// A second engine on the same store.
    pub(crate) fn beside(&self) -> Self {
        let engine = Engine::open(self.engine.store().clone(), Config { poll: LONG, ..Config::default() });
        Self { engine, clock: self.clock.clone() }
    }

    pub(crate) fn store(&self) -> &AnyStore {
        self.engine.store()
    }

    /// The clock is set, wherever it stood.
    pub(crate) fn at(&self, seconds: i64) {
        self.clock.set(time(seconds));
    }

    pub(crate) async fn create(&self, lifecycle: &str, fields: Json) -> RecordId {
        let Json::Object(fields) = fields else { panic!("fields are an object") };
        self.engine.create(&user("ann"), lifecycle, fields).await.expect("a record").subject
    }

    pub(crate) async fn charge(&self) -> RecordId {
        self.create("lab.charge", json!({})).await
    }

    /// One job for this worker, for so many seconds.
    pub(crate) async fn lease(&self, who: &str, lifecycle: &str, seconds: i64) -> Option<Leased> {
        let lease = Some(Duration::from_secs(seconds));
        let wanted = Wanted { lease, ..Wanted::one(lifecycle, who) };
        self.engine.lease(&worker(who), &wanted).await.expect("leasing").pop()
    }

    /// Commit without finishing: what it was told, `ok` or the refusal's code.
    pub(crate) async fn commit(&self, who: &str, held: &Leased, result: &str) -> String {
        self.report(
            who,
            Call::Commit { record: held.record.id, token: held.token, result: json!(result), finish: false },
        )
        .await
    }

    pub(crate) async fn heartbeat(&self, who: &str, held: &Leased) -> String {
        self.report(who, Call::Heartbeat { record: held.record.id, token: held.token, lease: None }).await
    }

    pub(crate) async fn report(&self, who: &str, call: Call) -> String {
        match self.engine.submit(Submission::new(&worker(who), call)).await {
            Ok(_) => "ok".to_owned(),
            Err(error) => error.refusal().map_or_else(|| error.to_string(), |refusal| refusal.code.to_string()),
        }
    }

    /// Its state, after all that is due on it was done.
    pub(crate) async fn state(&self, id: RecordId) -> String {
        self.engine.get(&user("ann"), id).await.expect("reading").expect("it is there").state_name().to_string()
    }

    /// The result that landed.
    pub(crate) async fn landed(&self, id: RecordId) -> Option<Json> {
        self.store().effect(id).await.expect("reading").map(|effect| effect.result)
    }
}

/// No fields.
pub(crate) fn nothing() -> Json {
    Json::Object(Map::new())
}
