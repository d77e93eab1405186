//! Databases of every schema that was ever released, brought up to date and worked on.
//!
//! For each number there is a file for each database in `tests/released`: the migrations up to it as they were then, and rows that random play of
//! all five systems left. `ONCEWARD_BLESS=1 cargo test -p onceward-engine --test verify upgraded` writes those of the newest schema.

use std::fmt::Write as _;
use std::path::PathBuf;

use onceward_core::decide::Call;
use onceward_core::time::{Duration, Time};
use onceward_store::{Clock, PostgresStore, PostgresView, SqliteStore, SqliteView, Store, StoreError};
use onceward_testkit::postgres::Server;
use onceward_testkit::{user, worker};
use rusqlite::Connection;
use serde_json::json;
use tokio_postgres::{Client, NoTls};

use crate::built::{examined, fill};
use crate::schema;
use crate::stage::driver::Driver;
use crate::stage::{Folder, start, wait};

/// The newest schema that users have. Files up to it are never written again; a release raises it.
const RELEASED: usize = 0;

/// Of the play that fills them.
const SEED: u64 = 20_261_116;
const OPERATIONS: usize = 12;

fn folder(store: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "released", store].iter().collect()
}

/// The migrations of a store, in order.
fn migrations(store: &str) -> Vec<String> {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "store", "src", store, "migrations"].iter().collect();
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

fn path(store: &str, number: usize) -> PathBuf {
    folder(store).join(format!("{number:04}.sql"))
}

/// The files of a store, by number. Where asked to, that of the newest schema is written first, if nobody has it yet.
fn released(store: &str, rows: impl FnOnce() -> String) -> Vec<(usize, String)> {
    let migrations = migrations(store);
    let newest = migrations.len();
    if std::env::var_os("ONCEWARD_BLESS").is_some() && newest > RELEASED {
        std::fs::create_dir_all(folder(store)).unwrap();
        std::fs::write(path(store, newest), format!("{}\n{}", migrations.concat(), rows())).unwrap();
    }
    let read = |number| match std::fs::read_to_string(path(store, number)) {
        Ok(text) => {
            let made = migrations[..number].concat();
            assert!(
                text.starts_with(&made),
                "a migration of {store} has changed since {number:04}.sql was made. If that schema is released, add another \
                 migration instead; if not, write the file anew with ONCEWARD_BLESS=1"
            );
            (number, text)
        }
        Err(error) => panic!("schema {number} of {store} has no file ({error}): write it with ONCEWARD_BLESS=1"),
    };
    (1..=newest).map(read).collect()
}

/// Rows are told to work, too: a job is made, leased and committed, and one that was there already is leased.
async fn work_on<S: Store>(store: &S, now: Time) {
    let mut driver = Driver::new(store).await;
    let (ann, bob) = (user("ann"), worker("bob"));
    let task = driver.create(&ann, "suite.task", json!({ "lane": "z", "weight": 9 }), now).await;
    let token = driver.lease(&bob, task, now).await;
    driver.ok(&bob, Call::Commit { record: task, token, result: json!(1), finish: true }, now).await;
    let query = onceward_store::LeaseQuery { lifecycles: vec!["suite.task".into()], now, limit: 1 };
    let waiting = store.leasable(&query).await.expect("a look");
    driver.lease(&bob, waiting.first().expect("one waits since then").record, now).await;
}

/// Later than anything in the files.
fn later() -> Time {
    start().checked_add(Duration::from_secs(400 * 24 * 3_600)).expect("a time")
}

fn sqlite_rows() -> String {
    let folder = Folder::new();
    let store = SqliteStore::open(folder.file(), Clock::manual(start())).expect("a new file");
    wait(fill(&store, SEED, OPERATIONS));
    drop(store);
    let connection = Connection::open(folder.file()).expect("it opens");
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    let mut text = format!("PRAGMA foreign_keys = OFF;\nPRAGMA user_version = {version};\n");
    for table in schema::tables(&connection) {
        let names: Vec<&str> = table.columns.iter().map(|column| &*column.name).collect();
        let quoted: Vec<String> = names.iter().map(|name| format!("quote({name})")).collect();
        let sql = format!("SELECT {} FROM {} ORDER BY {}", quoted.join(" || ', ' || "), table.name, names.join(", "));
        let mut statement = connection.prepare(&sql).unwrap();
        for row in statement.query_map([], |row| row.get::<_, String>(0)).unwrap() {
            let (name, columns) = (&table.name, names.join(", "));
            let _ = writeln!(text, "INSERT OR REPLACE INTO {name} ({columns}) VALUES ({});", row.unwrap());
        }
    }
    text
}

/// Tables and their columns, and what else there is, in an order of our own.
fn sqlite_shape(connection: &Connection) -> Vec<String> {
    let mut shape = Vec::new();
    for table in schema::tables(connection) {
        for column in &table.columns {
            shape.push(format!("{} {} {} {}", table.name, column.name, column.kind, column.nullable));
        }
    }
    let sql = "SELECT type || ' ' || name || ' on ' || tbl_name FROM sqlite_schema";
    let mut statement = connection.prepare(sql).unwrap();
    shape.extend(statement.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap));
    shape.sort();
    shape
}

