//! Tests that apply only to SQLite and its file.

mod support;

use std::io::Write as _;
use std::sync::atomic::Ordering;

use onceward_core::decide::{Account, Call, Operation, ReadKey};
use onceward_core::time::Duration;
use onceward_store::{
    Clock, LeaseQuery, ListQuery, LogReplay, ReadSet, SaveResult, SqliteScanner, SqliteStore, Store, StoreError,
};
use onceward_testkit::{random, user, worker};
use serde_json::json;
use support::driver::StoreDriver;
use support::{TempDir, block_on, start_time, suite_files};

fn open_store(folder: &TempDir) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(folder.database_path(), Clock::manual(start_time()))
}

#[tokio::test]
async fn reopened_file_keeps_state_and_definitions() {
    let folder = TempDir::new();
    let store = open_store(&folder).unwrap();
    store.put_lifecycles(&suite_files()).await.unwrap();
    let mut driver = StoreDriver::new(&store).await;
    let (ann, bob) = (user("ann"), worker("bob"));
    let task = driver.create_record(&ann, "suite.task", json!({ "lane": "a", "weight": 3 }), start_time()).await;
    let other = driver.create_record(&ann, "suite.task", json!({ "lane": "a" }), start_time()).await;
    let token = driver.lease_job(&bob, task, start_time()).await;
    let before = random::record_text(&store.record(task).await.unwrap().unwrap());
    let log = store.log(0, 100).await.unwrap();
    drop(store);

    let store = open_store(&folder).unwrap();
    assert_eq!(random::record_text(&store.record(task).await.unwrap().unwrap()), before);
    assert_eq!(store.log(0, 100).await.unwrap(), log);
    assert_eq!(store.catalog().await.unwrap().revision(), 5);
    let mut driver = StoreDriver::new(&store).await;
    driver.expect_taken(&bob, Call::Commit { record: task, token, result: json!(1), finish: true }, start_time()).await;
    let query = LeaseQuery { lifecycles: vec!["suite.task".into()], now: start_time(), limit: 10 };
    let ready: Vec<_> = store.lease_candidates(&query).await.unwrap().iter().map(|found| found.record).collect();
    assert_eq!(ready, [other]);
    assert_eq!(store.log(0, 100).await.unwrap().len(), 4);
    assert_eq!(store.list(&ListQuery { limit: 10, ..ListQuery::default() }).await.unwrap().records.len(), 2);
}

/// The error names the process. Opening succeeds after it closed the file.
#[test]
fn second_open_of_locked_file_returns_locked() {
    let folder = TempDir::new();
    let first = open_store(&folder).unwrap();
    let Err(StoreError::Locked { by }) = open_store(&folder) else { panic!("a second engine opened the file") };
    assert_eq!(by, format!("process {}", std::process::id()));
    let again = first.clone();
    drop(first);
    assert!(matches!(open_store(&folder), Err(StoreError::Locked { .. })), "a clone still holds the lock");
    drop(again);
    open_store(&folder).unwrap();
}

/// The file remains unchanged.
#[test]
fn foreign_or_newer_file_is_rejected() {
    let folder = TempDir::new();
    std::fs::File::create(folder.database_path()).unwrap().write_all(&[b'x'; 4_096]).unwrap();
    let found = open_store(&folder);
    assert!(matches!(found, Err(StoreError::ForeignDatabase(_))), "{found:?}");
    std::fs::remove_file(folder.database_path()).unwrap();

    let other = rusqlite::Connection::open(folder.database_path()).unwrap();
    other.execute_batch("CREATE TABLE theirs (x)").unwrap();
    let found = open_store(&folder);
    assert!(
        matches!(&found, Err(StoreError::ForeignDatabase(why)) if why.contains("not an Onceward database")),
        "{found:?}"
    );
    other.execute_batch("DROP TABLE theirs; PRAGMA user_version = 99").unwrap();
    let found = open_store(&folder);
    assert!(matches!(found, Err(StoreError::SchemaTooNew { found: 99, .. })), "{found:?}");

    let nowhere = SqliteStore::open(folder.database_path().join("below/a/file"), Clock::manual(start_time()));
    assert!(matches!(nowhere, Err(StoreError::Unavailable(_))), "{nowhere:?}");
}

