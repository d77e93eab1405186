//! Tests that apply only to PostgreSQL, such as several processes on one server.

mod support;

use std::sync::Arc;

use onceward_core::decide::{Account, Call, ReadKey};
use onceward_core::diagnostic::InputFile;
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_store::scan::Scan as _;
use onceward_store::{
    Clock, ExpiredCountersQuery, InboxRefusal, InboxReply, LeaseQuery, PostgresScanner, PostgresStore, ReadSet,
    SaveResult, Store, StoreError,
};
use onceward_testkit::postgres::{PostgresServer, psql};
use onceward_testkit::{user, worker};
use serde_json::json;
use support::driver::{StoreDriver, create_call, fire_call};
use support::{start_time, suite_files};

async fn open_store(url: &str) -> Result<PostgresStore, StoreError> {
    PostgresStore::open_with_clock(url, Clock::manual(start_time())).await
}

#[tokio::test]
async fn concurrent_first_opens_create_schema_once() {
    let url = PostgresServer::shared().create_database();
    let opens: Vec<_> = (0..8)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { open_store(&url).await.map(|_| ()) })
        })
        .collect();
    for open_task in opens {
        open_task.await.expect("no panic").expect("it opens");
    }
    assert_eq!(psql(&url, "SELECT count(*) FROM onceward.migrations WHERE number > 0"), "1");
}

/// The foreign schema remains unchanged.
#[tokio::test]
async fn foreign_newer_or_unreachable_database_is_rejected() {
    let url = PostgresServer::shared().create_database();
    psql(&url, "CREATE SCHEMA onceward CREATE TABLE theirs (x int)");
    let found = open_store(&url).await;
    assert!(
        matches!(&found, Err(StoreError::ForeignDatabase(why)) if why.contains("not an Onceward database")),
        "{found:?}"
    );
    let url = PostgresServer::shared().create_database();
    drop(open_store(&url).await.unwrap());
    psql(&url, "INSERT INTO onceward.migrations VALUES (99, now())");
    let found = open_store(&url).await;
    assert!(matches!(found, Err(StoreError::SchemaTooNew { found: 99, known: 1 })), "{found:?}");
    for url in ["postgres://unknown@%2Fnowhere%2Fat-all/x", "nonsense://", &format!("{url}_not")] {
        let found = open_store(url).await;
        assert!(matches!(found, Err(StoreError::Unavailable(_))), "{found:?}");
    }
}

/// Covers a second effect and a negative balance.
#[tokio::test]
async fn schema_constraints_reject_invalid_rows() {
    let url = PostgresServer::shared().create_database();
    let store = open_store(&url).await.unwrap();
    store.put_lifecycles(&suite_files()).await.unwrap();
    let mut driver = StoreDriver::new(&store).await;
    let (ann, bob) = (user("ann"), worker("bob"));
    let task = driver.create_record(&ann, "suite.task", json!({}), start_time()).await;
    let token = driver.lease_job(&bob, task, start_time()).await;
    driver.expect_taken(&bob, Call::Commit { record: task, token, result: json!(1), finish: true }, start_time()).await;
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    for (sql, constraint) in [
        ("INSERT INTO onceward.effects SELECT * FROM onceward.effects", "effects_pkey"),
        ("INSERT INTO onceward.accounts VALUES ('coin', 'x', false, -1)", "accounts_check"),
        ("UPDATE onceward.records SET hold = -1", "records_hold_check"),
        ("UPDATE onceward.state_counts SET count = -1", "state_counts_count_check"),
        ("INSERT INTO onceward.counts VALUES (1, 1, 'x', 1, -1)", "counts_count_check"),
        ("INSERT INTO onceward.batches SELECT last, first, batch + 1 FROM onceward.batches", "batches_pkey"),
    ] {
        let error = client.batch_execute(sql).await.expect_err(sql);
        let found = error.as_db_error().and_then(|error| error.constraint()).unwrap_or_default().to_owned();
        assert_eq!(found, constraint, "{sql}");
    }
}

/// Also checks that all tables are in the `onceward` schema.
#[tokio::test]
async fn every_table_has_a_primary_key() {
    let url = PostgresServer::shared().create_database();
    drop(open_store(&url).await.unwrap());
    let without_primary_key_sql = "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'onceward'::regnamespace AND c.relkind = 'r' \
                AND NOT EXISTS (SELECT FROM pg_constraint p WHERE p.conrelid = c.oid AND p.contype = 'p')";
    assert_eq!(psql(&url, without_primary_key_sql), "");
    assert_eq!(psql(&url, "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"), "0");
}

