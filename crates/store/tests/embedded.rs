//! What belongs to the embedded database alone: its file.

mod stage;

use std::io::Write as _;
use std::sync::atomic::Ordering;

use onceward_core::decide::{Account, Call, Key, Operation};
use onceward_core::time::Duration;
use onceward_store::{Base, Clock, LeaseQuery, ListQuery, Replay, Save, SqliteStore, SqliteView, Store, StoreError};
use onceward_testkit::{random, user, worker};
use serde_json::json;
use stage::driver::Driver;
use stage::{Folder, start, suite, wait};

fn open(folder: &Folder) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(folder.file(), Clock::manual(start()))
}

/// All is there when the file is opened again, definitions too, and work goes on.
#[test]
fn a_file_is_opened_again() {
    wait(async {
        let folder = Folder::new();
        let store = open(&folder).unwrap();
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(&store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let task = driver.create(&ann, "suite.task", json!({ "lane": "a", "weight": 3 }), start()).await;
        let other = driver.create(&ann, "suite.task", json!({ "lane": "a" }), start()).await;
        let token = driver.lease(&bob, task, start()).await;
        let before = random::record(&store.record(task).await.unwrap().unwrap());
        let log = store.log(0, 100).await.unwrap();
        drop(store);

        let store = open(&folder).unwrap();
        assert_eq!(random::record(&store.record(task).await.unwrap().unwrap()), before);
        assert_eq!(store.log(0, 100).await.unwrap(), log);
        assert_eq!(store.definitions().await.unwrap().number(), 5);
        let mut driver = Driver::new(&store).await;
        driver.ok(&bob, Call::Commit { record: task, token, result: json!(1), finish: true }, start()).await;
        let query = LeaseQuery { lifecycles: vec!["suite.task".into()], now: start(), limit: 10 };
        let waiting: Vec<_> = store.leasable(&query).await.unwrap().iter().map(|found| found.record).collect();
        assert_eq!(waiting, [other]);
        assert_eq!(store.log(0, 100).await.unwrap().len(), 4);
        assert_eq!(store.list(&ListQuery { limit: 10, ..ListQuery::default() }).await.unwrap().records.len(), 2);
    });
}

/// A second engine is told who has the file, and comes in when that one has gone.
#[test]
fn a_second_engine_is_refused() {
    let folder = Folder::new();
    let first = open(&folder).unwrap();
    let Err(StoreError::Locked { by }) = open(&folder) else { panic!("let in") };
    assert_eq!(by, format!("process {}", std::process::id()));
    let again = first.clone();
    drop(first);
    assert!(matches!(open(&folder), Err(StoreError::Locked { .. })), "a clone still has it");
    drop(again);
    open(&folder).unwrap();
}

/// Nobody else's file is taken for ours, and none is harmed.
#[test]
fn other_files_are_refused() {
    let folder = Folder::new();
    std::fs::File::create(folder.file()).unwrap().write_all(&[b'x'; 4_096]).unwrap();
    let found = open(&folder);
    assert!(matches!(found, Err(StoreError::NoDatabase(_))), "{found:?}");
    std::fs::remove_file(folder.file()).unwrap();

    let other = rusqlite::Connection::open(folder.file()).unwrap();
    other.execute_batch("CREATE TABLE theirs (x)").unwrap();
    let found = open(&folder);
    assert!(matches!(&found, Err(StoreError::NoDatabase(why)) if why.contains("not one of Onceward's")), "{found:?}");
    other.execute_batch("DROP TABLE theirs; PRAGMA user_version = 99").unwrap();
    let found = open(&folder);
    assert!(matches!(found, Err(StoreError::TooNew { found: 99, .. })), "{found:?}");

    let nowhere = SqliteStore::open(folder.file().join("below/a/file"), Clock::manual(start()));
    assert!(matches!(nowhere, Err(StoreError::Unavailable(_))), "{nowhere:?}");
}

/// The database itself will not have a second effect nor a balance below nothing, whoever writes.
#[test]
fn the_database_holds_its_constraints_alone() {
    wait(async {
        let folder = Folder::new();
        let store = open(&folder).unwrap();
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(&store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let task = driver.create(&ann, "suite.task", json!({}), start()).await;
        let token = driver.lease(&bob, task, start()).await;
        driver.ok(&bob, Call::Commit { record: task, token, result: json!(1), finish: true }, start()).await;
        drop(store);
        let connection = rusqlite::Connection::open(folder.file()).unwrap();
        for (sql, column) in [
            ("INSERT INTO effects SELECT record, token, result FROM effects", "effects.record"),
            ("INSERT INTO accounts VALUES ('coin', 'purse:ann', 0, -1)", "balance"),
            ("UPDATE records SET hold = -1", "hold"),
            ("UPDATE tallies SET count = -1", "count"),
            ("UPDATE records SET version = 'two'", "version"),
        ] {
            let said = connection.execute(sql, []).unwrap_err().to_string();
            assert!(said.contains(column), "{sql}: {said}");
        }
        connection.execute("INSERT INTO accounts VALUES ('coin', 'sea', 1, -1)", []).unwrap();
    });
}

/// A full work key does not stand in the way of others, however many wait in it: none of them is in `ready`.
#[test]
fn a_full_key_waits_apart() {
    wait(async {
        let folder = Folder::new();
        let store = open(&folder).unwrap();
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(&store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let mut lane = Vec::new();
        for _ in 0..40 {
            lane.push(driver.create(&ann, "suite.task", json!({ "lane": "a", "weight": 5 }), start()).await);
        }
        let later = start().checked_add(Duration::from_secs(1)).unwrap();
        let other = driver.create(&ann, "suite.task", json!({}), later).await;
        let beside = rusqlite::Connection::open(folder.file()).unwrap();
        let ready = || beside.query_row("SELECT count(*) FROM ready", [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(ready(), 3, "two of the lane and the other");
        let token = driver.lease(&bob, lane[0], later).await;
        driver.lease(&bob, lane[1], later).await;
        assert_eq!(ready(), 1);
        let query = LeaseQuery { lifecycles: vec!["suite.task".into()], now: later, limit: 10 };
        assert_eq!(store.leasable(&query).await.unwrap().iter().map(|found| found.record).collect::<Vec<_>>(), [other]);
        driver.ok(&bob, Call::Commit { record: lane[0], token, result: json!(1), finish: true }, later).await;
        assert_eq!(ready(), 2, "the next one has come forward");
    });
}

/// Four that want the same account at once: each loads, decides and saves until nobody was faster, and nothing is lost.
#[test]
fn nobody_overwrites_anybody() {
    const EACH: u128 = 15;
    let folder = Folder::new();
    let store = open(&folder).unwrap();
    wait(store.put_definitions(&suite())).unwrap();
    let ann = user("ann");
    let id = wait(async { Driver::new(&store).await.create(&ann, "suite.box", json!({}), start()).await });
    let conflicts = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for racer in 0..4_u128 {
            let (store, ann, conflicts) = (&store, &ann, &conflicts);
            scope.spawn(move || {
                wait(async {
                    let driver = Driver::new(store).await;
                    for number in 0..EACH {
                        let call = stage::driver::fire(id, "earn", json!({ "amount": 1 }));
                        let seed = (racer + 1) << 100 | number << 80;
                        let operation = Operation { seed, actor: ann.clone(), call, answers: Vec::new(), trace: None };
                        loop {
                            let mut open = driver.open(start());
                            driver.decide(&mut open, operation.clone(), start()).await;
                            match driver.save(&open).await {
                                Save::Saved { .. } => break,
                                Save::Conflict(_) => conflicts.fetch_add(1, Ordering::Relaxed),
                            };
                        }
                    }
                });
            });
        }
    });
    println!("{} conflicts", conflicts.into_inner());
    wait(async {
        assert_eq!(u128::from(store.record(id).await.unwrap().unwrap().version), 1 + 4 * EACH);
        let mut base = Base::default();
        let purse = Account::Named { asset: "coin".into(), name: "purse:ann".into() };
        store.load(&mut base, &[Key::Account(purse.clone())]).await.unwrap();
        assert_eq!(u128::try_from(base.snapshot().accounts[&purse]), Ok(4 * EACH));
        let mut replay = Replay::new(store.definitions().await.unwrap().lifecycles());
        for entry in store.log(0, 1_000).await.unwrap() {
            replay.apply(&entry).unwrap();
        }
    });
}

/// A process that is just being started holds its parent's files for a moment, and with them a lock that is no longer
/// anybody's: opening waits for it to go.
#[test]
fn a_lock_that_goes_is_waited_for() {
    let folder = Folder::new();
    drop(open(&folder).expect("a new file"));
    let mut path = folder.file().into_os_string();
    path.push(".lock");
    let held = std::fs::File::open(path).expect("the lock file");
    held.lock().expect("nobody has it");
    let (say, hear) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| say.send(open(&folder).map(drop)));
        let early = hear.recv_timeout(std::time::Duration::from_millis(100));
        assert!(early.is_err(), "it waits: {early:?}");
        drop(held);
        assert!(hear.recv().expect("an answer").is_ok());
    });
}