/// Covers a second effect and a negative balance.
#[tokio::test]
async fn schema_constraints_reject_invalid_rows() {
    let folder = TempDir::new();
    let store = open_store(&folder).unwrap();
    store.put_lifecycles(&suite_files()).await.unwrap();
    let mut driver = StoreDriver::new(&store).await;
    let (ann, bob) = (user("ann"), worker("bob"));
    let task = driver.create_record(&ann, "suite.task", json!({}), start_time()).await;
    let token = driver.lease_job(&bob, task, start_time()).await;
    driver.expect_taken(&bob, Call::Commit { record: task, token, result: json!(1), finish: true }, start_time()).await;
    drop(store);
    let connection = rusqlite::Connection::open(folder.database_path()).unwrap();
    for (sql, column) in [
        ("INSERT INTO effects SELECT record, token, result FROM effects", "effects.record"),
        ("INSERT INTO accounts VALUES ('coin', 'purse:ann', 0, -1)", "balance"),
        ("UPDATE records SET hold = -1", "hold"),
        ("UPDATE state_counts SET count = -1", "count"),
        ("UPDATE records SET version = 'two'", "version"),
    ] {
        let error = connection.execute(sql, []).unwrap_err().to_string();
        assert!(error.contains(column), "{sql}: {error}");
    }
    connection.execute("INSERT INTO accounts VALUES ('coin', 'sea', 1, -1)", []).unwrap();
}

/// So they do not slow down candidate scans for other jobs.
#[tokio::test]
async fn jobs_of_full_concurrency_key_stay_out_of_ready() {
    let folder = TempDir::new();
    let store = open_store(&folder).unwrap();
    store.put_lifecycles(&suite_files()).await.unwrap();
    let mut driver = StoreDriver::new(&store).await;
    let (ann, bob) = (user("ann"), worker("bob"));
    let mut lane = Vec::new();
    for _ in 0..40 {
        lane.push(driver.create_record(&ann, "suite.task", json!({ "lane": "a", "weight": 5 }), start_time()).await);
    }
    let one_second_later = start_time().checked_add(Duration::from_secs(1)).unwrap();
    let other = driver.create_record(&ann, "suite.task", json!({}), one_second_later).await;
    let connection = rusqlite::Connection::open(folder.database_path()).unwrap();
    let ready_count = || connection.query_row("SELECT count(*) FROM ready", [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(ready_count(), 3, "two jobs of the lane and one without a key");
    let token = driver.lease_job(&bob, lane[0], one_second_later).await;
    driver.lease_job(&bob, lane[1], one_second_later).await;
    assert_eq!(ready_count(), 1);
    let query = LeaseQuery { lifecycles: vec!["suite.task".into()], now: one_second_later, limit: 10 };
    assert_eq!(
        store.lease_candidates(&query).await.unwrap().iter().map(|found| found.record).collect::<Vec<_>>(),
        [other]
    );
    driver
        .expect_taken(&bob, Call::Commit { record: lane[0], token, result: json!(1), finish: true }, one_second_later)
        .await;
    assert_eq!(ready_count(), 2, "the next job of the lane is ready");
}

/// Four writers change the same account and retry on conflicts.
#[test]
fn concurrent_saves_lose_no_update() {
    const OPERATIONS_PER_WRITER: u128 = 15;
    let folder = TempDir::new();
    let store = open_store(&folder).unwrap();
    block_on(store.put_lifecycles(&suite_files())).unwrap();
    let ann = user("ann");
    let id = block_on(async {
        StoreDriver::new(&store).await.create_record(&ann, "suite.box", json!({}), start_time()).await
    });
    let conflicts = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..4_u128 {
            let (store, ann, conflicts) = (&store, &ann, &conflicts);
            scope.spawn(move || {
                block_on(async {
                    let driver = StoreDriver::new(store).await;
                    for number in 0..OPERATIONS_PER_WRITER {
                        let call = support::driver::fire_call(id, "earn", json!({ "amount": 1 }));
                        let seed = (writer + 1) << 100 | number << 80;
                        let operation =
                            Operation { seed, actor: ann.clone(), call, check_answers: Vec::new(), trace: None };
                        loop {
                            let mut open = driver.new_batch(start_time());
                            driver.decide(&mut open, operation.clone(), start_time()).await;
                            match driver.save(&open).await {
                                SaveResult::Saved { .. } => break,
                                SaveResult::Conflict(_) => conflicts.fetch_add(1, Ordering::Relaxed),
                            };
                        }
                    }
                });
            });
        }
    });
    println!("{} conflicts", conflicts.into_inner());
    block_on(async {
        assert_eq!(u128::from(store.record(id).await.unwrap().unwrap().version), 1 + 4 * OPERATIONS_PER_WRITER);
        let mut base = ReadSet::default();
        let purse = Account::Named { asset: "coin".into(), name: "purse:ann".into() };
        store.load(&mut base, &[ReadKey::Account(purse.clone())]).await.unwrap();
        assert_eq!(u128::try_from(base.snapshot().accounts[&purse]), Ok(4 * OPERATIONS_PER_WRITER));
        let mut replay = LogReplay::new(store.catalog().await.unwrap().lifecycles());
        for entry in store.log(0, 1_000).await.unwrap() {
            replay.apply(&entry).unwrap();
        }
    });
}

