//! Databases filled by random operations.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onceward_core::decide::{Call, FailureReport, Operation, RecordMigration};
use onceward_core::diagnostic::InputFiles;
use onceward_core::record::{Actor, PayloadRef};
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_engine::{VerifyReport, verify};
use onceward_store::scan::Scan;
use onceward_store::{
    ApiKey, ApiKeyEdit, ApiKeySaveResult, Clock, IdempotencyId, IdempotencyRecord, PayloadBytes, SaveResult,
    SqliteScanner, SqliteStore, Store, WebhookSecret, WebhookSecrets, WorkerName, WorkerSighting,
};
use onceward_testkit::random::{Rng, Simulation};
use onceward_testkit::{operator, user, worker};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::scripted_systems::play_relay;
use crate::support::driver::{StoreDriver, fire_call};
use crate::support::{TempDir, block_on, start_time, suite_files, system_files};

pub(crate) const SYSTEM_NAMES: [&str; 5] = ["execution", "document", "image", "relay", "mesh"];

/// A database in its own folder.
pub(crate) struct TestDatabase {
    folder: TempDir,
    pub(crate) latest_time: Time,
}

impl TestDatabase {
    /// Fills it with random operations of all five systems and of the store test suite.
    pub(crate) fn new(seed: u64, operations: usize) -> Self {
        let built = Self { folder: TempDir::new(), latest_time: Time::MIN };
        let store = SqliteStore::open(built.path(), Clock::manual(start_time())).expect("a new file");
        let latest = block_on(fill_randomly(&store, seed, operations));
        Self { latest_time: latest, ..built }
    }

    /// Fills it with a function that returns the latest time.
    pub(crate) fn filled_by(fill: impl FnOnce(&SqliteStore, &Clock) -> Time) -> Self {
        let built = Self { folder: TempDir::new(), latest_time: Time::MIN };
        let clock = Clock::manual(start_time());
        let store = SqliteStore::open(built.path(), clock.clone()).expect("a new file");
        let latest = fill(&store, &clock);
        Self { latest_time: latest, ..built }
    }

    /// Fills it with these operations on these files.
    pub(crate) fn from_operations(files: &InputFiles, operations: &[(Operation, Time)], seed: u64) -> Self {
        let built = Self { folder: TempDir::new(), latest_time: Time::MIN };
        let store = SqliteStore::open(built.path(), Clock::manual(start_time())).expect("a new file");
        let latest = block_on(async {
            store.put_lifecycles(files).await.expect("valid files");
            save_operations(&store, operations, seed).await
        });
        Self { latest_time: latest, ..built }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.database_path()
    }

    /// Returns a copy to damage.
    pub(crate) fn copy(&self) -> DatabaseCopy {
        let folder = TempDir::new();
        std::fs::copy(self.path(), folder.database_path()).expect("a copy");
        DatabaseCopy { folder, latest_time: self.latest_time }
    }
}

pub(crate) struct DatabaseCopy {
    folder: TempDir,
    latest_time: Time,
}

impl DatabaseCopy {
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.database_path()
    }

    /// Opens a raw connection, to write what no engine would.
    pub(crate) fn connection(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.path()).expect("the copy opens");
        connection.execute_batch("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF").expect("pragmas");
        connection
    }

    pub(crate) fn verify(&self) -> VerifyReport {
        verify_file(&self.path(), self.latest_time)
    }
}

pub(crate) fn verify_file(path: &Path, now: Time) -> VerifyReport {
    let view = SqliteScanner::open(path).expect("it can be opened");
    verify_store(&view, now)
}

pub(crate) fn verify_store<S: Scan>(store: &S, now: Time) -> VerifyReport {
    block_on(verify(store, now, &mut ())).expect("the read succeeds")
}

/// Saves random operations in batches of random sizes; returns the latest time.
pub(crate) async fn fill_randomly<S: Store>(store: &S, seed: u64, operations: usize) -> Time {
    let mut files: Vec<InputFiles> = SYSTEM_NAMES.iter().map(|name| system_files(name)).collect();
    files.push(suite_files());
    for files in &files {
        store.put_lifecycles(files).await.expect("valid files");
    }
    let latest = fill_every_table(store).await.max(save_operations(store, &play_relay(), seed).await);
    let plays =
        (0..).zip(&files).map(|(number, files)| random_operations(files, seed.wrapping_add(number), operations));
    // Each system separately: in one mixed simulation most operations would be refused.
    let operations: Vec<(Operation, Time)> = plays.flatten().collect();
    latest.max(save_operations(store, &operations, seed).await)
}

