//! The inbox: a call that a user's own transaction inserts is executed once, or visibly refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use onceward_engine::{CheckError, CheckRegistry, Engine, EngineConfig, PruneOptions};
use onceward_store::{AnyStore, Clock, ListQuery, Store};
use onceward_testkit::postgres::{PostgresServer, psql};
use tokio_postgres::NoTls;

use crate::support::held_checks::HeldChecks;
use crate::support::{JOB_LIFECYCLE, TEST_TIMEOUT, json_object, start_time};
use crate::{assert_verified, open_engines};

/// Waits until every call is answered. Polls, because the engine writes answers without a notification.
async fn wait_until_all_answered(client: &tokio_postgres::Client) {
    let began = tokio::time::Instant::now();
    loop {
        let row = client.query_one("SELECT count(*) FROM onceward.inbox WHERE answered_at IS NULL", &[]).await.unwrap();
        if row.get::<_, i64>(0) == 0 {
            return;
        }
        assert!(began.elapsed() < TEST_TIMEOUT, "the call was not answered in time");
        tokio::task::yield_now().await;
    }
}

async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn count_jobs(engine: &Engine<AnyStore>) -> usize {
    let query = ListQuery { lifecycle: Some(JOB_LIFECYCLE.into()), limit: 1_000, ..ListQuery::default() };
    engine.store().list(&query).await.unwrap().records.len()
}

/// With the user's own table, through psql.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn inbox_calls_from_psql_are_executed_or_refused() {
    let url = PostgresServer::shared().create_database();
    psql(&url, "CREATE TABLE orders (number int PRIMARY KEY, item text NOT NULL)");
    let engines = open_engines(1, &url, &Clock::manual(start_time()), &EngineConfig::default()).await;
    let client = connect(&url).await;
    let order = |number: u32, lifecycle: &str| {
        format!(
            "BEGIN; INSERT INTO orders VALUES ({number}, 'cup'); INSERT INTO onceward.inbox (owner, key, lifecycle) \
             VALUES ('shop', 'order {number}', '{lifecycle}'); NOTIFY onceward; COMMIT"
        )
    };
    psql(&url, &order(1, "race.prize"));
    wait_until_all_answered(&client).await;
    let seen = "SELECT key, subject IS NOT NULL, code FROM onceward.inbox ORDER BY number";
    assert_eq!(psql(&url, seen), "order 1|t|");
    let subject: uuid::Uuid = psql(&url, "SELECT subject FROM onceward.inbox").parse().unwrap();
    let id = onceward_core::value::RecordId(subject);
    assert_eq!(&*engines[0].store().record(id).await.unwrap().unwrap().owner, "shop");
    // The refusal is visible beside its order.
    psql(&url, &order(2, "no.such_thing"));
    wait_until_all_answered(&client).await;
    let refused = "SELECT i.status >= 400, i.code <> '', i.reason <> '', i.subject IS NULL FROM orders o \
                   JOIN onceward.inbox i ON i.key = 'order ' || o.number WHERE o.number = 2";
    assert_eq!(psql(&url, refused), "t|t|t|t");
    // An event of the record that the first call created.
    let cancel = format!(
        "INSERT INTO onceward.inbox (owner, key, event, record) VALUES ('shop', 'cancel 1', 'cancel', '{subject}')"
    );
    psql(&url, &cancel);
    wait_until_all_answered(&client).await;
    assert_eq!(psql(&url, "SELECT subject, code FROM onceward.inbox WHERE key = 'cancel 1'"), format!("{subject}|"));
    assert_eq!(engines[0].store().record(id).await.unwrap().unwrap().version, 2);
    // The table's constraints reject malformed calls.
    for (columns, values) in [
        ("owner, key", "'shop', 'x'"),
        ("owner, key, event", "'shop', 'x', 'cancel'"),
        ("owner, key, lifecycle", "'', 'x', 'a.b'"),
        ("owner, key, lifecycle", "'engine', 'x', 'a.b'"),
        ("owner, key, lifecycle, roles", "'shop', 'x', 'a.b', '{engine}'"),
        ("owner, key, lifecycle, input", "'shop', 'x', 'a.b', '[]'"),
        ("owner, key, lifecycle", "'shop', 'order 1', 'a.b'"),
    ] {
        let sql = format!("INSERT INTO onceward.inbox ({columns}) VALUES ({values})");
        assert!(client.batch_execute(&sql).await.is_err(), "{sql}");
    }
}