/// A process that is being started holds its parent's lock for a moment.
#[test]
fn open_waits_for_lock_released_shortly_after() {
    let folder = TempDir::new();
    drop(open_store(&folder).expect("a new file"));
    let mut path = folder.database_path().into_os_string();
    path.push(".lock");
    let lock_file = std::fs::File::open(path).expect("the lock file");
    lock_file.lock().expect("no other process holds the lock");
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(open_store(&folder).map(drop)));
        let early = receiver.recv_timeout(std::time::Duration::from_millis(100));
        assert!(early.is_err(), "the open waits for the lock: {early:?}");
        drop(lock_file);
        assert!(receiver.recv().expect("an answer").is_ok());
    });
}

/// The save must wait on the writer thread, because the task that releases the lock runs on the runtime thread.
#[test]
fn save_blocked_by_other_writer_does_not_block_runtime() {
    let folder = TempDir::new();
    let store = open_store(&folder).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(&store).await;
        let ann = user("ann");
        // After a fast save, later small saves may run on the runtime thread.
        for _ in 0..20 {
            driver.create_record(&ann, "suite.task", json!({ "lane": "a" }), start_time()).await;
        }
        let other = rusqlite::Connection::open(folder.database_path()).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let began = std::time::Instant::now();
        let release_lock = async {
            tokio::task::yield_now().await;
            other.execute_batch("COMMIT").unwrap();
            began.elapsed()
        };
        let (record, held_for) =
            tokio::join!(driver.create_record(&ann, "suite.task", json!({ "lane": "a" }), start_time()), release_lock);
        assert!(store.record(record).await.unwrap().is_some());
        // 5 seconds is the busy timeout. A wait on the runtime thread would have taken that long.
        assert!(held_for.as_secs() < 5, "the runtime was blocked for {held_for:?}");
    });
}

/// Covers a link to a file that does not exist yet.
#[cfg(unix)]
#[test]
fn symlinked_path_of_open_file_returns_locked() {
    let folder = TempDir::new();
    let sibling_path = |name: &str| folder.database_path().with_file_name(name);
    let (link, before) = (sibling_path("link.db"), sibling_path("before.db"));
    std::os::unix::fs::symlink("made.db", &before).unwrap();
    std::os::unix::fs::symlink(folder.database_path().parent().unwrap(), sibling_path("folder")).unwrap();
    let _first = open_store(&folder).unwrap();
    std::os::unix::fs::symlink(folder.database_path(), &link).unwrap();
    let named = folder.database_path();
    let named = named.file_name().unwrap();
    for other in [link, sibling_path("folder").join(named), sibling_path("folder").join("link.db")] {
        let found = SqliteStore::open(&other, Clock::manual(start_time()));
        assert!(matches!(found, Err(StoreError::Locked { .. })), "{other:?}: {found:?}");
    }
    let _made = SqliteStore::open(&before, Clock::manual(start_time())).expect("the link leads to a new file");
    let found = SqliteStore::open(sibling_path("made.db"), Clock::manual(start_time()));
    assert!(matches!(found, Err(StoreError::Locked { .. })), "{found:?}");
}

/// Each name would have its own lock and WAL. Opening succeeds after one name is removed.
#[cfg(unix)]
#[test]
fn hard_linked_file_is_rejected() {
    let folder = TempDir::new();
    drop(open_store(&folder).unwrap());
    let other = folder.database_path().with_file_name("other.db");
    std::fs::hard_link(folder.database_path(), &other).unwrap();
    for name in [folder.database_path(), other.clone()] {
        let Err(StoreError::Unavailable(why)) = SqliteStore::open(&name, Clock::manual(start_time())) else {
            panic!("{name:?} was opened")
        };
        assert!(why.contains("hard link"), "{why}");
    }
    std::fs::remove_file(&other).unwrap();
    open_store(&folder).expect("a file with one name opens");
}

