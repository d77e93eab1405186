//! Pruned databases: the report says what was pruned, and the rest is verified.

use std::sync::Mutex;
use std::time::Duration as Length;

use onceward_core::decide::Call;
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_engine::{PruneOptions, PruneReport, RetentionPolicy, VerifyReport, prune, verify};
use onceward_store::scan::{CatalogScan, ProjectionTable, Scan, ScanCursor, ScanPage, StoredLogPage};
use onceward_store::{
    AnyStore, Clock, MemoryStore, PostgresScanner, PostgresStore, SqliteScanner, SqliteStore, Store, StoreError,
};
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::random::{GeneratorOptions, Rng, generate_lifecycles, theme_seeds};
use onceward_testkit::{user, worker};
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use crate::support::driver::{StoreDriver, fire_call};
use crate::support::{TempDir, block_on, start_time, suite_files, system_files};
use crate::test_database::{
    PrintSeedOnPanic, TestDatabase, fill_randomly, random_operations, save_operations, verify_file, verify_store,
};

/// Makes everything that has ended prunable at once.
pub(crate) fn prune_everything() -> PruneOptions {
    let retention = RetentionPolicy {
        records_ttl: Some(Length::ZERO),
        idempotency_keys_ttl: Some(Length::ZERO),
        ..RetentionPolicy::default()
    };
    PruneOptions { retention, ..PruneOptions::default() }
}

/// Fills a store with ended records of many kinds; some are referenced by live ones.
pub(crate) async fn fill_with_ended_records<S: Store>(store: &S, seed: u64) -> Time {
    for files in ["execution", "document", "image", "relay"].map(system_files).iter().chain([&suite_files()]) {
        store.put_lifecycles(files).await.expect("valid files");
    }
    let mut driver = StoreDriver::new(store).await;
    // First, because ids derive from times and numbers.
    let now = start_time().checked_sub(Duration::from_secs(3_600)).expect("a time");
    let (zoe, bob) = (user("zoe"), worker("bob"));
    let room = driver.create_record(&zoe, "suite.box", json!({ "name": "room" }), now).await;
    let full =
        driver.create_record(&zoe, "suite.box", json!({ "name": "full", "beside": room.to_string() }), now).await;
    for number in 0..12 {
        let target_box = if number % 2 == 0 { room } else { full };
        let task =
            driver.create_record(&zoe, "suite.task", json!({ "lane": "z", "box": target_box.to_string() }), now).await;
        let token = driver.lease_job(&bob, task, now).await;
        let commit = Call::Commit { record: task, token, result: json!({ "number": number }), finish: true };
        driver.expect_taken(&bob, commit, now).await;
        let fields = json!({ "serial": format!("zoe {number}"), "seat": format!("z{number}"), "price": number, "box": room.to_string() });
        let stub = driver.create_record(&zoe, "suite.stub", fields, now).await;
        driver
            .expect_taken(&zoe, fire_call(stub, "renumber", json!({ "serial": format!("zoe {number} again") })), now)
            .await;
        driver.expect_taken(&zoe, fire_call(stub, "tear", json!({})), now).await;
    }
    // It is pruned with the tasks that its lifecycle counts; the other one stays with its tasks.
    driver.expect_taken(&zoe, fire_call(full, "empty", json!({})), now).await;
    let mut latest = now;
    for (number, name) in (100..).zip(["execution", "document", "image", "relay"]) {
        let operations = random_operations(&system_files(name), seed.wrapping_add(number), 120);
        latest = latest.max(save_operations(store, &operations, seed).await);
    }
    latest
}

/// Fills a store, prunes it a day later, and fills it again.
pub(crate) async fn fill_prune_and_fill<S: Store>(
    store: &S,
    clock: &Clock,
    seed: u64,
    operations: usize,
) -> (Time, PruneReport) {
    let ended = fill_with_ended_records(store, seed).await;
    clock.set(ended.checked_add(Duration::from_secs(86_400)).expect("a time"));
    let pruned = prune(store, &prune_everything()).await.expect("pruning");
    (ended.max(fill_randomly(store, seed, operations).await).max(clock.now()), pruned)
}

async fn verify_any_store(store: &AnyStore, folder: &TempDir, url: &str, now: Time) -> VerifyReport {
    let report = match store {
        AnyStore::Memory(memory) => verify(memory, now, &mut ()).await,
        AnyStore::Sqlite(_) => verify(&SqliteScanner::open(folder.database_path()).unwrap(), now, &mut ()).await,
        AnyStore::Postgres(_) => verify(&PostgresScanner::open(url).await.unwrap(), now, &mut ()).await,
    };
    report.expect("the read succeeds")
}

