//! What pruning has taken is said, and what is left is still looked through.

use std::sync::Mutex;
use std::time::Duration as Length;

use onceward_core::decide::Call;
use onceward_core::diagnostic::{File, Files};
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_engine::{PruneOptions, Pruned, Report, Retention, prune, verify};
use onceward_store::scan::{Cursor, Learned, LogPage, Scan, ScanPage, Table};
use onceward_store::{
    AnyStore, Clock, MemoryStore, PostgresStore, PostgresView, SqliteStore, SqliteView, Store, StoreError,
};
use onceward_testkit::postgres::Server;
use onceward_testkit::random::{Chance, Taste, lifecycles, seeds};
use onceward_testkit::{user, worker};
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use crate::built::{Built, Running, carry_out, examined, fill, looked_through, played};
use crate::stage::driver::{Driver, fire};
use crate::stage::{Folder, start, suite, system, wait};

/// Everything that has ended is over at once.
pub(crate) fn at_once() -> PruneOptions {
    let retention = Retention { records: Some(Length::ZERO), requests: Some(Length::ZERO), ..Retention::default() };
    PruneOptions { retention, ..PruneOptions::default() }
}

/// Records that ended, of many kinds; some of them belong to others that go on.
pub(crate) async fn lived<S: Store>(store: &S, seed: u64) -> Time {
    for files in ["execution", "document", "image", "relay"].map(system).iter().chain([&suite()]) {
        store.put_definitions(files).await.expect("sound files");
    }
    let mut driver = Driver::new(store).await;
    // Before anything else: ids come from times and numbers.
    let now = start().checked_sub(Duration::from_secs(3_600)).expect("a time");
    let (zoe, bob) = (user("zoe"), worker("bob"));
    let room = driver.create(&zoe, "suite.box", json!({ "name": "room" }), now).await;
    let full = driver.create(&zoe, "suite.box", json!({ "name": "full", "beside": room.to_string() }), now).await;
    for number in 0..12 {
        let place = if number % 2 == 0 { room } else { full };
        let task = driver.create(&zoe, "suite.task", json!({ "lane": "z", "box": place.to_string() }), now).await;
        let token = driver.lease(&bob, task, now).await;
        let commit = Call::Commit { record: task, token, result: json!({ "number": number }), finish: true };
        driver.ok(&bob, commit, now).await;
        let fields = json!({ "serial": format!("zoe {number}"), "seat": format!("z{number}"), "price": number, "box": room.to_string() });
        let stub = driver.create(&zoe, "suite.stub", fields, now).await;
        driver.ok(&zoe, fire(stub, "renumber", json!({ "serial": format!("zoe {number} again") })), now).await;
        driver.ok(&zoe, fire(stub, "tear", json!({})), now).await;
    }
    // It goes with the tasks that its lifecycle counts; the other one stays, and they with it.
    driver.ok(&zoe, fire(full, "empty", json!({})), now).await;
    let mut latest = now;
    for (number, name) in (100..).zip(["execution", "document", "image", "relay"]) {
        let operations = played(&system(name), seed.wrapping_add(number), 120);
        latest = latest.max(carry_out(store, &operations, seed).await);
    }
    latest
}

/// Lived, pruned a day later, and lived on.
pub(crate) async fn filled<S: Store>(store: &S, clock: &Clock, seed: u64, operations: usize) -> (Time, Pruned) {
    let ended = lived(store, seed).await;
    clock.set(ended.checked_add(Duration::from_secs(86_400)).expect("a time"));
    let pruned = prune(store, &at_once()).await.expect("pruning");
    (ended.max(fill(store, seed, operations).await).max(clock.now()), pruned)
}

async fn looked(store: &AnyStore, folder: &Folder, url: &str, now: Time) -> Report {
    let report = match store {
        AnyStore::Memory(memory) => verify(memory, now, &mut ()).await,
        AnyStore::Sqlite(_) => verify(&SqliteView::open(folder.file()).unwrap(), now, &mut ()).await,
        AnyStore::Postgres(_) => verify(&PostgresView::open(url).await.unwrap(), now, &mut ()).await,
    };
    report.expect("it can be read")
}

