//! Databases that random play has filled.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onceward_core::decide::{Call, ErrorReport, Move, Operation};
use onceward_core::diagnostic::Files;
use onceward_core::record::{Actor, Payload};
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_engine::{Report, verify};
use onceward_store::scan::Scan;
use onceward_store::{
    ApiKey, Clock, Content, KeyEdit, KeySave, Request, RequestName, Save, SqliteStore, SqliteView, Store, WorkerName,
    WorkerSeen,
};
use onceward_testkit::random::{Chance, Play};
use onceward_testkit::{operator, user, worker};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::stage::driver::{Driver, fire};
use crate::stage::{Folder, start, suite, system, wait};
use crate::wandered::relay;

pub(crate) const SYSTEMS: [&str; 5] = ["execution", "document", "image", "relay", "mesh"];

/// A database in a folder of its own.
pub(crate) struct Built {
    folder: Folder,
    pub(crate) latest: Time,
}

impl Built {
    /// All five systems and the stores' own suite, played at random.
    pub(crate) fn new(seed: u64, operations: usize) -> Self {
        let built = Self { folder: Folder::new(), latest: Time::MIN };
        let store = SqliteStore::open(built.path(), Clock::manual(start())).expect("a new file");
        let latest = wait(fill(&store, seed, operations));
        Self { latest, ..built }
    }

    /// What is done to a new store, under a clock; its latest time.
    pub(crate) fn with(fill: impl FnOnce(&SqliteStore, &Clock) -> Time) -> Self {
        let built = Self { folder: Folder::new(), latest: Time::MIN };
        let clock = Clock::manual(start());
        let store = SqliteStore::open(built.path(), clock.clone()).expect("a new file");
        let latest = fill(&store, &clock);
        Self { latest, ..built }
    }

    /// These files, and what was played on them.
    pub(crate) fn of(files: &Files, operations: &[(Operation, Time)], seed: u64) -> Self {
        let built = Self { folder: Folder::new(), latest: Time::MIN };
        let store = SqliteStore::open(built.path(), Clock::manual(start())).expect("a new file");
        let latest = wait(async {
            store.put_definitions(files).await.expect("sound files");
            carry_out(&store, operations, seed).await
        });
        Self { latest, ..built }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.file()
    }

    /// A copy to do harm to.
    pub(crate) fn copy(&self) -> Copy {
        let folder = Folder::new();
        std::fs::copy(self.path(), folder.file()).expect("a copy");
        Copy { folder, latest: self.latest }
    }
}

pub(crate) struct Copy {
    folder: Folder,
    latest: Time,
}

impl Copy {
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.file()
    }

    /// Write into it as no engine would.
    pub(crate) fn connection(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.path()).expect("the copy opens");
        connection.execute_batch("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF").expect("pragmas");
        connection
    }

    pub(crate) fn verify(&self) -> Report {
        looked_through(&self.path(), self.latest)
    }
}

pub(crate) fn looked_through(path: &Path, now: Time) -> Report {
    let view = SqliteView::open(path).expect("it can be opened");
    examined(&view, now)
}

pub(crate) fn examined<S: Scan>(store: &S, now: Time) -> Report {
    wait(verify(store, now, &mut ())).expect("it can be read")
}

/// Play, in batches of random sizes. The latest time.
pub(crate) async fn fill<S: Store>(store: &S, seed: u64, operations: usize) -> Time {
    let mut files: Vec<Files> = SYSTEMS.iter().map(|name| system(name)).collect();
    files.push(suite());
    for files in &files {
        store.put_definitions(files).await.expect("sound files");
    }
    let latest = furnish(store).await.max(carry_out(store, &relay(), seed).await);
    let plays = (0..).zip(&files).map(|(number, files)| played(files, seed.wrapping_add(number), operations));
    // Each system by itself: what is open to all of them at once is mostly refused.
    let operations: Vec<(Operation, Time)> = plays.flatten().collect();
    latest.max(carry_out(store, &operations, seed).await)
}