#[test]
fn pruned_database_verifies_clean_on_every_store() {
    for seed in theme_seeds("verify pruned", 2) {
        let _running = PrintSeedOnPanic(seed);
        println!("seed {seed}");
        let mut first: Option<(PruneReport, Vec<String>)> = None;
        let (folder, url) = (TempDir::new(), PostgresServer::shared().create_database());
        for name in ["memory", "SQLite", "PostgreSQL"] {
            println!("on {name}");
            let clock = Clock::manual(start_time());
            let found = block_on(async {
                let store = match name {
                    "memory" => AnyStore::Memory(MemoryStore::new(clock.clone())),
                    "SQLite" => {
                        AnyStore::Sqlite(SqliteStore::open(folder.database_path(), clock.clone()).expect("a new file"))
                    }
                    _ => {
                        let store = PostgresStore::open_with_clock(&url, clock.clone()).await;
                        AnyStore::Postgres(store.expect("a new database"))
                    }
                };
                let (latest, pruned) = fill_prune_and_fill(&store, &clock, seed, 40).await;
                assert!(pruned.records > 20 && pruned.held_back > 0 && pruned.damaged.is_empty(), "{pruned:?}");
                // Later operations are re-decided with the same result.
                let report = verify_any_store(&store, &folder, &url, latest).await;
                assert!(report.is_clean() && report.redecided > 100 && report.not_redecided == 0, "{report:#?}");
                assert_eq!(report.pruned.records, pruned.records);
                clock.set(latest.checked_add(Duration::from_secs(86_400)).expect("a time"));
                let again = prune(&store, &prune_everything()).await.expect("pruning");
                assert!(again.records > 0, "{again:?}");
                let floor = store.prune_state().await.unwrap().last_pruned_seq;
                let log = store.log(floor, 10_000).await.unwrap();
                let report = verify_any_store(&store, &folder, &url, clock.now()).await;
                assert!(report.is_clean(), "{report:#?}");
                let beyond = report.pruned;
                assert_eq!(beyond.records, pruned.records + again.records);
                assert_eq!(beyond.entries, pruned.entries + again.entries);
                assert_eq!(beyond.floor_seq, floor);
                assert!(beyond.not_redecided > 0 && report.not_redecided == 0);
                // A dry run counts the same.
                assert_eq!(
                    prune(&store, &PruneOptions { dry_run: true, ..prune_everything() }).await.unwrap().records,
                    0
                );
                (again, log.iter().map(|entry| format!("{entry:?}")).collect::<Vec<_>>())
            });
            match &first {
                None => first = Some(found),
                Some(first) => assert_eq!(*first, found, "memory (left) and {name} (right) differ"),
            }
        }
    }
}

pub(crate) fn pruned_database(seed: u64, operations: usize) -> TestDatabase {
    TestDatabase::filled_by(|store, clock| {
        block_on(async { fill_prune_and_fill(store, clock, seed, operations).await.0 })
    })
}

/// INV-4: an entry of a record, an entry without a record, or a checkpoint.
#[test]
fn deleted_entry_of_pruned_log_is_reported() {
    let built = pruned_database(7, 10);
    let mut chance = Rng::new(7);
    let copy = built.copy();
    let connection = copy.connection();
    let seqs: Vec<i64> = {
        let mut statement = connection.prepare("SELECT seq FROM history ORDER BY seq").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let sql = "SELECT seq FROM history WHERE text LIKE '%\"pruned\"%' LIMIT 1";
    let checkpoint: i64 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    let some = (0..12).map(|_| seqs[chance.below(seqs.len())]);
    for seq in some.chain([checkpoint, seqs[seqs.len() - 1]]) {
        let copy = built.copy();
        assert_eq!(copy.connection().execute("DELETE FROM history WHERE seq = ?1", [seq]).unwrap(), 1);
        let report = copy.verify();
        // Only log_seq shows that the last entry is missing.
        let is_last = seqs.last() == Some(&seq);
        let (table, key) = if is_last { ("log_seq", "1".to_owned()) } else { ("history", seq.to_string()) };
        let missed = report.differences.iter().any(|found| found.table == table && found.key == key);
        assert!(missed, "seq {seq}: {report:#?}");
    }
}

/// The next checkpoint, or the table, has the original hash.
#[test]
fn forged_checkpoint_is_reported() {
    let built = pruned_database(11, 5);
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
    assert_eq!(named, [("prune_state", Some("head"))], "{report:#?}");
}

/// Prunes its store after a number of scans.
struct PruneDuringScan {
    store: MemoryStore,
    calls: Mutex<usize>,
    prune_at_call: usize,
}

impl PruneDuringScan {
    async fn count_call(&self) {
        let now = {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            *calls == self.prune_at_call
        };
        if now {
            let pruned = prune(&self.store, &prune_everything()).await.expect("pruning");
            assert!(pruned.records > 0);
        }
    }
}

impl Scan for PruneDuringScan {
    fn tables(&self) -> &'static [ProjectionTable] {
        self.store.tables()
    }

    async fn scan_catalog(&self) -> Result<CatalogScan, StoreError> {
        self.store.scan_catalog().await
    }

    async fn scan_log(&self, after: i64, limit: usize) -> Result<StoredLogPage, StoreError> {
        self.count_call().await;
        // Small pages, so that pruning happens between two of them.
        self.store.scan_log(after, limit.min(50)).await
    }

    async fn scan(
        &self,
        table: ProjectionTable,
        after: Option<ScanCursor>,
        limit: usize,
    ) -> Result<ScanPage, StoreError> {
        self.count_call().await;
        self.store.scan(table, after, limit.min(20)).await
    }

    async fn effect_result(&self, record: RecordId) -> Result<Option<Json>, StoreError> {
        self.store.effect_result(record).await
    }
}

