//! Support for the engine's tests: small lifecycles, the shipped `execution`, and each store in turn.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod crash;
pub(crate) mod faulty_store;
pub(crate) mod held_checks;
pub(crate) mod http_receiver;
pub(crate) mod race;

use std::time::Duration;

use onceward_core::decide::{Call, CreateRecord};
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::record::{Actor, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_engine::{CheckRegistry, Engine, EngineConfig, EngineError, LeaseRequest, Receipt, Submission};
use onceward_store::{AnyStore, Clock, ListQuery, LogReplay, MemoryStore, PostgresStore, SqliteStore, Store};
pub(crate) use onceward_testkit::TempDir;
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::{user, worker};
use serde_json::{Map, Value as Json};
use tokio::task::JoinHandle;

pub(crate) const JOB_LIFECYCLE: &str = "execution.job";

/// Longer than any step takes: after it the test fails.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) fn lifecycle_files() -> InputFiles {
    let file = |name: &str, text: &str| InputFile { name: name.to_owned(), text: text.into() };
    let mut files = onceward_testkit::systems::source_files("execution");
    files.push(file("board.toml", include_str!("board.toml")));
    files.push(file("pinned.toml", include_str!("pinned.toml")));
    files.push(file("errand.toml", include_str!("errand.toml")));
    files.push(file("letter.toml", include_str!("letter.toml")));
    files.push(file("prize.toml", include_str!("prize.toml")));
    files.push(file("entry.toml", include_str!("entry.toml")));
    files.push(file("lane.toml", include_str!("lane.toml")));
    files.push(file("chain.toml", include_str!("chain.toml")));
    files.push(file("ranked.toml", include_str!("ranked.toml")));
    files.push(file("bell.toml", include_str!("bell.toml")));
    files.push(file("note.toml", include_str!("note.toml")));
    InputFiles { files }
}

pub(crate) fn start_time() -> Time {
    "2026-11-15T20:00:00Z".parse().expect("a valid time")
}

/// Polls so rarely that only a notification can be in time.
pub(crate) fn config_without_polling() -> EngineConfig {
    EngineConfig { poll_interval: TEST_TIMEOUT, ..EngineConfig::default() }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

pub(crate) fn open_sqlite(folder: &TempDir, clock: &Clock) -> AnyStore {
    AnyStore::Sqlite(SqliteStore::open(folder.database_path(), clock.clone()).expect("the file opens"))
}

pub(crate) async fn open_engine<S: Store + 'static>(store: S, config: EngineConfig) -> Engine<S> {
    let engine = Engine::open(store, config);
    engine.put_lifecycles(&lifecycle_files()).await.expect("valid files");
    engine
}

/// Runs a test on every store, with a manual clock. Afterwards the log must replay.
#[allow(clippy::needless_pass_by_value, reason = "callers pass closures")]
pub(crate) fn on_each_store(config: EngineConfig, test: impl AsyncFn(&Engine<AnyStore>, &Clock)) {
    let run = async |store: AnyStore, clock: Clock| {
        let engine = open_engine(store, config.clone()).await;
        test(&engine, &clock).await;
        engine.close().await;
        assert_replays_from_log(engine.store()).await;
    };
    println!("on memory");
    let clock = Clock::manual(start_time());
    block_on(run(AnyStore::Memory(MemoryStore::new(clock.clone())), clock));
    println!("on SQLite");
    let (clock, folder) = (Clock::manual(start_time()), TempDir::new());
    block_on(run(open_sqlite(&folder, &clock), clock));
    println!("on PostgreSQL");
    let clock = Clock::manual(start_time());
    block_on(async { run(open_postgres(&PostgresServer::shared().create_database(), &clock).await, clock).await });
}

pub(crate) fn memory_store() -> MemoryStore {
    MemoryStore::new(Clock::manual(start_time()))
}

pub(crate) async fn open_postgres(url: &str, clock: &Clock) -> AnyStore {
    AnyStore::Postgres(PostgresStore::open_with_clock(url, clock.clone()).await.expect("the database opens"))
}

/// Asserts that the log has no gap, that its hash chain holds, and that it replays to the stored records.
pub(crate) async fn assert_replays_from_log(store: &AnyStore) {
    if store.prune_state().await.expect("the prune state").checkpoint_seq > 0 {
        // A pruned log needs `verify`: see tests/verify/pruned_databases.rs.
        return;
    }
    let log = store.log(0, usize::MAX >> 1).await.expect("the log");
    let mut replay = LogReplay::new(store.catalog().await.expect("definitions").lifecycles());
    for (seq, entry) in (1..).zip(&log) {
        assert_eq!(entry.seq, seq, "the log has no gap");
        replay.apply(entry).expect("the hash chain is intact");
    }
    let page = store.list(&ListQuery { limit: usize::MAX >> 1, ..ListQuery::default() }).await.expect("all records");
    assert_eq!(page.records.len(), replay.snapshot.records.len());
    for stored in &page.records {
        let built = replay.snapshot.record(stored.id).expect("a stored record is in the log");
        assert_eq!((stored.version, stored.state, &stored.fields), (built.version, built.state, &built.fields));
        let tokens = |record: &Record| record.execution.as_ref().map(|execution| (execution.token, execution.status));
        assert_eq!(tokens(stored), tokens(built));
    }
}

/// An actor that sees everything.
pub(crate) fn operator_actor() -> Actor {
    onceward_testkit::operator("ops")
}

pub(crate) fn json_object(json: Json) -> Map<String, Json> {
    match json {
        Json::Object(map) => map,
        other => panic!("{other} is not an object"),
    }
}

pub(crate) fn new_job_submission() -> Submission {
    let fields = Map::new();
    let create = CreateRecord { lifecycle: JOB_LIFECYCLE.into(), id: None, owner: None, fields, payload: None };
    Submission::new(&user("ann"), Call::Create(create))
}

pub(crate) async fn create_job<S: Store + 'static>(engine: &Engine<S>) -> RecordId {
    engine.submit(new_job_submission()).await.expect("a job").subject
}

/// Submits in a task.
pub(crate) fn spawn_submit<S: Store + 'static>(
    engine: &Engine<S>,
    submission: Submission,
) -> JoinHandle<Result<Receipt, EngineError>> {
    let engine = engine.clone();
    tokio::spawn(async move { engine.submit(submission).await })
}

pub(crate) async fn wait_until_queued<S: Store + 'static>(engine: &Engine<S>, operations: usize) {
    while engine.queued_operations() < operations {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn lease_one<S: Store + 'static>(engine: &Engine<S>) -> Option<onceward_engine::LeasedJob> {
    engine.lease(&worker("bob"), &LeaseRequest::single_job(JOB_LIFECYCLE, "w")).await.expect("leasing").pop()
}

pub(crate) async fn state_of<S: Store + 'static>(engine: &Engine<S>, id: RecordId) -> String {
    engine.get(&operator_actor(), id).await.expect("reading").expect("it exists").state_name().to_string()
}

pub(crate) fn reply_code(reply: &Result<Receipt, EngineError>) -> String {
    match reply {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.code().to_owned(),
    }
}

/// Checks that approve decent text.
pub(crate) fn decency_checks() -> CheckRegistry {
    CheckRegistry::default().register("race.note", "decent", |request| async move {
        let fine = request.query.arguments["text"] != "rude";
        Ok(json_object(serde_json::json!({ "fine": fine })))
    })
}