/// One of three engines executes each call.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn committed_inbox_calls_execute_once_and_rolled_back_never() {
    const ORDER_COUNT: i32 = 200;
    let url = PostgresServer::shared().create_database();
    let engines = open_engines(3, &url, &Clock::manual(start_time()), &EngineConfig::default()).await;
    let mut client = connect(&url).await;
    client.batch_execute("CREATE TABLE orders (number int PRIMARY KEY)").await.unwrap();
    for number in 0..ORDER_COUNT {
        let transaction = client.transaction().await.unwrap();
        transaction.execute("INSERT INTO orders VALUES ($1)", &[&number]).await.unwrap();
        let sql = "INSERT INTO onceward.inbox (owner, key, lifecycle) VALUES ('shop', $1, 'execution.job')";
        transaction.execute(sql, &[&format!("order {number}")]).await.unwrap();
        if number % 4 == 3 {
            transaction.rollback().await.unwrap();
        } else {
            transaction.commit().await.unwrap();
        }
    }
    wait_until_all_answered(&client).await;
    let expected_jobs = usize::try_from(ORDER_COUNT * 3 / 4).unwrap();
    assert_eq!(count_jobs(&engines[0]).await, expected_jobs);
    let row = client.query_one("SELECT count(DISTINCT subject), count(*) FROM onceward.inbox", &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (150, 150));
    // As if every engine had died after executing a call and before writing its answer.
    let before = client.query("SELECT number, subject FROM onceward.inbox ORDER BY number", &[]).await.unwrap();
    let forget = "UPDATE onceward.inbox SET answered_at = NULL, taken_until = NULL, subject = NULL; NOTIFY onceward";
    client.batch_execute(forget).await.unwrap();
    wait_until_all_answered(&client).await;
    let after = client.query("SELECT number, subject FROM onceward.inbox ORDER BY number", &[]).await.unwrap();
    let pairs = |rows: &[tokio_postgres::Row]| -> Vec<(i64, Option<uuid::Uuid>)> {
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    assert_eq!(pairs(&before), pairs(&after), "the same answers");
    assert_eq!(count_jobs(&engines[0]).await, expected_jobs, "no record was created again");
    // The same key with another request is an error.
    let other = "DELETE FROM onceward.inbox WHERE key = 'order 0'; \
                 INSERT INTO onceward.inbox (owner, key, lifecycle, input) \
                 VALUES ('shop', 'order 0', 'execution.job', '{\"x\": 1}'), ('shop', 'huge', 'execution.job', '{\"x\": 1e400}')";
    client.batch_execute(other).await.unwrap();
    wait_until_all_answered(&client).await;
    let codes = client.query("SELECT code FROM onceward.inbox WHERE code IS NOT NULL ORDER BY key", &[]).await.unwrap();
    let codes: Vec<&str> = codes.iter().map(|row| row.get(0)).collect();
    assert_eq!(codes, ["bad_letter", "idempotency_key_reused"]);
    for engine in &engines {
        engine.close().await;
    }
    assert_verified(&url, start_time()).await;
}

fn insert_call_sql(key: &str, lifecycle: &str, input: &str) -> String {
    format!(
        "INSERT INTO onceward.inbox (owner, key, lifecycle, input) VALUES ('shop', '{key}', '{lifecycle}', '{input}'); \
         NOTIFY onceward"
    )
}

