//! Verifies a database while an engine writes.

use std::sync::Arc;

use onceward_core::decide::{Call, CreateRecord};
use onceward_engine::{Engine, EngineConfig, LeaseRequest, Submission};
use onceward_store::{Clock, SqliteScanner, SqliteStore, StoreError};
use onceward_testkit::{user, worker};
use serde_json::{Map, json};
use tokio::sync::Semaphore;

use crate::support::{TempDir, suite_files};
use crate::test_database::verify_store;

/// Rounds of work during one verification. Without a bound the log would grow faster than it is read.
const ROUNDS_PER_VERIFY: usize = 60;

/// Creates, leases, heartbeats and commits jobs, one round per permit.
pub(crate) async fn run_jobs(engine: Arc<Engine<SqliteStore>>, granted: Arc<Semaphore>) {
    let (ann, bob) = (user("ann"), worker("bob"));
    for round in 0.. {
        let Ok(grant) = granted.acquire().await else { return };
        grant.forget();
        let new = |number: i64| {
            let lane = ["a", "b", "c"].get(usize::try_from(number % 5).unwrap_or(0));
            let mut fields = Map::new();
            fields.insert("lane".to_owned(), json!(lane));
            fields.insert("weight".to_owned(), json!((number + round) % 4));
            let create = CreateRecord { lifecycle: "suite.task".into(), id: None, owner: None, fields, payload: None };
            Submission::new(&ann, Call::Create(create))
        };
        for reply in engine.submit_all((0..10).map(new).collect()).await.expect("the queue has capacity") {
            reply.expect("a job");
        }
        let wanted = LeaseRequest { max_jobs: 8, ..LeaseRequest::single_job("suite.task", "w") };
        for (number, leased) in (0..).zip(engine.lease(&bob, &wanted).await.expect("leasing")) {
            let (id, token) = (leased.record.id, leased.token);
            engine.heartbeat(&bob, id, token).await.expect("alive");
            if number % 4 == 0 {
                continue;
            }
            engine.commit(&bob, id, token, json!({ "number": number }), number % 2 == 0).await.expect("committed");
        }
    }
}

/// Starts an engine on a new file, with its own threads.
pub(crate) fn start_engine(folder: &TempDir, clock: &Clock) -> (tokio::runtime::Runtime, Arc<Engine<SqliteStore>>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    let store = SqliteStore::open(folder.database_path(), clock.clone()).expect("a new file");
    let engine = runtime.block_on(async {
        let engine = Engine::open(store, EngineConfig::default());
        engine.put_lifecycles(&suite_files()).await.expect("valid files");
        engine
    });
    (runtime, Arc::new(engine))
}

/// INV-4
#[test]
fn verify_is_clean_while_engine_writes() {
    let (folder, clock) = (TempDir::new(), Clock::machine());
    let (runtime, engine) = start_engine(&folder, &clock);
    let granted = Arc::new(Semaphore::new(0));
    let working = runtime.spawn(run_jobs(Arc::clone(&engine), Arc::clone(&granted)));
    let (mut first, mut last) = (None, 0);
    for _ in 0..6 {
        granted.add_permits(ROUNDS_PER_VERIFY);
        let view = SqliteScanner::open(folder.database_path()).expect("it opens beside the engine");
        let report = verify_store(&view, clock.now());
        assert!(report.is_clean(), "{report:#?}");
        println!("{} entries, {} rows, {} changed while read", report.seq, report.rows, report.changed_while_read);
        first.get_or_insert(report.seq);
        last = report.seq;
    }
    assert!(Some(last) > first, "the log grew during verification");
    granted.close();
    runtime.block_on(working).expect("the work ends");
    runtime.block_on(engine.close());
    let report = verify_store(&SqliteScanner::open(folder.database_path()).expect("it opens"), clock.now());
    assert!(report.is_clean() && report.changed_while_read == 0, "{report:#?}");
}

#[test]
fn scanner_rejects_missing_and_foreign_files() {
    let folder = TempDir::new();
    assert!(SqliteScanner::open(folder.database_path()).is_err());
    assert!(!folder.database_path().exists(), "opening a missing database creates no file");
    rusqlite::Connection::open(folder.database_path()).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    assert!(matches!(SqliteScanner::open(folder.database_path()), Err(StoreError::ForeignDatabase(_))));
}