/// Covers definitions, names and records.
#[tokio::test]
async fn lifecycles_of_other_process_are_loaded_on_read() {
    let url = PostgresServer::shared().create_database();
    let (one, two) = (open_store(&url).await.unwrap(), open_store(&url).await.unwrap());
    one.put_lifecycles(&suite_files()).await.unwrap();
    assert_eq!(two.catalog().await.unwrap().revision(), 0);
    let ann = user("ann");
    let id =
        StoreDriver::new(&one).await.create_record(&ann, "suite.box", json!({ "name": "mine" }), start_time()).await;
    let found = two.record(id).await.unwrap().unwrap();
    assert_eq!(&*found.lifecycle.name, "suite.box");
    assert_eq!(two.catalog().await.unwrap().revision(), one.catalog().await.unwrap().revision());
    // A new version, and a record of it that is loaded as part of a batch.
    let mut files = suite_files();
    let InputFile { text, .. } = &mut files.files[0];
    *text = text.replace("max = 10, clash", "max = 11, clash").into();
    one.put_lifecycles(&files).await.unwrap();
    let newer = one.catalog().await.unwrap().revision();
    let mut driver = StoreDriver::new(&one).await;
    for _ in 0..50 {
        let _ = driver.operation(&ann, create_call("suite.box", json!({})));
    }
    let id = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
    let mut read_set = ReadSet::default();
    two.load(&mut read_set, &[ReadKey::Record(id)]).await.unwrap();
    assert!(read_set.snapshot().record(id).is_some());
    assert_eq!(two.catalog().await.unwrap().revision(), newer);
    // Both processes add the same files at once: one version.
    let both = [one, two].map(|store| tokio::spawn(async move { store.put_lifecycles(&suite_files()).await }));
    for put in both {
        assert_eq!(put.await.unwrap().unwrap().revision(), newer);
    }
}

/// The conflict names exactly that key.
#[tokio::test]
async fn concurrent_saves_of_same_unique_key_conflict() {
    let url = PostgresServer::shared().create_database();
    let (one, two) = (open_store(&url).await.unwrap(), open_store(&url).await.unwrap());
    one.put_lifecycles(&suite_files()).await.unwrap();
    let ann = user("ann");
    let mut driver = StoreDriver::new(&one).await;
    let boxes = [
        driver.create_record(&ann, "suite.box", json!({}), start_time()).await,
        driver.create_record(&ann, "suite.box", json!({}), start_time()).await,
    ];
    for round in 0..20 {
        let mut saves = Vec::new();
        for (store, id) in [&one, &two].into_iter().zip(boxes) {
            let mut driver = StoreDriver::new(store).await;
            let mut open = driver.new_batch(start_time());
            let operation = driver.operation(&ann, fire_call(id, "write", json!({ "name": format!("{round}") })));
            driver.decide(&mut open, operation, start_time()).await;
            saves.push((store.clone(), open));
        }
        let saves: Vec<_> = saves
            .into_iter()
            .map(|(store, open)| {
                tokio::spawn(async move { store.save(&Arc::new(open.read_set), &Arc::new(open.batch)).await })
            })
            .collect();
        let (mut saved, mut conflicts) = (0, 0);
        for save in saves {
            match save.await.expect("no panic").unwrap() {
                SaveResult::Saved { .. } => saved += 1,
                SaveResult::Conflict(conflict) => {
                    assert!(matches!(&conflict.changed_keys[..], [ReadKey::Unique(_)]), "{conflict:?}");
                    conflicts += 1;
                }
            }
        }
        assert_eq!((saved, conflicts), (1, 1));
    }
    let log = one.log(0, 1_000).await.unwrap();
    assert_eq!(log.iter().map(|entry| entry.seq).collect::<Vec<_>>(), (1..=22).collect::<Vec<_>>());
}