/// The same on every store: what goes, what the log says of it, and that all of the rest is as the log says.
#[test]
fn what_is_left_is_clean_on_every_store() {
    for seed in seeds("verify pruned", 2) {
        let _running = Running(seed);
        println!("seed {seed}");
        let mut first: Option<(Pruned, Vec<String>)> = None;
        let (folder, url) = (Folder::new(), Server::shared().database());
        for name in ["memory", "SQLite", "PostgreSQL"] {
            println!("on {name}");
            let clock = Clock::manual(start());
            let found = wait(async {
                let store = match name {
                    "memory" => AnyStore::Memory(MemoryStore::new(clock.clone())),
                    "SQLite" => AnyStore::Sqlite(SqliteStore::open(folder.file(), clock.clone()).expect("a new file")),
                    _ => {
                        let store = PostgresStore::open_with_clock(&url, clock.clone()).await;
                        AnyStore::Postgres(store.expect("a new database"))
                    }
                };
                let (latest, pruned) = filled(&store, &clock, seed, 40).await;
                assert!(pruned.records > 20 && pruned.held > 0 && pruned.damaged.is_empty(), "{pruned:?}");
                // What came after is decided again as it was.
                let report = looked(&store, &folder, &url, latest).await;
                assert!(report.is_clean() && report.decided > 100 && report.undecided == 0, "{report:#?}");
                assert_eq!(report.pruned.records, pruned.records);
                clock.set(latest.checked_add(Duration::from_secs(86_400)).expect("a time"));
                let again = prune(&store, &at_once()).await.expect("pruning");
                assert!(again.records > 0, "{again:?}");
                let floor = store.standing().await.unwrap().floor;
                let log = store.log(floor, 10_000).await.unwrap();
                let report = looked(&store, &folder, &url, clock.now()).await;
                assert!(report.is_clean(), "{report:#?}");
                let beyond = report.pruned;
                assert_eq!(beyond.records, pruned.records + again.records);
                assert_eq!(beyond.entries, pruned.entries + again.entries);
                assert_eq!(beyond.floor, floor);
                assert!(beyond.undecided > 0 && report.undecided == 0);
                // What would go without being taken is the same.
                assert_eq!(prune(&store, &PruneOptions { dry_run: true, ..at_once() }).await.unwrap().records, 0);
                (again, log.iter().map(|entry| format!("{entry:?}")).collect::<Vec<_>>())
            });
            match &first {
                None => first = Some(found),
                Some(first) => assert_eq!(*first, found, "memory, then {name}"),
            }
        }
    }
}

/// A database that was pruned in the middle of its life.
pub(crate) fn built(seed: u64, operations: usize) -> Built {
    Built::with(|store, clock| wait(async { filled(store, clock, seed, operations).await.0 }))
}