/// While another process writes, a backup that folds the WAL or somebody with a shell, a small save waits for it on the thread that writes:
/// the runtime's own thread goes on, and with it whoever lets go of the lock here.
#[test]
fn who_else_writes_does_not_hold_up_the_runtime() {
    let folder = Folder::new();
    let store = open(&folder).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(&store).await;
        let ann = user("ann");
        // Small saves are done on the runtime's thread once the disk was quick; none of these needs that, and all but the first may have it.
        for _ in 0..20 {
            driver.create(&ann, "suite.task", json!({ "lane": "a" }), start()).await;
        }
        let other = rusqlite::Connection::open(folder.file()).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let began = std::time::Instant::now();
        let lets_go = async {
            tokio::task::yield_now().await;
            other.execute_batch("COMMIT").unwrap();
            began.elapsed()
        };
        let (made, held) = tokio::join!(driver.create(&ann, "suite.task", json!({ "lane": "a" }), start()), lets_go);
        assert!(store.record(made).await.unwrap().is_some());
        // As long as a connection waits for who else writes: had it done so here, nobody would have had a turn before.
        assert!(held.as_secs() < 5, "the runtime stood still for {held:?}");
    });
}

/// Whatever name it is reached by, it is one file, and one engine works on it: also where it is made only now.
#[cfg(unix)]
#[test]
fn a_second_engine_is_refused_by_every_name() {
    let folder = Folder::new();
    let beside = |name: &str| folder.file().with_file_name(name);
    let (link, before) = (beside("link.db"), beside("before.db"));
    std::os::unix::fs::symlink("made.db", &before).unwrap();
    std::os::unix::fs::symlink(folder.file().parent().unwrap(), beside("folder")).unwrap();
    let _first = open(&folder).unwrap();
    std::os::unix::fs::symlink(folder.file(), &link).unwrap();
    let named = folder.file();
    let named = named.file_name().unwrap();
    for other in [link, beside("folder").join(named), beside("folder").join("link.db")] {
        let found = SqliteStore::open(&other, Clock::manual(start()));
        assert!(matches!(found, Err(StoreError::Locked { .. })), "{other:?}: {found:?}");
    }
    let _made = SqliteStore::open(&before, Clock::manual(start())).expect("the link leads to a new file");
    let found = SqliteStore::open(beside("made.db"), Clock::manual(start()));
    assert!(matches!(found, Err(StoreError::Locked { .. })), "{found:?}");
}