/// A refusal depends on loaded values, and no save validates them.
#[tokio::test]
async fn load_reads_one_snapshot() {
    let url = PostgresServer::shared().create_database();
    let (one, two) = (open_store(&url).await.unwrap(), open_store(&url).await.unwrap());
    one.put_lifecycles(&suite_files()).await.unwrap();
    let ann = user("ann");
    let mut driver = StoreDriver::new(&one).await;
    let id = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
    driver.expect_taken(&ann, fire_call(id, "earn", json!({ "amount": 10 })), start_time()).await;
    let purse = Account::Named { asset: "coin".into(), name: "purse:ann".into() };
    let keys = [ReadKey::Record(id), ReadKey::Account(purse.clone())];
    two.load(&mut ReadSet::default(), &keys).await.expect("the first load prepares the statements");
    // Another session spends and has not committed yet.
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let spend_sql = "BEGIN; LOCK TABLE onceward.accounts IN ACCESS EXCLUSIVE MODE; \
                 UPDATE onceward.records SET version = version + 1; \
                 UPDATE onceward.accounts SET balance = balance - 10 WHERE name = 'purse:ann'";
    client.batch_execute(spend_sql).await.unwrap();
    let load_task = tokio::spawn(async move {
        let mut base = ReadSet::default();
        two.load(&mut base, &keys).await.map(|()| base)
    });
    let waiting_sql = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'onceward.accounts'::regclass";
    let started_at = std::time::Instant::now();
    while client.query_one(waiting_sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(!load_task.is_finished() && started_at.elapsed().as_secs() < 20, "the load never reached the lock");
    }
    client.batch_execute("COMMIT").await.unwrap();
    let base = load_task.await.expect("no panic").unwrap();
    let version = base.snapshot().record(id).expect("it exists").version;
    assert_eq!((version, base.snapshot().accounts[&purse]), (2, 10), "record and account are from the same snapshot");
}

/// Found at the latest by the next full scan.
#[tokio::test]
async fn higher_priority_job_of_other_process_is_found() {
    let url = PostgresServer::shared().create_database();
    let (one, two) = (open_store(&url).await.unwrap(), open_store(&url).await.unwrap());
    one.put_lifecycles(&suite_files()).await.unwrap();
    let ann = user("ann");
    let mut driver = StoreDriver::new(&one).await;
    let first = driver.create_record(&ann, "suite.task", json!({}), start_time()).await;
    let query = LeaseQuery { lifecycles: vec!["suite.task".into()], now: start_time(), limit: 10 };
    assert_eq!(two.lease_candidates(&query).await.unwrap()[0].record, first);
    let urgent = driver.create_record(&ann, "suite.task", json!({ "weight": 50 }), start_time()).await;
    assert_eq!(one.lease_candidates(&query).await.unwrap()[0].record, urgent, "the store finds its own jobs at once");
    let started_at = std::time::Instant::now();
    while two.lease_candidates(&query).await.unwrap()[0].record != urgent {
        assert!(started_at.elapsed().as_secs() < 20, "the job was never found");
    }
}

/// Such keys are stored as hashes.
#[tokio::test]
async fn unique_keys_longer_than_index_limit_stay_distinct() {
    let url = PostgresServer::shared().create_database();
    let store = open_store(&url).await.unwrap();
    let text = include_str!("support/box.toml");
    let name = text.lines().find(|line| line.starts_with("name")).expect("a field");
    let longer = "name = { type = \"string\", optional = true, max = 20000 }";
    let mut files = suite_files();
    files.files[0].text = text.replace(name, longer).into();
    store.put_lifecycles(&files).await.unwrap();
    let ann = user("ann");
    let mut driver = StoreDriver::new(&store).await;
    let one = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
    let two = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
    let long_name_call =
        |last: char| fire_call(one, "write", json!({ "name": format!("{}{last}", "x".repeat(10_000)) }));
    driver.expect_taken(&ann, long_name_call('a'), start_time()).await;
    let other = fire_call(two, "write", json!({ "name": format!("{}b", "x".repeat(10_000)) }));
    driver.expect_taken(&ann, other, start_time()).await;
    let same = fire_call(two, "write", json!({ "name": format!("{}a", "x".repeat(10_000)) }));
    assert_eq!(&*driver.expect_refused(&ann, same, start_time()).await.code, "taken");
}

/// Allows for a small difference from the machine's clock.
#[tokio::test]
async fn store_time_is_database_time_and_monotonic() {
    let store = PostgresStore::open(&PostgresServer::shared().create_database()).await.unwrap();
    let (machine_time, database_time) = (Clock::machine().now(), store.now().await.unwrap());
    assert!(
        database_time.micros().abs_diff(machine_time.micros()) < 5_000_000,
        "{database_time} is far from {machine_time}"
    );
    let (one, two) = (store.now().await.unwrap(), store.now().await.unwrap());
    assert!(one >= database_time && two >= one);
}