async fn wait_for_answer(client: &tokio_postgres::Client, key: &str) {
    let began = tokio::time::Instant::now();
    let sql = "SELECT count(*) FROM onceward.inbox WHERE key = $1 AND answered_at IS NOT NULL";
    while client.query_one(sql, &[&key]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(began.elapsed() < TEST_TIMEOUT, "the call was not answered in time");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slow_check_delays_only_its_own_call() {
    let url = PostgresServer::shared().create_database();
    let (checks, held) = HeldChecks::create();
    let config = EngineConfig { checks, check_timeout: TEST_TIMEOUT, ..EngineConfig::default() };
    let engines = open_engines(1, &url, &Clock::manual(start_time()), &config).await;
    let client = connect(&url).await;
    client.batch_execute(&insert_call_sql("slow", "race.note", r#"{"text": "hm"}"#)).await.unwrap();
    held.wait_until_asked(1).await;
    for number in 0..3 {
        let key = format!("quick {number}");
        client.batch_execute(&insert_call_sql(&key, JOB_LIFECYCLE, "{}")).await.unwrap();
        wait_for_answer(&client, &key).await;
    }
    assert_eq!(psql(&url, "SELECT key FROM onceward.inbox WHERE answered_at IS NULL"), "slow");
    held.release();
    wait_until_all_answered(&client).await;
    assert_eq!(psql(&url, "SELECT count(*) FROM onceward.inbox WHERE subject IS NOT NULL"), "4");
    engines[0].close().await;
}

/// It is not a refusal; the call is retried later, not continuously.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn inbox_call_waits_while_check_is_unavailable() {
    let url = PostgresServer::shared().create_database();
    let (up, check_calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (is_up, counted_calls) = (Arc::clone(&up), Arc::clone(&check_calls));
    let checks = CheckRegistry::default().register("race.note", "decent", move |_| {
        counted_calls.fetch_add(1, Ordering::SeqCst);
        let up = is_up.load(Ordering::SeqCst);
        async move {
            let fine = json_object(serde_json::json!({ "fine": true }));
            if up { Ok(fine) } else { Err(CheckError("down".to_owned())) }
        }
    });
    let engines =
        open_engines(1, &url, &Clock::manual(start_time()), &EngineConfig { checks, ..EngineConfig::default() }).await;
    let client = connect(&url).await;
    client.batch_execute(&insert_call_sql("note", "race.note", r#"{"text": "hm"}"#)).await.unwrap();
    let began = tokio::time::Instant::now();
    while check_calls.load(Ordering::SeqCst) == 0 || engines[0].queued_operations() > 0 {
        assert!(began.elapsed() < TEST_TIMEOUT, "the check was not called in time");
        tokio::task::yield_now().await;
    }
    for number in 0..3 {
        let key = format!("job {number}");
        client.batch_execute(&insert_call_sql(&key, JOB_LIFECYCLE, "{}")).await.unwrap();
        wait_for_answer(&client, &key).await;
    }
    assert_eq!(psql(&url, "SELECT key FROM onceward.inbox WHERE answered_at IS NULL"), "note");
    assert_eq!(check_calls.load(Ordering::SeqCst), 1, "the call is not retried at once");
    up.store(true, Ordering::SeqCst);
    // Its claim expires.
    client.batch_execute("UPDATE onceward.inbox SET taken_until = NULL; NOTIFY onceward").await.unwrap();
    wait_until_all_answered(&client).await;
    let note = "SELECT subject IS NOT NULL, code IS NULL FROM onceward.inbox WHERE key = 'note'";
    assert_eq!(psql(&url, note), "t|t");
    engines[0].close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answered_calls_are_pruned_and_waiting_ones_kept() {
    let url = PostgresServer::shared().create_database();
    let clock = Clock::manual(start_time());
    let engines = open_engines(1, &url, &clock, &EngineConfig::default()).await;
    let client = connect(&url).await;
    client.batch_execute(&insert_call_sql("done", JOB_LIFECYCLE, "{}")).await.unwrap();
    wait_until_all_answered(&client).await;
    // Its check has no handler.
    client.batch_execute(&insert_call_sql("waits", "race.note", r#"{"text": "hm"}"#)).await.unwrap();
    let left = "SELECT string_agg(key, ' ' ORDER BY key) FROM onceward.inbox";
    engines[0].prune(&PruneOptions::default()).await.unwrap();
    assert_eq!(psql(&url, left), "done waits", "too young");
    // The inbox uses the database's own clock.
    let years = onceward_core::time::Duration::from_secs(10 * 365 * 24 * 3_600);
    clock.set(start_time().checked_add(years).unwrap());
    engines[0].prune(&PruneOptions::default()).await.unwrap();
    assert_eq!(psql(&url, left), "waits");
    engines[0].close().await;
    assert_verified(&url, clock.now()).await;
}