/// INV-4: an entry that is taken out of a pruned log is missed: of a record, of none, or a checkpoint.
#[test]
fn an_entry_that_no_checkpoint_took_is_missed() {
    let built = built(7, 10);
    let mut chance = Chance::new(7);
    let copy = built.copy();
    let connection = copy.connection();
    let places: Vec<i64> = {
        let mut statement = connection.prepare("SELECT seq FROM history ORDER BY seq").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let sql = "SELECT seq FROM history WHERE text LIKE '%\"pruned\"%' LIMIT 1";
    let checkpoint: i64 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    let some = (0..12).map(|_| places[chance.below(places.len())]);
    for place in some.chain([checkpoint, places[places.len() - 1]]) {
        let copy = built.copy();
        assert_eq!(copy.connection().execute("DELETE FROM history WHERE seq = ?1", [place]).unwrap(), 1);
        let report = copy.verify();
        // Behind the last there is nobody who misses it but the counter.
        let is_last = places.last() == Some(&place);
        let (table, key) = if is_last { ("counter", "1".to_owned()) } else { ("history", place.to_string()) };
        let missed = report.differences.iter().any(|found| found.table == table && found.key == key);
        assert!(missed, "place {place}: {report:#?}");
    }
}

/// A checkpoint that is written anew, with a hash that fits, is noticed: the next one, or the table, knows the hash it had.
#[test]
fn a_forged_checkpoint_is_noticed() {
    let built = built(11, 5);
    let copy = built.copy();
    let connection = copy.connection();
    let sql = "SELECT seq, at, text FROM history WHERE text LIKE '%\"pruned\"%' ORDER BY seq DESC LIMIT 1";
    let (seq, at, text): (i64, i64, String) =
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    let forged = text.replace("\"state\":\"torn\"", "\"state\":\"open\"");
    assert_ne!(forged, text);
    let before: Option<i64> = text
        .split("\"before\":")
        .nth(1)
        .and_then(|rest| rest.split([',', '}']).next().and_then(|number| number.parse().ok()));
    let previous: [u8; 32] = before.map_or([0; 32], |before| {
        connection.query_row("SELECT hash FROM history WHERE seq = ?1", [before], |row| row.get(0)).unwrap()
    });
    let mut sha = Sha256::new();
    sha.update(previous);
    sha.update([0; 16]);
    sha.update(0_u64.to_be_bytes());
    sha.update(at.to_be_bytes());
    sha.update(forged.as_bytes());
    let hash: [u8; 32] = sha.finalize().into();
    connection.execute("UPDATE history SET text = ?1, hash = ?2 WHERE seq = ?3", (&forged, hash, seq)).unwrap();
    drop(connection);
    let report = copy.verify();
    let named: Vec<_> = report.differences.iter().map(|found| (found.table, found.column())).collect();
    assert_eq!(named, [("pruned", Some("head"))], "{report:#?}");
}

/// A store that is pruned when `verify` has asked so often.
struct Meanwhile {
    store: MemoryStore,
    calls: Mutex<usize>,
    at: usize,
}

impl Meanwhile {
    async fn called(&self) {
        let now = {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            *calls == self.at
        };
        if now {
            let pruned = prune(&self.store, &at_once()).await.expect("pruning");
            assert!(pruned.records > 0);
        }
    }
}

impl Scan for Meanwhile {
    fn tables(&self) -> &'static [Table] {
        self.store.tables()
    }

    async fn learn(&self) -> Result<Learned, StoreError> {
        self.store.learn().await
    }

    async fn scan_log(&self, after: i64, limit: usize) -> Result<LogPage, StoreError> {
        self.called().await;
        // In small pages, so that there is a middle.
        self.store.scan_log(after, limit.min(50)).await
    }

    async fn scan(&self, table: Table, after: Option<Cursor>, limit: usize) -> Result<ScanPage, StoreError> {
        self.called().await;
        self.store.scan(table, after, limit.min(20)).await
    }

    async fn result(&self, record: RecordId) -> Result<Option<Json>, StoreError> {
        self.store.result(record).await
    }
}

/// Pruning while `verify` reads, at whatever moment, is no damage.
#[test]
fn pruning_meanwhile_is_no_damage() {
    let (mut moments, mut usual, mut restarted) = (0, 0, 0);
    for at in (1..).step_by(3) {
        let clock = Clock::manual(start());
        let store = MemoryStore::new(clock.clone());
        wait(async {
            let (latest, _) = filled(&store, &clock, 3, 10).await;
            clock.set(latest.checked_add(Duration::from_secs(86_400)).expect("a time"));
        });
        let meanwhile = Meanwhile { store, calls: Mutex::default(), at };
        let report = examined(&meanwhile, clock.now());
        assert!(report.is_clean() && report.stopped.is_none(), "pruned at call {at}: {report:#?}");
        let calls = *meanwhile.calls.lock().unwrap();
        if calls < at {
            break;
        }
        moments += 1;
        // Pruned before the first call, it is read once; later on, some of it twice.
        restarted += usize::from(usual > 0 && calls > usual + 5);
        usual = if usual == 0 { calls } else { usual };
    }
    println!("{moments} moments, {restarted} of them led to a new start");
    assert!(moments > 10 && restarted > 0);
}