/// Meanwhile calls return an error. All committed data remains.
#[tokio::test]
async fn store_recovers_after_server_restart() {
    let server = PostgresServer::start();
    let store = open_store(&server.create_database()).await.unwrap();
    store.put_lifecycles(&suite_files()).await.unwrap();
    let mut driver = StoreDriver::new(&store).await;
    let ann = user("ann");
    let id = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
    let mut open = driver.new_batch(start_time());
    let operation = driver.operation(&ann, fire_call(id, "write", json!({ "number": 1 })));
    driver.decide(&mut open, operation, start_time()).await;
    server.stop_immediately();
    let save_result = driver.try_save(&open).await;
    assert!(matches!(save_result, Err(StoreError::Unavailable(_))), "{save_result:?}");
    assert!(matches!(store.record(id).await, Err(StoreError::Unavailable(_))));
    server.restart();
    assert_eq!(store.record(id).await.unwrap().unwrap().version, 1);
    assert!(matches!(driver.save(&open).await, SaveResult::Saved { first_seq: 2, last_seq: 2 }));
    let later = start_time().checked_add(Duration::from_secs(1)).unwrap();
    driver.expect_taken(&ann, fire_call(id, "write", json!({ "number": 2 })), later).await;
    assert_eq!(store.history(id, 0, 10).await.unwrap().len(), 3);
}

/// An empty page means the end of the log.
#[tokio::test]
async fn log_pages_continue_past_pruned_gaps() {
    let url = PostgresServer::shared().create_database();
    let store = open_store(&url).await.unwrap();
    store.put_lifecycles(&suite_files()).await.unwrap();
    let mut driver = StoreDriver::new(&store).await;
    for _ in 0..20 {
        driver.create_record(&user("ann"), "suite.task", json!({}), start_time()).await;
    }
    let delete_sql =
        "DELETE FROM onceward.history h USING onceward.batches b WHERE h.entry_id >> 20 = b.batch AND b.last BETWEEN";
    psql(&url, &format!("{delete_sql} 3 AND 9"));
    psql(&url, &format!("{delete_sql} 12 AND 17"));
    psql(&url, "DELETE FROM onceward.batches WHERE last BETWEEN 13 AND 16");
    let scanner = PostgresScanner::open(&url).await.unwrap();
    for limit in [1, 2, 3, 5, 100] {
        let (mut read, mut scanned) = (vec![0], vec![0]);
        loop {
            let page = store.log(read[read.len() - 1], limit).await.unwrap();
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            read.extend(page.iter().map(|entry| entry.seq));
        }
        assert_eq!(read, [0, 1, 2, 10, 11, 18, 19, 20], "{limit}");
        loop {
            let page = scanner.scan_log(scanned[scanned.len() - 1], limit).await.unwrap().rows;
            if page.is_empty() {
                break;
            }
            scanned.extend(page.iter().map(|row| row.seq));
        }
        assert_eq!(scanned, [0, 1, 2, 10, 11, 18, 19, 20], "{limit}");
    }
}

/// The table also limits the size of one call.
#[tokio::test]
async fn inbox_calls_are_size_bounded_and_success_wins_over_refusal() {
    let url = PostgresServer::shared().create_database();
    let store = open_store(&url).await.unwrap();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let insert_sql = "INSERT INTO onceward.inbox (owner, key, lifecycle, input) \
                SELECT 'shop', 'large ' || n, 'suite.box', jsonb_build_object('x', repeat('x', $1)) FROM generate_series(1, $2) n";
    let refused = client.execute(insert_sql, &[&(1 << 20), &1]).await.unwrap_err();
    assert_eq!(refused.as_db_error().and_then(|error| error.constraint()), Some("inbox_input_size"));
    client.execute(insert_sql, &[&1_000_000, &40]).await.unwrap();
    let mut fetched = Vec::new();
    for expected in [17, 17, 6, 0] {
        let calls = store.inbox_calls(100).await.unwrap();
        assert_eq!(calls.len(), expected);
        fetched.extend(calls.iter().map(|call| call.id));
    }
    assert!(fetched.is_sorted() && fetched.len() == 40, "{fetched:?}");
    let (number, record) = (fetched[0], RecordId(uuid::Uuid::from_u128(7)));
    let refusal = InboxRefusal { status: 404, code: "no_lifecycle".to_owned(), reason: "none".to_owned() };
    let (success, refused) = (Ok(record), Err(refusal));
    for outcome in [&refused, &success, &refused] {
        let answer = InboxReply { call_id: number, outcome: outcome.clone() };
        store.answer_inbox_calls(&[answer]).await.unwrap();
    }
    let reply_sql = format!("SELECT subject, status, code, reason FROM onceward.inbox WHERE number = {number}");
    assert_eq!(psql(&url, &reply_sql), format!("{record}|||"));
}

