//! Databases of every released schema, migrated to the newest one and used.
//!
//! `tests/released` has a file per schema number and database: the schema migrations up to it, and rows of random
//! operations of all five systems. `ONCEWARD_BLESS=1 cargo test -p onceward-engine --test verify released` writes the
//! files of the newest schema.

use std::fmt::Write as _;
use std::path::PathBuf;

use onceward_core::decide::Call;
use onceward_core::time::{Duration, Time};
use onceward_store::{Clock, PostgresScanner, PostgresStore, SqliteScanner, SqliteStore, Store, StoreError};
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::{user, worker};
use rusqlite::Connection;
use serde_json::json;
use tokio_postgres::{Client, NoTls};

use crate::sqlite_tables;
use crate::support::driver::StoreDriver;
use crate::support::{TempDir, block_on, start_time};
use crate::test_database::{fill_randomly, verify_store};

/// The newest schema that users have. Files up to it never change; a release raises it.
const LAST_RELEASED_SCHEMA: usize = 0;

/// Seed of the random operations.
const FILL_SEED: u64 = 20_261_116;
const FILL_OPERATIONS: usize = 12;

fn released_folder(store: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "released", store].iter().collect()
}

/// Returns the schema migrations of a store, in order.
fn migrations(store: &str) -> Vec<String> {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "store", "src", store, "migrations"].iter().collect();
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

fn released_path(store: &str, number: usize) -> PathBuf {
    released_folder(store).join(format!("{number:04}.sql"))
}

/// Returns the files of a store by number. If asked, first writes the file of the newest schema, unless it is released.
fn load_released(store: &str, rows: impl FnOnce() -> String) -> Vec<(usize, String)> {
    let migrations = migrations(store);
    let newest = migrations.len();
    if std::env::var_os("ONCEWARD_BLESS").is_some() && newest > LAST_RELEASED_SCHEMA {
        std::fs::create_dir_all(released_folder(store)).unwrap();
        std::fs::write(released_path(store, newest), format!("{}\n{}", migrations.concat(), rows())).unwrap();
    }
    let read = |number| match std::fs::read_to_string(released_path(store, number)) {
        Ok(text) => {
            let made = migrations[..number].concat();
            assert!(
                text.starts_with(&made),
                "a migration of {store} changed after {number:04}.sql was written. If the schema is released, add another \
                 migration; if not, rewrite the file with ONCEWARD_BLESS=1"
            );
            (number, text)
        }
        Err(error) => panic!("schema {number} of {store} has no file ({error}): write it with ONCEWARD_BLESS=1"),
    };
    (1..=newest).map(read).collect()
}

/// Creates, leases and commits a job, and leases an existing one.
async fn run_work<S: Store>(store: &S, now: Time) {
    let mut driver = StoreDriver::new(store).await;
    let (ann, bob) = (user("ann"), worker("bob"));
    let task = driver.create_record(&ann, "suite.task", json!({ "lane": "z", "weight": 9 }), now).await;
    let token = driver.lease_job(&bob, task, now).await;
    driver.expect_taken(&bob, Call::Commit { record: task, token, result: json!(1), finish: true }, now).await;
    let query = onceward_store::LeaseQuery { lifecycles: vec!["suite.task".into()], now, limit: 1 };
    let waiting = store.lease_candidates(&query).await.expect("the query succeeds");
    driver.lease_job(&bob, waiting.first().expect("the old database has a ready job").record, now).await;
}

/// Later than all times in the files.
fn later_time() -> Time {
    start_time().checked_add(Duration::from_secs(400 * 24 * 3_600)).expect("a time")
}