/// Saves operations in batches of random sizes; returns the latest time.
pub(crate) async fn save_operations<S: Store>(store: &S, operations: &[(Operation, Time)], seed: u64) -> Time {
    let mut latest = Time::MIN;
    let mut rng = Rng::new(!seed);
    let mut left = operations;
    while !left.is_empty() {
        let (batch, rest) = left.split_at((1 + rng.below(9)).min(left.len()));
        left = rest;
        let driver = StoreDriver::new(store).await;
        let mut open = driver.new_batch(batch[0].1);
        for (operation, time) in batch {
            latest = latest.max(*time);
            driver.decide(&mut open, operation.clone(), *time).await;
            let Some(write) = open.batch.operations.last_mut() else { continue };
            if rng.percent(20) && write.idempotency.is_none() {
                let bytes: Arc<[u8]> = format!("content {:x}", operation.seed).into_bytes().into();
                let payload = PayloadRef { sha256: Sha256::digest(&bytes).into(), bytes: 1 };
                write.payloads.push(PayloadBytes { payload, bytes });
                let name = IdempotencyId {
                    owner: "ann".into(),
                    idempotency_key: format!("request {:x}", operation.seed).into(),
                };
                write.idempotency =
                    Some(IdempotencyRecord { id: name, request_digest: [7; 32], reply: "\"yes\"".into() });
            }
        }
        let save = driver.save(&open).await;
        assert!(matches!(save, SaveResult::Saved { .. }), "the save conflicts without another writer: {save:?}");
    }
    latest
}

/// Adds by hand what random operations rarely leave: rows in every table, and every kind of execution.
pub(crate) async fn fill_every_table<S: Store>(store: &S) -> Time {
    let mut driver = StoreDriver::new(store).await;
    let (ann, bob, now) = (user("ann"), worker("bob"), start_time());
    let first = driver.create_record(&ann, "suite.box", json!({ "name": "first", "number": 1 }), now).await;
    let beside = json!({ "name": "second", "beside": first.to_string(), "others": [first.to_string()] });
    let second = driver.create_record(&ann, "suite.box", beside, now).await;
    driver.expect_taken(&ann, fire_call(second, "write", json!({ "others": [] })), now).await;
    driver.expect_taken(&ann, fire_call(first, "earn", json!({ "amount": 50 })), now).await;
    driver.expect_taken(&ann, fire_call(first, "spend", json!({ "amount": 20 })), now).await;
    let closing = json!({ "closing": "2030-01-01T00:00:00Z" });
    driver.create_record(&ann, "suite.box", closing, now).await;
    let mut tasks = Vec::new();
    for weight in 0..6 {
        let fields = json!({ "lane": "a", "weight": weight, "box": first.to_string() });
        tasks.push(driver.create_record(&ann, "suite.task", fields, now).await);
    }
    driver.create_record(&ann, "suite.task", json!({ "weight": 3 }), now).await;
    driver.expect_refused(&user("eve"), fire_call(first, "earn", json!({ "amount": 1 })), now).await;
    for line in ["x", "x", "y", "y"] {
        driver.create_record(&ann, "suite.step", json!({ "line": line }), now).await;
    }
    // Two of them in front, one behind.
    for _ in 0..3 {
        driver.create_record(&ann, "suite.task", json!({ "lane": "b" }), now).await;
    }
    // Delayed jobs, with a concurrency key and without.
    for fields in [json!({ "weight": 2 }), json!({ "lane": "b" }), json!({ "lane": "c", "weight": 1 })] {
        let mut fields = fields;
        fields["readyAt"] = json!("2030-01-01T00:00:00Z");
        driver.create_record(&ann, "suite.task", fields, now).await;
    }
    // Done; failed and leased again; running; committed but not finished.
    let finish = |record, token, finish| Call::Commit { record, token, result: json!({ "made": "it" }), finish };
    let token = driver.lease_job(&bob, tasks[5], now).await;
    driver.expect_taken(&bob, finish(tasks[5], token, true), now).await;
    let alone = driver.create_record(&ann, "suite.task", json!({ "weight": 9 }), now).await;
    let token = driver.lease_job(&bob, alone, now).await;
    driver.expect_taken(&bob, finish(alone, token, false), now).await;
    driver.expect_taken(&bob, Call::Finish { record: alone, token }, now).await;
    let token = driver.lease_job(&bob, tasks[4], now).await;
    let error =
        FailureReport { code: "busy".into(), message: "later".into(), retryable: Some(true), retry_after: None };
    driver.expect_taken(&bob, Call::Fail { record: tasks[4], token, error }, now).await;
    let token = driver.lease_job(&bob, tasks[4], now).await;
    let later = now.checked_add(Duration::from_secs(20)).expect("a time");
    let beat = driver.operation(&bob, Call::Heartbeat { record: tasks[4], token, lease: None });
    driver.run_operation(beat, later).await;
    let token = driver.lease_job(&bob, tasks[3], now).await;
    driver.expect_taken(&bob, finish(tasks[3], token, false), later).await;
    let name = WorkerName { holder: "bob".into(), worker: "w".into() };
    let seen = WorkerSighting { name, lifecycles: vec!["suite.task".into()], last_seen_at: later };
    store.upsert_workers(&[seen]).await.expect("the worker is stored");
    let secrets = WebhookSecrets { current: WebhookSecret([7; 32]), previous: Some((WebhookSecret([8; 32]), later)) };
    assert!(store.save_webhook_secrets("ann", None, &secrets).await.expect("the secrets are stored"));
    migrate_to_other_version(store, &[tasks[0], first]).await;
    add_api_keys(store, now).await;
    later
}