/// At any moment of the verification.
#[test]
fn prune_during_verify_reports_no_damage() {
    let (mut moments, mut usual, mut restarted) = (0, 0, 0);
    for at in (1..).step_by(3) {
        let clock = Clock::manual(start_time());
        let store = MemoryStore::new(clock.clone());
        block_on(async {
            let (latest, _) = fill_prune_and_fill(&store, &clock, 3, 10).await;
            clock.set(latest.checked_add(Duration::from_secs(86_400)).expect("a time"));
        });
        let meanwhile = PruneDuringScan { store, calls: Mutex::default(), prune_at_call: at };
        let report = verify_store(&meanwhile, clock.now());
        assert!(report.is_clean() && report.stopped.is_none(), "pruned at call {at}: {report:#?}");
        let calls = *meanwhile.calls.lock().unwrap();
        if calls < at {
            break;
        }
        moments += 1;
        // Pruned before the first call, the log is read once; later, parts of it twice.
        restarted += usize::from(usual > 0 && calls > usual + 5);
        usual = if usual == 0 { calls } else { usual };
    }
    println!("{moments} prunes during verification, {restarted} restarts");
    assert!(moments > 10 && restarted > 0);
}

/// Its reference group stays too.
#[test]
fn prune_keeps_damaged_records() {
    let (folder, clock) = (TempDir::new(), Clock::manual(start_time()));
    let store = SqliteStore::open(folder.database_path(), clock.clone()).unwrap();
    let ended = block_on(fill_with_ended_records(&store, 5));
    drop(store);
    let connection = rusqlite::Connection::open(folder.database_path()).unwrap();
    let sql =
        "UPDATE records SET fields = replace(fields, 'zoe 3 again', 'zoe 3 never') WHERE fields LIKE '%zoe 3 again%'";
    assert_eq!(connection.execute(sql, []).unwrap(), 1);
    drop(connection);
    clock.set(ended.checked_add(Duration::from_secs(86_400)).unwrap());
    let store = SqliteStore::open(folder.database_path(), clock.clone()).unwrap();
    let pruned = block_on(prune(&store, &prune_everything())).unwrap();
    assert!(pruned.records > 20 && pruned.damaged.len() == 1, "{pruned:?}");
    assert!(block_on(store.record(pruned.damaged[0].record)).unwrap().is_some());
    let report = verify_file(&folder.database_path(), clock.now());
    let named: Vec<_> = report.differences.iter().map(|found| (found.table, found.column())).collect();
    assert_eq!(named, [("records", Some("fields"))], "{report:#?}");
}

/// Runs random operations with pruning in between, and verifies each time; returns the pruned records.
fn prune_during_random_operations(files: &InputFiles, seed: u64) -> u64 {
    let _running = PrintSeedOnPanic(seed);
    let clock = Clock::manual(start_time());
    let store = MemoryStore::new(clock.clone());
    block_on(async {
        store.put_lifecycles(files).await.expect("valid files");
        let (mut latest, mut records) = (start_time(), 0);
        for part in random_operations(files, seed, 200).chunks(50) {
            latest = latest.max(save_operations(&store, part, seed).await);
            clock.set(latest);
            let pruned = prune(&store, &prune_everything()).await.expect("pruning");
            assert!(pruned.damaged.is_empty(), "seed {seed}: {pruned:?}");
            records += pruned.records;
            let report = verify(&store, latest, &mut ()).await.expect("the read succeeds");
            assert!(report.is_clean() && report.not_redecided == 0, "seed {seed}: {report:#?}");
        }
        records
    })
}

/// INV-1, INV-3, INV-7
#[test]
fn random_lifecycles_verify_clean_after_prune() {
    let (mut cases, mut records) = (0, 0);
    for seed in theme_seeds("verify pruned lifecycles", 12) {
        let files = generate_lifecycles(seed, GeneratorOptions { careless_percent: 0, ..GeneratorOptions::default() })
            .into_iter();
        let files = InputFiles { files: files.map(|(name, text)| InputFile { name, text: text.into() }).collect() };
        if onceward_core::load_definitions(&files).is_ok() {
            cases += 1;
            records += prune_during_random_operations(&files, seed);
        }
    }
    println!("{records} records pruned in {cases} cases");
    assert!(cases > 0 && records > 0, "no generated case is valid");
}

/// INV-1, INV-3, INV-7: with the store test suite too.
#[test]
fn shipped_systems_verify_clean_after_prune() {
    for files in ["execution", "document", "image", "relay", "mesh"].map(system_files).iter().chain([&suite_files()]) {
        let records: u64 = theme_seeds("verify pruned systems", 2)
            .iter()
            .map(|seed| prune_during_random_operations(files, *seed))
            .sum();
        println!("{}: {records} records pruned", files.files[0].name);
    }
}
