//! Runs a test with the real engine on each store, with a manual clock.

use std::path::Path;

use onceward_core::decide::Call;
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_engine::{Engine, EngineConfig, LeaseRequest, LeasedJob, Submission};
use onceward_store::{AnyStore, Clock, MemoryStore, PostgresStore, SqliteStore, Store as _, StoreError};
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::{TempDir, user, worker};
use serde_json::{Map, Value as Json, json};

use super::process::with_spawn_lock;
use crate::outside;

/// Longer than any step takes, so a timeout means failure.
pub(crate) const WAIT_TIMEOUT: std::time::Duration = std::time::Duration::from_mins(1);

/// Returns the shipped `execution` files and the lab's own lifecycles.
fn lifecycle_files() -> InputFiles {
    let file = |name: &str, text: &str| InputFile { name: name.to_owned(), text: text.into() };
    let mut files = onceward_testkit::systems::source_files("execution");
    files.push(file("alarm.toml", include_str!("../lifecycles/alarm.toml")));
    files.push(file("charge.toml", include_str!("../lifecycles/charge.toml")));
    files.push(file("lane.toml", include_str!("../lifecycles/lane.toml")));
    files.push(file("seat.toml", include_str!("../lifecycles/seat.toml")));
    InputFiles { files }
}

/// Returns the time `seconds` after the start of every test.
pub(crate) fn time_at(seconds: i64) -> Time {
    let start: Time = "2026-11-16T03:00:00Z".parse().expect("timestamp is valid");
    start.checked_add(Duration::from_secs(seconds)).expect("time is in range")
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// Opens a database file, or creates it.
pub(crate) fn open_sqlite(file: &Path, clock: &Clock) -> Result<SqliteStore, StoreError> {
    with_spawn_lock(|| SqliteStore::open(file, clock.clone()))
}

/// An engine and its clock.
pub(crate) struct LabEngine {
    pub(crate) engine: Engine<AnyStore>,
    clock: Clock,
}

/// Runs the test on every store.
#[allow(clippy::needless_pass_by_value, reason = "every caller passes a closure")]
pub(crate) fn on_each_store(test: impl AsyncFn(&LabEngine)) {
    println!("on memory");
    let clock = Clock::manual(time_at(0));
    block_on(async {
        let lab = LabEngine::open(AnyStore::Memory(MemoryStore::new(clock.clone())), &clock).await;
        test(&lab).await;
        lab.engine.close().await;
    });
    on_postgres(async |lab, _| test(lab).await);
    on_sqlite(test);
}

/// Runs the test on a new PostgreSQL database, and passes its URL.
#[allow(clippy::needless_pass_by_value, reason = "every caller passes a closure")]
pub(crate) fn on_postgres(test: impl AsyncFn(&LabEngine, &str)) {
    println!("on PostgreSQL");
    on_server(with_spawn_lock(PostgresServer::shared), test);
}

/// Like [`on_postgres`], but on a given server.
#[allow(clippy::needless_pass_by_value, reason = "every caller passes a closure")]
pub(crate) fn on_server<T>(server: &PostgresServer, test: impl AsyncFn(&LabEngine, &str) -> T) -> T {
    let url = with_spawn_lock(|| server.create_database());
    block_on(async {
        let clock = Clock::manual(time_at(0));
        let store = PostgresStore::open_with_clock(&url, clock.clone()).await.expect("a new database");
        let lab = LabEngine::open(AnyStore::Postgres(store), &clock).await;
        let result = test(&lab, &url).await;
        lab.engine.close().await;
        result
    })
}

/// Runs the test on a database file.
#[allow(clippy::needless_pass_by_value, reason = "every caller passes a closure")]
pub(crate) fn on_sqlite(test: impl AsyncFn(&LabEngine)) {
    println!("on SQLite");
    let folder = TempDir::new();
    block_on(async {
        let lab = LabEngine::open_file(&folder, 0).await;
        test(&lab).await;
        lab.engine.close().await;
    });
}

impl LabEngine {
    async fn open(store: AnyStore, clock: &Clock) -> Self {
        // A long poll interval, so that only the test wakes the engine.
        let engine = Engine::open(
            store,
            EngineConfig { poll_interval: WAIT_TIMEOUT, checks: outside::checks(), ..EngineConfig::default() },
        );
        engine.put_lifecycles(&lifecycle_files()).await.expect("valid lifecycles");
        Self { engine, clock: clock.clone() }
    }

    /// Opens or creates a file with the clock at `seconds`.
    pub(crate) async fn open_file(folder: &TempDir, seconds: i64) -> Self {
        let clock = Clock::manual(time_at(seconds));
        let store = open_sqlite(&folder.database_path(), &clock).expect("the file opens");
        Self::open(AnyStore::Sqlite(store), &clock).await
    }

    /// Opens a second engine on the same store.
    pub(crate) fn second_engine(&self) -> Self {
        let engine = Engine::open(
            self.engine.store().clone(),
            EngineConfig { poll_interval: WAIT_TIMEOUT, ..EngineConfig::default() },
        );
        Self { engine, clock: self.clock.clone() }
    }

    pub(crate) fn store(&self) -> &AnyStore {
        self.engine.store()
    }

    /// Sets the clock, forward or back.
    pub(crate) fn set_clock(&self, seconds: i64) {
        self.clock.set(time_at(seconds));
    }

    pub(crate) async fn create(&self, lifecycle: &str, fields: Json) -> RecordId {
        let Json::Object(fields) = fields else { panic!("fields are an object") };
        self.engine.create(&user("ann"), lifecycle, fields).await.expect("a record").subject
    }

    pub(crate) async fn create_charge(&self) -> RecordId {
        self.create("lab.charge", json!({})).await
    }

    /// Leases one job for `seconds`.
    pub(crate) async fn lease(&self, worker_name: &str, lifecycle: &str, seconds: i64) -> Option<LeasedJob> {
        let lease = Some(Duration::from_secs(seconds));
        let lease_request = LeaseRequest { lease_duration: lease, ..LeaseRequest::single_job(lifecycle, worker_name) };
        self.engine.lease(&worker(worker_name), &lease_request).await.expect("leasing").pop()
    }

    /// Commits without finishing. Returns `ok` or the refusal's code.
    pub(crate) async fn commit(&self, worker_name: &str, held: &LeasedJob, result: &str) -> String {
        self.report(
            worker_name,
            Call::Commit { record: held.record.id, token: held.token, result: json!(result), finish: false },
        )
        .await
    }

    pub(crate) async fn heartbeat(&self, worker_name: &str, held: &LeasedJob) -> String {
        self.report(worker_name, Call::Heartbeat { record: held.record.id, token: held.token, lease: None }).await
    }

    pub(crate) async fn report(&self, worker_name: &str, call: Call) -> String {
        match self.engine.submit(Submission::new(&worker(worker_name), call)).await {
            Ok(_) => "ok".to_owned(),
            Err(error) => error.refusal().map_or_else(|| error.to_string(), |refusal| refusal.code.to_string()),
        }
    }

    /// Returns the state after the engine has fired all due events of the record.
    pub(crate) async fn state(&self, id: RecordId) -> String {
        self.engine.get(&user("ann"), id).await.expect("reading").expect("record exists").state_name().to_string()
    }

    /// Returns the committed result.
    pub(crate) async fn committed_result(&self, id: RecordId) -> Option<Json> {
        self.store().effect(id).await.expect("reading").map(|effect| effect.result)
    }
}

pub(crate) fn empty_fields() -> Json {
    Json::Object(Map::new())
}
