//! What the engine's tests stand on: small lifecycles of their own beside the shipped `execution`, and each store in turn.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod held;
pub(crate) mod killed;
pub(crate) mod race;
pub(crate) mod receiver;
pub(crate) mod troubled;

use std::time::Duration;

use onceward_core::decide::{Call, Create};
use onceward_core::diagnostic::{File, Files};
use onceward_core::record::{Actor, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_engine::{Answer, Checks, Config, Engine, EngineError, Submission, Wanted};
use onceward_store::{AnyStore, Clock, ListQuery, MemoryStore, PostgresStore, Replay, SqliteStore, Store};
pub(crate) use onceward_testkit::Folder;
use onceward_testkit::postgres::Server;
use onceward_testkit::{user, worker};
use serde_json::{Map, Value as Json};
use tokio::task::JoinHandle;

pub(crate) const JOB: &str = "execution.job";

/// Longer than anything here takes: a test that waits so long has failed.
pub(crate) const LONG: Duration = Duration::from_mins(1);

pub(crate) fn files() -> Files {
    let file = |name: &str, text: &str| File { name: name.to_owned(), text: text.into() };
    let mut files = onceward_testkit::systems::sources("execution");
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
    Files { files }
}

pub(crate) fn start() -> Time {
    "2026-11-15T20:00:00Z".parse().expect("a time as we write them")
}

/// Polling so seldom that only a signal can have helped in time.
pub(crate) fn unpolled() -> Config {
    Config { poll: LONG, ..Config::default() }
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

pub(crate) fn sqlite(folder: &Folder, clock: &Clock) -> AnyStore {
    AnyStore::Sqlite(SqliteStore::open(folder.file(), clock.clone()).expect("the file opens"))
}

pub(crate) async fn open<S: Store + 'static>(store: S, config: Config) -> Engine<S> {
    let engine = Engine::open(store, config);
    engine.define(&files()).await.expect("sound files");
    engine
}

/// The same test on every store, under a clock that the test moves. Whatever it did, the log tells all of it.
#[allow(clippy::needless_pass_by_value, reason = "tests are given as closures, written where they are called")]
pub(crate) fn on_each(config: Config, test: impl AsyncFn(&Engine<AnyStore>, &Clock)) {
    let run = async |store: AnyStore, clock: Clock| {
        let engine = open(store, config.clone()).await;
        test(&engine, &clock).await;
        engine.close().await;
        told_by_its_log(engine.store()).await;
    };
    println!("on memory");
    let clock = Clock::manual(start());
    wait(run(AnyStore::Memory(MemoryStore::new(clock.clone())), clock));
    println!("on SQLite");
    let (clock, folder) = (Clock::manual(start()), Folder::new());
    wait(run(sqlite(&folder, &clock), clock));
    println!("on PostgreSQL");
    let clock = Clock::manual(start());
    wait(async { run(postgres(&Server::shared().database(), &clock).await, clock).await });
}

pub(crate) fn memory() -> MemoryStore {
    MemoryStore::new(Clock::manual(start()))
}

pub(crate) async fn postgres(url: &str, clock: &Clock) -> AnyStore {
    AnyStore::Postgres(PostgresStore::open_with_clock(url, clock.clone()).await.expect("the database opens"))
}

/// The log has no gap, its chain holds, and the records built from it are those that are kept.
pub(crate) async fn told_by_its_log(store: &AnyStore) {
    if store.standing().await.expect("how far it is pruned").checkpoint > 0 {
        // Then only `verify` can tell: see tests/verify/pruned.rs.
        return;
    }
    let log = store.log(0, usize::MAX >> 1).await.expect("the log");
    let mut replay = Replay::new(store.definitions().await.expect("definitions").lifecycles());
    for (place, entry) in (1..).zip(&log) {
        assert_eq!(entry.seq, place, "no gap");
        replay.apply(entry).expect("the chain holds");
    }
    let page = store.list(&ListQuery { limit: usize::MAX >> 1, ..ListQuery::default() }).await.expect("all records");
    assert_eq!(page.records.len(), replay.world.records.len());
    for kept in &page.records {
        let built = replay.world.record(kept.id).expect("it is in the log");
        assert_eq!((kept.version, kept.state, &kept.fields), (built.version, built.state, &built.fields));
        let tokens = |record: &Record| record.execution.as_ref().map(|execution| (execution.token, execution.status));
        assert_eq!(tokens(kept), tokens(built));
    }
}

/// Sees everything.
pub(crate) fn ops() -> Actor {
    onceward_testkit::operator("ops")
}

pub(crate) fn object(json: Json) -> Map<String, Json> {
    match json {
        Json::Object(map) => map,
        other => panic!("{other} is not an object"),
    }
}

pub(crate) fn new_job() -> Submission {
    let fields = Map::new();
    let create = Create { lifecycle: JOB.into(), id: None, owner: None, fields, payload: None };
    Submission::new(&user("ann"), Call::Create(create))
}

pub(crate) async fn job<S: Store + 'static>(engine: &Engine<S>) -> RecordId {
    engine.submit(new_job()).await.expect("a job").subject
}

/// A call that is on its way beside the test.
pub(crate) fn submitting<S: Store + 'static>(
    engine: &Engine<S>,
    submission: Submission,
) -> JoinHandle<Result<Answer, EngineError>> {
    let engine = engine.clone();
    tokio::spawn(async move { engine.submit(submission).await })
}

/// Until so many operations wait for their answer.
pub(crate) async fn until_waiting<S: Store + 'static>(engine: &Engine<S>, operations: usize) {
    while engine.waiting() < operations {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn leased<S: Store + 'static>(engine: &Engine<S>) -> Option<onceward_engine::Leased> {
    engine.lease(&worker("bob"), &Wanted::one(JOB, "w")).await.expect("leasing").pop()
}

pub(crate) async fn state<S: Store + 'static>(engine: &Engine<S>, id: RecordId) -> String {
    engine.get(&ops(), id).await.expect("reading").expect("it is there").state_name().to_string()
}

pub(crate) fn code(reply: &Result<Answer, EngineError>) -> String {
    match reply {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.code().to_owned(),
    }
}

/// Everything decent is fine.
pub(crate) fn decency() -> Checks {
    Checks::default().on("race.note", "decent", |asked| async move {
        let fine = asked.question.arguments["text"] != "rude";
        Ok(object(serde_json::json!({ "fine": fine })))
    })
}