async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The counter is pruned after the save claimed it and before the save locks it.
#[tokio::test]
async fn save_retries_when_counter_is_pruned_concurrently() {
    let url = PostgresServer::shared().create_database();
    let store = open_store(&url).await.unwrap();
    store.put_lifecycles(&suite_files()).await.unwrap();
    let mut driver = StoreDriver::new(&store).await;
    let (ann, bob) = (user("ann"), user("bob"));
    let first = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
    driver.expect_taken(&ann, fire_call(first, "empty", json!({})), start_time()).await;
    let purse = driver.create_record(&bob, "suite.box", json!({}), start_time()).await;
    let counters_sql = "SELECT count FROM onceward.counts ORDER BY count";
    assert_eq!(psql(&url, counters_sql), "0\n1", "ann has no open records");
    // The save claims Ann's counter first, then waits for Bob's account.
    let mut open = driver.new_batch(start_time());
    for (actor, call) in
        [(&ann, create_call("suite.box", json!({}))), (&bob, fire_call(purse, "earn", json!({ "amount": 1 })))]
    {
        let operation = driver.operation(actor, call);
        driver.decide(&mut open, operation, start_time()).await;
    }
    let (client, watcher) = (connect(&url).await, connect(&url).await);
    client
        .batch_execute("BEGIN; INSERT INTO onceward.accounts (asset, name, outside, balance) VALUES ('coin', 'purse:bob', false, 0)")
        .await
        .unwrap();
    let save_task = tokio::spawn({
        let store = store.clone();
        async move { store.save(&Arc::new(open.read_set), &Arc::new(open.batch)).await }
    });
    let waiting_sql =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while watcher.query_one(waiting_sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(!save_task.is_finished(), "the save did not wait for the lock");
    }
    let deleted = store
        .delete_expired_counters(&ExpiredCountersQuery { limit: 100, ..ExpiredCountersQuery::default() })
        .await
        .unwrap();
    assert_eq!(deleted.deleted, 1);
    client.batch_execute("ROLLBACK").await.unwrap();
    let saved = save_task.await.expect("no panic").expect("the save succeeds");
    assert!(matches!(saved, SaveResult::Saved { .. }), "{saved:?}");
    assert_eq!(psql(&url, counters_sql), "1\n1");
}

/// Covers a long history.
#[tokio::test]
async fn history_page_reads_no_later_entries() {
    let url = PostgresServer::shared().create_database();
    let store = open_store(&url).await.unwrap();
    store.put_lifecycles(&suite_files()).await.unwrap();
    let mut driver = StoreDriver::new(&store).await;
    let ann = user("ann");
    let id = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
    let mut open = driver.new_batch(start_time());
    for number in 0..999 {
        let operation = driver.operation(&ann, fire_call(id, "write", json!({ "number": number })));
        driver.decide(&mut open, operation, start_time()).await;
    }
    driver.save(&open).await;
    let page = async |after: u64| {
        let entries = store.history(id, after, 100).await?;
        Ok::<_, StoreError>(entries.iter().map(|entry| entry.version).collect::<Vec<_>>())
    };
    assert_eq!(page(0).await.unwrap(), (1..=100).collect::<Vec<_>>());
    psql(&url, "UPDATE onceward.history SET previous = NULL WHERE version = 900");
    assert_eq!(page(100).await.unwrap(), (101..=200).collect::<Vec<_>>());
    assert_eq!(page(600).await.unwrap(), (601..=700).collect::<Vec<_>>());
    assert!(page(800).await.is_err(), "the page reaches the damage");
    // A remembered position that no longer matches is not used.
    psql(&url, "UPDATE onceward.history SET record = 99 WHERE version = 256");
    assert!(page(50).await.is_err(), "the backward links from the end are broken");
}