/// In batches of random sizes. The latest time.
pub(crate) async fn carry_out<S: Store>(store: &S, operations: &[(Operation, Time)], seed: u64) -> Time {
    let mut latest = Time::MIN;
    let mut chance = Chance::new(!seed);
    let mut left = operations;
    while !left.is_empty() {
        let (now, rest) = left.split_at((1 + chance.below(9)).min(left.len()));
        left = rest;
        let driver = Driver::new(store).await;
        let mut open = driver.open(now[0].1);
        for (operation, time) in now {
            latest = latest.max(*time);
            driver.decide(&mut open, operation.clone(), *time).await;
            let Some(write) = open.batch.writes.last_mut() else { continue };
            if chance.yes(20) && write.request.is_none() {
                let bytes: Arc<[u8]> = format!("content {:x}", operation.seed).into_bytes().into();
                let payload = Payload { sha256: Sha256::digest(&bytes).into(), bytes: 1 };
                write.contents.push(Content { payload, bytes });
                let name = RequestName { owner: "ann".into(), key: format!("request {:x}", operation.seed).into() };
                write.request = Some(Request { name, digest: [7; 32], answer: "\"yes\"".into() });
            }
        }
        let save = driver.save(&open).await;
        assert!(matches!(save, Save::Saved { .. }), "nobody else is here, yet: {save:?}");
    }
    latest
}

/// By hand, what chance seldom leaves: something in every table, and every kind of execution.
pub(crate) async fn furnish<S: Store>(store: &S) -> Time {
    let mut driver = Driver::new(store).await;
    let (ann, bob, now) = (user("ann"), worker("bob"), start());
    let first = driver.create(&ann, "suite.box", json!({ "name": "first", "number": 1 }), now).await;
    let beside = json!({ "name": "second", "beside": first.to_string(), "others": [first.to_string()] });
    let second = driver.create(&ann, "suite.box", beside, now).await;
    driver.ok(&ann, fire(second, "write", json!({ "others": [] })), now).await;
    driver.ok(&ann, fire(first, "earn", json!({ "amount": 50 })), now).await;
    driver.ok(&ann, fire(first, "spend", json!({ "amount": 20 })), now).await;
    let closing = json!({ "closing": "2030-01-01T00:00:00Z" });
    driver.create(&ann, "suite.box", closing, now).await;
    let mut tasks = Vec::new();
    for weight in 0..6 {
        let fields = json!({ "lane": "a", "weight": weight, "box": first.to_string() });
        tasks.push(driver.create(&ann, "suite.task", fields, now).await);
    }
    driver.create(&ann, "suite.task", json!({ "weight": 3 }), now).await;
    driver.refused(&user("eve"), fire(first, "earn", json!({ "amount": 1 })), now).await;
    for line in ["x", "x", "y", "y"] {
        driver.create(&ann, "suite.step", json!({ "line": line }), now).await;
    }
    // Two of them in front, one behind.
    for _ in 0..3 {
        driver.create(&ann, "suite.task", json!({ "lane": "b" }), now).await;
    }
    // And some whose time has not come, with a key and without.
    for fields in [json!({ "weight": 2 }), json!({ "lane": "b" }), json!({ "lane": "c", "weight": 1 })] {
        let mut fields = fields;
        fields["readyAt"] = json!("2030-01-01T00:00:00Z");
        driver.create(&ann, "suite.task", fields, now).await;
    }
    // Done, failed and leased again, running, committed and not finished.
    let finish = |record, token, finish| Call::Commit { record, token, result: json!({ "made": "it" }), finish };
    let token = driver.lease(&bob, tasks[5], now).await;
    driver.ok(&bob, finish(tasks[5], token, true), now).await;
    let alone = driver.create(&ann, "suite.task", json!({ "weight": 9 }), now).await;
    let token = driver.lease(&bob, alone, now).await;
    driver.ok(&bob, finish(alone, token, false), now).await;
    driver.ok(&bob, Call::Finish { record: alone, token }, now).await;
    let token = driver.lease(&bob, tasks[4], now).await;
    let error = ErrorReport { code: "busy".into(), message: "later".into(), retryable: Some(true), retry_after: None };
    driver.ok(&bob, Call::Fail { record: tasks[4], token, error }, now).await;
    let token = driver.lease(&bob, tasks[4], now).await;
    let later = now.checked_add(Duration::from_secs(20)).expect("a time");
    let beat = driver.operation(&bob, Call::Heartbeat { record: tasks[4], token, lease: None });
    driver.play(beat, later).await;
    let token = driver.lease(&bob, tasks[3], now).await;
    driver.ok(&bob, finish(tasks[3], token, false), later).await;
    let name = WorkerName { holder: "bob".into(), worker: "w".into() };
    let seen = WorkerSeen { name, lifecycles: vec!["suite.task".into()], seen: later };
    store.note_workers(&[seen]).await.expect("a note");
    turn(store, &[tasks[0], first]).await;
    give_keys(store, now).await;
    later
}