/// A damaged record is evidence: pruning leaves it, and whoever belongs to it, and takes the others.
#[test]
fn damage_stays() {
    let (folder, clock) = (Folder::new(), Clock::manual(start()));
    let store = SqliteStore::open(folder.file(), clock.clone()).unwrap();
    let ended = wait(lived(&store, 5));
    drop(store);
    let connection = rusqlite::Connection::open(folder.file()).unwrap();
    let sql =
        "UPDATE records SET fields = replace(fields, 'zoe 3 again', 'zoe 3 never') WHERE fields LIKE '%zoe 3 again%'";
    assert_eq!(connection.execute(sql, []).unwrap(), 1);
    drop(connection);
    clock.set(ended.checked_add(Duration::from_secs(86_400)).unwrap());
    let store = SqliteStore::open(folder.file(), clock.clone()).unwrap();
    let pruned = wait(prune(&store, &at_once())).unwrap();
    assert!(pruned.records > 20 && pruned.damaged.len() == 1, "{pruned:?}");
    assert!(wait(store.record(pruned.damaged[0].record)).unwrap().is_some());
    let report = looked_through(&folder.file(), clock.now());
    let named: Vec<_> = report.differences.iter().map(|found| (found.table, found.column())).collect();
    assert_eq!(named, [("records", Some("fields"))], "{report:#?}");
}

/// Played at random, and pruned again and again meanwhile: clean each time. How many records went.
fn pruned_while_played(files: &Files, seed: u64) -> u64 {
    let _running = Running(seed);
    let clock = Clock::manual(start());
    let store = MemoryStore::new(clock.clone());
    wait(async {
        store.put_definitions(files).await.expect("sound files");
        let (mut latest, mut records) = (start(), 0);
        for part in played(files, seed, 200).chunks(50) {
            latest = latest.max(carry_out(&store, part, seed).await);
            clock.set(latest);
            let pruned = prune(&store, &at_once()).await.expect("pruning");
            assert!(pruned.damaged.is_empty(), "seed {seed}: {pruned:?}");
            records += pruned.records;
            let report = verify(&store, latest, &mut ()).await.expect("it can be read");
            assert!(report.is_clean() && report.undecided == 0, "seed {seed}: {report:#?}");
        }
        records
    })
}

/// INV-1, INV-3, INV-7: lifecycles that chance has written, pruned while they are played.
#[test]
fn random_lifecycles_are_pruned_clean() {
    let (mut cases, mut records) = (0, 0);
    for seed in seeds("verify pruned lifecycles", 12) {
        let files = lifecycles(seed, Taste { wild: 0, ..Taste::default() }).into_iter();
        let files = Files { files: files.map(|(name, text)| File { name, text: text.into() }).collect() };
        if onceward_core::load(&files).is_ok() {
            cases += 1;
            records += pruned_while_played(&files, seed);
        }
    }
    println!("{records} records pruned in {cases} cases");
    assert!(cases > 0 && records > 0, "no case was sound");
}

/// INV-1, INV-3, INV-7: the same of the shipped systems and of the stores' own suite.
#[test]
fn shipped_systems_are_pruned_clean() {
    for files in ["execution", "document", "image", "relay", "mesh"].map(system).iter().chain([&suite()]) {
        let records: u64 = seeds("verify pruned systems", 2).iter().map(|seed| pruned_while_played(files, *seed)).sum();
        println!("{}: {records} records pruned", files.files[0].name);
    }
}