#[test]
fn every_released_schema_of_sqlite_opens() {
    let files = released("sqlite", sqlite_rows);
    let newest = files.len();
    for (number, text) in files {
        println!("from schema {number} to {newest}");
        let folder = Folder::new();
        let connection = Connection::open(folder.file()).expect("a new file");
        connection.execute_batch(&text).expect("it is SQL");
        drop(connection);
        if number < newest {
            assert!(
                matches!(SqliteView::open(folder.file()), Err(StoreError::TooOld { .. })),
                "nothing happens unasked"
            );
        }
        let clock = Clock::manual(later());
        let told = SqliteStore::migrate(folder.file()).expect("it is brought up to date");
        assert_eq!((told.found as usize, told.missing.len()), (number, newest - number));
        let report = examined(&SqliteView::open(folder.file()).expect("it opens"), later());
        assert!(report.is_clean() && report.entries > 100, "{report:#?}");
        let store = SqliteStore::open(folder.file(), clock.clone()).expect("it opens");
        wait(work_on(&store, later()));
        drop(store);
        let after = examined(&SqliteView::open(folder.file()).expect("it opens"), later());
        assert!(after.is_clean() && after.entries > report.entries, "{after:#?}");

        let new = Folder::new();
        drop(SqliteStore::open(new.file(), clock).expect("a new file"));
        let shape = |folder: &Folder| sqlite_shape(&Connection::open(folder.file()).expect("it opens"));
        assert_eq!(shape(&folder), shape(&new), "the same as a new one");
    }
}

async fn connected(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

async fn texts(client: &Client, sql: &str) -> Vec<String> {
    client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

const TABLES: &str =
    "SELECT relname::text FROM pg_class WHERE relnamespace = 'onceward'::regnamespace AND relkind = 'r' ORDER BY 1";

async fn postgres_rows() -> String {
    let url = Server::shared().database();
    let store = PostgresStore::open_with_clock(&url, Clock::manual(start())).await.expect("a new database");
    fill(&store, SEED, OPERATIONS).await;
    let client = connected(&url).await;
    let letter = "INSERT INTO onceward.inbox (owner, key, lifecycle) VALUES ('ann', 'one', 'suite.box'); \
                  INSERT INTO onceward.openings (name, number) VALUES ('alpha', 3)";
    client.batch_execute(letter).await.expect("a letter");
    let mut text = String::new();
    // Those that others point to come first.
    let mut tables = texts(&client, TABLES).await;
    tables.sort_by_key(|table| table != "sources");
    for table in tables {
        // A migration has left a row there that has changed since.
        if table == "key_changes" {
            text.push_str("DELETE FROM onceward.key_changes;\n");
        }
        let rows = format!(
            "SELECT format('INSERT INTO onceward.{table} OVERRIDING SYSTEM VALUE SELECT * FROM \
             json_populate_record(NULL::onceward.{table}, %L) ON CONFLICT DO NOTHING;', row_to_json(t)) \
             FROM onceward.{table} t ORDER BY 1"
        );
        for row in texts(&client, &rows).await {
            let _ = writeln!(text, "{row}");
        }
    }
    let sequences = "SELECT format('SELECT setval(%L, %s);', schemaname || '.' || sequencename, last_value) \
                     FROM pg_sequences WHERE schemaname = 'onceward' AND last_value IS NOT NULL ORDER BY 1";
    for row in texts(&client, sequences).await {
        let _ = writeln!(text, "{row}");
    }
    text
}

/// Columns, constraints, indexes, views and sequences, in an order of our own.
async fn postgres_shape(client: &Client) -> Vec<String> {
    let columns = "SELECT concat_ws(' ', c.relname, c.relkind, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, \
                   pg_get_expr(d.adbin, d.adrelid), c.reloptions::text) \
                   FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum \
                   WHERE c.relnamespace = 'onceward'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped";
    let constraints = "SELECT concat_ws(' ', conrelid::regclass, pg_get_constraintdef(oid)) FROM pg_constraint \
                       WHERE connamespace = 'onceward'::regnamespace";
    let indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'onceward'";
    let mut shape = texts(client, columns).await;
    shape.extend(texts(client, constraints).await);
    shape.extend(texts(client, indexes).await);
    shape.sort();
    shape
}

/// What every database has before its first migration.
const GROUND: &str =
    "CREATE SCHEMA onceward; CREATE TABLE onceward.migrations (number INTEGER PRIMARY KEY, at TIMESTAMPTZ NOT NULL);";

#[test]
fn every_released_schema_of_postgresql_opens() {
    let files = released("postgres", || wait(postgres_rows()));
    let newest = files.len();
    for (number, text) in files {
        println!("from schema {number} to {newest}");
        wait(async {
            let (url, new) = (Server::shared().database(), Server::shared().database());
            let client = connected(&url).await;
            client.batch_execute(GROUND).await.expect("a schema");
            client.batch_execute(&text).await.expect("it is SQL");
            if number < newest {
                let refused = PostgresStore::open(&url).await;
                assert!(matches!(refused, Err(StoreError::TooOld { .. })), "nothing happens unasked");
            }
            let told = PostgresStore::migrate(&url).await.expect("it is brought up to date");
            assert_eq!((told.found as usize, told.missing.len()), (number, newest - number));
            let verified = async || {
                let view = PostgresView::open(&url).await.expect("it opens");
                onceward_engine::verify(&view, later(), &mut ()).await.expect("it can be read")
            };
            let report = verified().await;
            assert!(report.is_clean() && report.entries > 100, "{report:#?}");
            let clock = Clock::manual(later());
            let store = PostgresStore::open_with_clock(&url, clock.clone()).await.expect("it opens");
            work_on(&store, later()).await;
            let after = verified().await;
            assert!(after.is_clean() && after.entries > report.entries, "{after:#?}");
            drop(PostgresStore::open_with_clock(&new, clock).await.expect("a new database"));
            assert_eq!(
                postgres_shape(&client).await,
                postgres_shape(&connected(&new).await).await,
                "the same as a new one"
            );
        });
    }
}