/// A hard link has a lock and a WAL of its own: behind both names nobody is let in, until one of them is gone.
#[cfg(unix)]
#[test]
fn a_file_with_two_names_is_refused() {
    let folder = Folder::new();
    drop(open(&folder).unwrap());
    let other = folder.file().with_file_name("other.db");
    std::fs::hard_link(folder.file(), &other).unwrap();
    for name in [folder.file(), other.clone()] {
        let Err(StoreError::Unavailable(why)) = SqliteStore::open(&name, Clock::manual(start())) else {
            panic!("{name:?} is let in")
        };
        assert!(why.contains("hard link"), "{why}");
    }
    std::fs::remove_file(&other).unwrap();
    open(&folder).expect("one name, one engine");
}

/// Somebody who writes past the lock is noticed before the next batch is written: what was loaded before is compared, and what was
/// known by heart is read again.
#[test]
fn a_strangers_write_is_noticed() {
    wait(async {
        let folder = Folder::new();
        let store = open(&folder).unwrap();
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(&store).await;
        let ann = user("ann");
        let id = driver.create(&ann, "suite.box", json!({}), start()).await;
        let mut open = driver.open(start());
        let call = stage::driver::fire(id, "earn", json!({ "amount": 1 }));
        let operation = Operation { seed: 1 << 90, actor: ann.clone(), call, answers: Vec::new(), trace: None };
        driver.decide(&mut open, operation.clone(), start()).await;
        let stranger = rusqlite::Connection::open(folder.file()).unwrap();
        stranger.execute("UPDATE records SET version = version + 1", []).unwrap();
        let Save::Conflict(conflict) = driver.save(&open).await else { panic!("it was written over") };
        assert_eq!(conflict.keys, [Key::Record(id)]);
        let mut open = driver.open(start());
        driver.decide(&mut open, operation, start()).await;
        assert!(matches!(driver.save(&open).await, Save::Saved { .. }), "loaded again, not remembered");
        assert_eq!(store.record(id).await.unwrap().unwrap().version, 3);
        let columns =
            "definition, state, version, owner, fields, attempt, created_at, updated_at, entered_at, hold, head, entry";
        let sql =
            format!("INSERT INTO records (row, id, {columns}) SELECT row + 1, randomblob(16), {columns} FROM records");
        stranger.execute(&sql, []).unwrap();
        driver.create(&ann, "suite.box", json!({}), start()).await;
        let rows: i64 = stranger.query_row("SELECT max(row) FROM records", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 3, "the stranger's number is not given again");
    });
}