/// Another version of the suite, by which these records live from then on, while new ones are made by the first again.
async fn turn<S: Store>(store: &S, ids: &[RecordId]) {
    let ops = Actor::new("ops", &["operator"]);
    let old = store.definitions().await.expect("definitions");
    let mut files = suite();
    for file in &mut files.files {
        file.text = file.text.replace("limit = 2", "limit = 3").replace("max = 10, clash", "max = 12, clash").into();
    }
    let new = store.put_definitions(&files).await.expect("sound files");
    let mut driver = Driver::new(store).await;
    for id in ids {
        let record = store.record(*id).await.expect("a look").expect("it is there");
        let to = Arc::clone(&new.definitions.get(&record.lifecycle.name).expect("it is known").hash);
        let states = [("none".into(), "none".into())].into();
        driver.ok(&ops, Call::Move(Move { record: *id, to, states, ended: false }), start()).await;
    }
    for name in ["suite.task", "suite.box"] {
        let hash = &old.definitions.get(name).expect("it is known").hash;
        store.use_definition(hash, "ops", start()).await.expect("it was there before");
    }
}

/// A key that lives, one that was revoked, and one that is no longer kept.
async fn give_keys<S: Store>(store: &S, now: Time) {
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
    let nothing = KeyEdit { actor: operator("olga"), since: 0, now, made: None, revoked: None, forgotten: Vec::new() };
    let mut edits: Vec<KeyEdit> =
        (1..=3).map(|number| KeyEdit { made: Some(key(number)), ..nothing.clone() }).collect();
    edits.extend(["key2", "key3"].map(|id| KeyEdit { revoked: Some(id.into()), now: later(1), ..nothing.clone() }));
    edits.push(KeyEdit { forgotten: vec!["key3".into()], now: later(2), ..nothing.clone() });
    for edit in edits {
        let since = store.key_changes().await.expect("a number");
        let saved = store.edit_keys(&Arc::new(KeyEdit { since, ..edit })).await;
        assert!(matches!(saved, Ok(KeySave::Saved(_))), "{saved:?}");
    }
}

pub(crate) fn played(files: &Files, seed: u64, operations: usize) -> Vec<(Operation, Time)> {
    let definitions = onceward_core::load(files).expect("sound files").definitions;
    let mut play = Play::new(definitions, true, seed);
    if let Err(broken) = play.play(operations, &mut []) {
        panic!("{}: {}", broken.property, broken.detail);
    }
    play.log
}

/// Says which seed it was when a test dies in the middle of a case.
pub(crate) struct Running(pub(crate) u64);

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("play it again with ONCEWARD_SEED={}", self.0);
        }
    }
}