/// Another process writes despite the lock.
#[tokio::test]
async fn foreign_write_conflicts_and_invalidates_caches() {
    let folder = TempDir::new();
    let store = open_store(&folder).unwrap();
    store.put_lifecycles(&suite_files()).await.unwrap();
    let mut driver = StoreDriver::new(&store).await;
    let ann = user("ann");
    let id = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
    let mut open = driver.new_batch(start_time());
    let call = support::driver::fire_call(id, "earn", json!({ "amount": 1 }));
    let operation = Operation { seed: 1 << 90, actor: ann.clone(), call, check_answers: Vec::new(), trace: None };
    driver.decide(&mut open, operation.clone(), start_time()).await;
    let foreign = rusqlite::Connection::open(folder.database_path()).unwrap();
    foreign.execute("UPDATE records SET version = version + 1", []).unwrap();
    let SaveResult::Conflict(conflict) = driver.save(&open).await else {
        panic!("the save overwrote a foreign change")
    };
    assert_eq!(conflict.changed_keys, [ReadKey::Record(id)]);
    let mut open = driver.new_batch(start_time());
    driver.decide(&mut open, operation, start_time()).await;
    assert!(matches!(driver.save(&open).await, SaveResult::Saved { .. }), "the reload bypasses the cache");
    assert_eq!(store.record(id).await.unwrap().unwrap().version, 3);
    let columns =
        "definition, state, version, owner, fields, attempt, created_at, updated_at, entered_at, hold, head, entry";
    let sql =
        format!("INSERT INTO records (row, id, {columns}) SELECT row + 1, randomblob(16), {columns} FROM records");
    foreign.execute(&sql, []).unwrap();
    driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
    let rows: i64 = foreign.query_row("SELECT max(row) FROM records", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 3, "the row number of the foreign row is not reused");
}

/// A save commits first and updates the cache afterwards, so the cache can be older than the file.
#[tokio::test]
async fn cached_read_reports_used_cache_and_uncached_reads_file() {
    let folder = TempDir::new();
    let store = open_store(&folder).unwrap();
    store.put_lifecycles(&suite_files()).await.unwrap();
    let id = StoreDriver::new(&store).await.create_record(&user("ann"), "suite.box", json!({}), start_time()).await;
    // Simulates the time between commit and cache update.
    let writer = rusqlite::Connection::open(folder.database_path()).unwrap();
    writer.execute("UPDATE records SET version = version + 1", []).unwrap();
    let version = |base: &ReadSet| base.snapshot().records[&id].as_ref().map(|record| record.version);
    let (mut cached, mut uncached) = (ReadSet::default(), ReadSet::uncached());
    store.load(&mut cached, &[ReadKey::Record(id)]).await.unwrap();
    store.load(&mut uncached, &[ReadKey::Record(id)]).await.unwrap();
    assert_eq!((version(&cached), cached.used_cache()), (Some(1), true));
    assert_eq!((version(&uncached), uncached.used_cache()), (Some(2), false));
}

/// Otherwise the latest commits would be missing.
#[cfg(unix)]
#[test]
fn copy_with_unreadable_wal_is_rejected() {
    let folder = TempDir::new();
    let store = open_store(&folder).unwrap();
    block_on(store.put_lifecycles(&suite_files())).unwrap();
    let sibling_path = |name: &str| folder.database_path().with_file_name(name);
    let wal = |file: std::path::PathBuf| std::path::PathBuf::from(format!("{}-wal", file.display()));
    std::fs::copy(folder.database_path(), sibling_path("copy.db")).unwrap();
    std::fs::copy(wal(folder.database_path()), wal(sibling_path("copy.db"))).unwrap();
    assert!(SqliteScanner::open(sibling_path("copy.db")).is_ok(), "database and WAL are readable in a writable folder");
    std::fs::copy(wal(folder.database_path()), wal(sibling_path("copy.db"))).unwrap();
    // As in a read-only folder: SQLite cannot create the shared-memory file.
    let shared = sibling_path("copy.db-shm");
    let _ = std::fs::remove_file(&shared);
    std::os::unix::fs::symlink("nowhere/at-all", &shared).unwrap();
    let found = SqliteScanner::open(sibling_path("copy.db")).map(drop);
    assert!(matches!(&found, Err(StoreError::Unavailable(why)) if why.contains("copy.db-wal contains")), "{found:?}");
}

#[tokio::test]
async fn list_skips_and_counts_unreadable_records() {
    let folder = TempDir::new();
    let store = open_store(&folder).unwrap();
    store.put_lifecycles(&suite_files()).await.unwrap();
    let mut driver = StoreDriver::new(&store).await;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(driver.create_record(&user("ann"), "suite.box", json!({}), start_time()).await);
    }
    let foreign = rusqlite::Connection::open(folder.database_path()).unwrap();
    foreign.execute("UPDATE records SET fields = 'beer' WHERE row = 2", []).unwrap();
    foreign.execute("UPDATE records SET state = 99 WHERE row = 4", []).unwrap();
    let (mut listed, mut unreadable, mut query) = (Vec::new(), 0, ListQuery { limit: 2, ..ListQuery::default() });
    loop {
        let page = store.list(&query).await.unwrap();
        assert!(page.records.len() <= 2);
        listed.extend(page.records.iter().map(|record| record.id));
        unreadable += page.unreadable;
        query.after = page.next;
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!((listed, unreadable), (vec![made[0], made[2], made[4]], 2));
}