/// What is remembered may be older than what a reader sees already: a save is done first and remembered then. A base says so, and one that
/// is wary is told what stands in the file.
#[test]
fn what_comes_from_memory_says_so() {
    wait(async {
        let folder = Folder::new();
        let store = open(&folder).unwrap();
        store.put_definitions(&suite()).await.unwrap();
        let id = Driver::new(&store).await.create(&user("ann"), "suite.box", json!({}), start()).await;
        // As between the one and the other.
        let writer = rusqlite::Connection::open(folder.file()).unwrap();
        writer.execute("UPDATE records SET version = version + 1", []).unwrap();
        let version = |base: &Base| base.snapshot().records[&id].as_ref().map(|record| record.version);
        let (mut trusting, mut wary) = (Base::default(), Base::wary());
        store.load(&mut trusting, &[Key::Record(id)]).await.unwrap();
        store.load(&mut wary, &[Key::Record(id)]).await.unwrap();
        assert_eq!((version(&trusting), trusting.is_remembered()), (Some(1), true));
        assert_eq!((version(&wary), wary.is_remembered()), (Some(2), false));
    });
}

/// A copy whose WAL cannot be read is refused, not read without what came last.
#[cfg(unix)]
#[test]
fn a_copy_is_not_read_without_its_wal() {
    let folder = Folder::new();
    let store = open(&folder).unwrap();
    wait(store.put_definitions(&suite())).unwrap();
    let beside = |name: &str| folder.file().with_file_name(name);
    let wal = |file: std::path::PathBuf| std::path::PathBuf::from(format!("{}-wal", file.display()));
    std::fs::copy(folder.file(), beside("copy.db")).unwrap();
    std::fs::copy(wal(folder.file()), wal(beside("copy.db"))).unwrap();
    assert!(SqliteView::open(beside("copy.db")).is_ok(), "both can be read here");
    std::fs::copy(wal(folder.file()), wal(beside("copy.db"))).unwrap();
    // As in a folder that cannot be written: the file that readers share cannot be made.
    let shared = beside("copy.db-shm");
    let _ = std::fs::remove_file(&shared);
    std::os::unix::fs::symlink("nowhere/at-all", &shared).unwrap();
    let found = SqliteView::open(beside("copy.db")).map(drop);
    assert!(matches!(&found, Err(StoreError::Unavailable(why)) if why.contains("copy.db-wal holds")), "{found:?}");
}

/// A record that cannot be read is passed over and counted; the others are listed, page by page.
#[test]
fn a_damaged_record_hides_no_other() {
    wait(async {
        let folder = Folder::new();
        let store = open(&folder).unwrap();
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(&store).await;
        let mut made = Vec::new();
        for _ in 0..5 {
            made.push(driver.create(&user("ann"), "suite.box", json!({}), start()).await);
        }
        let stranger = rusqlite::Connection::open(folder.file()).unwrap();
        stranger.execute("UPDATE records SET fields = 'beer' WHERE row = 2", []).unwrap();
        stranger.execute("UPDATE records SET state = 99 WHERE row = 4", []).unwrap();
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
    });
}