/// Migrates these records to another version, while new ones use the first again.
async fn migrate_to_other_version<S: Store>(store: &S, ids: &[RecordId]) {
    let ops = Actor::new("ops", &["operator"]);
    let old = store.catalog().await.expect("definitions");
    let mut files = suite_files();
    for file in &mut files.files {
        file.text = file.text.replace("limit = 2", "limit = 3").replace("max = 10, clash", "max = 12, clash").into();
    }
    let new = store.put_lifecycles(&files).await.expect("valid files");
    let mut driver = StoreDriver::new(store).await;
    for id in ids {
        let record = store.record(*id).await.expect("the query succeeds").expect("it exists");
        let to = Arc::clone(&new.definitions.get(&record.lifecycle.name).expect("the lifecycle exists").hash);
        let states = [("none".into(), "none".into())].into();
        driver
            .expect_taken(
                &ops,
                Call::MigrateVersion(RecordMigration {
                    record: *id,
                    target_hash: to,
                    state_map: states,
                    include_ended: false,
                }),
                start_time(),
            )
            .await;
    }
    for name in ["suite.task", "suite.box"] {
        let hash = &old.definitions.get(name).expect("the lifecycle exists").hash;
        store.activate_version(hash, "ops", start_time()).await.expect("the older version is stored");
    }
}

/// Adds a live key, a revoked one, and one that was deleted.
async fn add_api_keys<S: Store>(store: &S, now: Time) {
    let later = |seconds| now.checked_add(Duration::from_secs(seconds)).expect("a time");
    let key = |number: u8| ApiKey {
        id: format!("key{number}").into(),
        hash: [number; 32],
        owner: "ann".into(),
        roles: vec!["producer".into(), "worker".into()],
        lifecycles: (number == 1).then(|| vec!["suite.task".into()]),
        name: "a key".into(),
        created_at: now,
        expires_at: (number == 1).then(|| later(1_000)),
        revoked_at: None,
    };
    let nothing = ApiKeyEdit {
        actor: operator("olga"),
        expected_revision: 0,
        now,
        created: None,
        revoked: None,
        deleted: Vec::new(),
    };
    let mut edits: Vec<ApiKeyEdit> =
        (1..=3).map(|number| ApiKeyEdit { created: Some(key(number)), ..nothing.clone() }).collect();
    edits.extend(["key2", "key3"].map(|id| ApiKeyEdit { revoked: Some(id.into()), now: later(1), ..nothing.clone() }));
    edits.push(ApiKeyEdit { deleted: vec!["key3".into()], now: later(2), ..nothing.clone() });
    for edit in edits {
        let since = store.api_keys_revision().await.expect("a number");
        let saved = store.edit_api_keys(&Arc::new(ApiKeyEdit { expected_revision: since, ..edit })).await;
        assert!(matches!(saved, Ok(ApiKeySaveResult::Saved(_))), "{saved:?}");
    }
}

pub(crate) fn random_operations(files: &InputFiles, seed: u64, operations: usize) -> Vec<(Operation, Time)> {
    let definitions = onceward_core::load_definitions(files).expect("valid files").definitions;
    let mut play = Simulation::new(definitions, true, seed);
    if let Err(broken) = play.run_operations(operations, &mut []) {
        panic!("{}: {}", broken.property, broken.detail);
    }
    play.log
}

/// Prints the seed if a test panics in the middle of a case.
pub(crate) struct PrintSeedOnPanic(pub(crate) u64);

impl Drop for PrintSeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("reproduce with ONCEWARD_SEED={}", self.0);
        }
    }
}