fn sqlite_rows() -> String {
    let folder = TempDir::new();
    let store = SqliteStore::open(folder.database_path(), Clock::manual(start_time())).expect("a new file");
    block_on(fill_randomly(&store, FILL_SEED, FILL_OPERATIONS));
    drop(store);
    let connection = Connection::open(folder.database_path()).expect("it opens");
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    let mut text = format!("PRAGMA foreign_keys = OFF;\nPRAGMA user_version = {version};\n");
    for table in sqlite_tables::list_tables(&connection) {
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

/// Returns tables, columns and other schema objects in a fixed order.
fn sqlite_schema_lines(connection: &Connection) -> Vec<String> {
    let mut shape = Vec::new();
    for table in sqlite_tables::list_tables(connection) {
        for column in &table.columns {
            shape.push(format!("{} {} {} {}", table.name, column.name, column.column_type, column.nullable));
        }
    }
    let sql = "SELECT type || ' ' || name || ' on ' || tbl_name FROM sqlite_schema";
    let mut statement = connection.prepare(sql).unwrap();
    shape.extend(statement.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap));
    shape.sort();
    shape
}

#[test]
fn released_sqlite_schemas_migrate_and_verify_clean() {
    let files = load_released("sqlite", sqlite_rows);
    let newest = files.len();
    for (number, text) in files {
        println!("from schema {number} to {newest}");
        let folder = TempDir::new();
        let connection = Connection::open(folder.database_path()).expect("a new file");
        connection.execute_batch(&text).expect("the SQL runs");
        drop(connection);
        if number < newest {
            assert!(
                matches!(SqliteScanner::open(folder.database_path()), Err(StoreError::SchemaTooOld { .. })),
                "opening does not migrate"
            );
        }
        let clock = Clock::manual(later_time());
        let migrated = SqliteStore::migrate(folder.database_path()).expect("the migration succeeds");
        assert_eq!((migrated.current as usize, migrated.pending.len()), (number, newest - number));
        let report = verify_store(&SqliteScanner::open(folder.database_path()).expect("it opens"), later_time());
        assert!(report.is_clean() && report.entries > 100, "{report:#?}");
        let store = SqliteStore::open(folder.database_path(), clock.clone()).expect("it opens");
        block_on(run_work(&store, later_time()));
        drop(store);
        let after = verify_store(&SqliteScanner::open(folder.database_path()).expect("it opens"), later_time());
        assert!(after.is_clean() && after.entries > report.entries, "{after:#?}");

        let new = TempDir::new();
        drop(SqliteStore::open(new.database_path(), clock).expect("a new file"));
        let shape =
            |folder: &TempDir| sqlite_schema_lines(&Connection::open(folder.database_path()).expect("it opens"));
        assert_eq!(shape(&folder), shape(&new), "a migrated schema equals a new one");
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

async fn query_texts(client: &Client, sql: &str) -> Vec<String> {
    client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

const LIST_TABLES_SQL: &str =
    "SELECT relname::text FROM pg_class WHERE relnamespace = 'onceward'::regnamespace AND relkind = 'r' ORDER BY 1";

async fn postgres_rows() -> String {
    let url = PostgresServer::shared().create_database();
    let store = PostgresStore::open_with_clock(&url, Clock::manual(start_time())).await.expect("a new database");
    fill_randomly(&store, FILL_SEED, FILL_OPERATIONS).await;
    let client = connect(&url).await;
    let letter = "INSERT INTO onceward.inbox (owner, key, lifecycle) VALUES ('ann', 'one', 'suite.box'); \
                  INSERT INTO onceward.instances (name, number) VALUES ('alpha', 3)";
    client.batch_execute(letter).await.expect("an inbox call");
    let mut text = String::new();
    // Referenced tables come first.
    let mut tables = query_texts(&client, LIST_TABLES_SQL).await;
    tables.sort_by_key(|table| (table != "sources", table != "definitions"));
    for table in tables {
        // A schema migration inserts this row, and it has changed since.
        if table == "api_keys_revision" {
            text.push_str("DELETE FROM onceward.api_keys_revision;\n");
        }
        let rows = format!(
            "SELECT format('INSERT INTO onceward.{table} OVERRIDING SYSTEM VALUE SELECT * FROM \
             json_populate_record(NULL::onceward.{table}, %L) ON CONFLICT DO NOTHING;', row_to_json(t)) \
             FROM onceward.{table} t ORDER BY 1"
        );
        for row in query_texts(&client, &rows).await {
            let _ = writeln!(text, "{row}");
        }
    }
    let sequences = "SELECT format('SELECT setval(%L, %s);', schemaname || '.' || sequencename, last_value) \
                     FROM pg_sequences WHERE schemaname = 'onceward' AND last_value IS NOT NULL ORDER BY 1";
    for row in query_texts(&client, sequences).await {
        let _ = writeln!(text, "{row}");
    }
    text
}

/// Returns columns, constraints, indexes, views and sequences in a fixed order.
async fn postgres_schema_lines(client: &Client) -> Vec<String> {
    let columns = "SELECT concat_ws(' ', c.relname, c.relkind, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, \
                   pg_get_expr(d.adbin, d.adrelid), c.reloptions::text) \
                   FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum \
                   WHERE c.relnamespace = 'onceward'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped";
    let constraints = "SELECT concat_ws(' ', conrelid::regclass, pg_get_constraintdef(oid)) FROM pg_constraint \
                       WHERE connamespace = 'onceward'::regnamespace";
    let indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'onceward'";
    let mut shape = query_texts(client, columns).await;
    shape.extend(query_texts(client, constraints).await);
    shape.extend(query_texts(client, indexes).await);
    shape.sort();
    shape
}

/// What every database has before its first schema migration.
const BASE_SCHEMA_SQL: &str =
    "CREATE SCHEMA onceward; CREATE TABLE onceward.migrations (number INTEGER PRIMARY KEY, at TIMESTAMPTZ NOT NULL);";

#[test]
fn released_postgresql_schemas_migrate_and_verify_clean() {
    let files = load_released("postgres", || block_on(postgres_rows()));
    let newest = files.len();
    for (number, text) in files {
        println!("from schema {number} to {newest}");
        block_on(async {
            let (url, new) = (PostgresServer::shared().create_database(), PostgresServer::shared().create_database());
            let client = connect(&url).await;
            client.batch_execute(BASE_SCHEMA_SQL).await.expect("a schema");
            client.batch_execute(&text).await.expect("the SQL runs");
            if number < newest {
                let refused = PostgresStore::open(&url).await;
                assert!(matches!(refused, Err(StoreError::SchemaTooOld { .. })), "opening does not migrate");
            }
            let migrated = PostgresStore::migrate(&url).await.expect("the migration succeeds");
            assert_eq!((migrated.current as usize, migrated.pending.len()), (number, newest - number));
            let verified = async || {
                let view = PostgresScanner::open(&url).await.expect("it opens");
                onceward_engine::verify(&view, later_time(), &mut ()).await.expect("the read succeeds")
            };
            let report = verified().await;
            assert!(report.is_clean() && report.entries > 100, "{report:#?}");
            let clock = Clock::manual(later_time());
            let store = PostgresStore::open_with_clock(&url, clock.clone()).await.expect("it opens");
            run_work(&store, later_time()).await;
            let after = verified().await;
            assert!(after.is_clean() && after.entries > report.entries, "{after:#?}");
            drop(PostgresStore::open_with_clock(&new, clock).await.expect("a new database"));
            assert_eq!(
                postgres_schema_lines(&client).await,
                postgres_schema_lines(&connect(&new).await).await,
                "a migrated schema equals a new one"
            );
        });
    }
}
