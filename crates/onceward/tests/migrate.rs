//! Tests `onceward migrate`.

mod support;

use onceward_testkit::postgres::{PostgresServer, psql};
use serde_json::{Value, json};
use support::{create_test_folder, database_with_notes, run_onceward, utf8};

#[test]
fn migrate_reports_current_database_as_up_to_date() {
    let folder = create_test_folder("migrate_current");
    let _running = database_with_notes(&folder);
    for arguments in [&["migrate"][..], &["migrate", "--dry-run"]] {
        let done = run_onceward(&folder, arguments);
        assert_eq!(done.status.code(), Some(0), "{}", utf8(&done.stderr));
        assert!(utf8(&done.stdout).starts_with("sqlite:onceward.db: schema "), "{}", utf8(&done.stdout));
        assert!(utf8(&done.stdout).ends_with(", up to date\n"), "{}", utf8(&done.stdout));
    }
}

#[test]
fn migrate_refuses_newer_schema() {
    let folder = create_test_folder("migrate_newer");
    drop(database_with_notes(&folder));
    let connection = rusqlite::Connection::open(folder.join("onceward.db")).expect("open database");
    connection.execute_batch("PRAGMA user_version = 99").expect("execute SQL");
    drop(connection);
    let done = run_onceward(&folder, &["migrate"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(
        utf8(&done.stderr).contains("the database has schema 99, and the program supports only"),
        "{}",
        utf8(&done.stderr)
    );
    let done = run_onceward(&folder, &["migrate", "--db", "sqlite:nowhere.db"]);
    assert_eq!(done.status.code(), Some(2), "{}", utf8(&done.stderr));
    assert!(!folder.join("nowhere.db").exists());
}

/// `--dry-run` lists the migrations, the first run applies them, and the second has none left.
#[test]
fn migrate_creates_postgres_schema_once() {
    let folder = create_test_folder("migrate_postgres");
    let url = PostgresServer::shared().create_database();
    let run = |arguments: &[&str]| {
        let done = run_onceward(&folder, &[&["migrate", "--db", &url, "--json"], arguments].concat());
        let report: Value = serde_json::from_str(&utf8(&done.stdout)).unwrap_or(Value::Null);
        (done.status.code(), report, utf8(&done.stderr))
    };
    let (code, report, _) = run(&["--dry-run"]);
    assert_eq!((code, &report["found"], &report["now"]), (Some(1), &json!(0), &json!(0)));
    assert_eq!(report["migrations"][0], "0001_first");
    assert_eq!(psql(&url, "SELECT to_regnamespace('onceward') IS NULL"), "t", "no schema was created");
    let (code, done, printed) = run(&[]);
    assert_eq!((code, &done["now"]), (Some(0), &report["known"]), "{printed}");
    assert_eq!(done["migrations"], report["migrations"]);
    let (code, report, _) = run(&["--dry-run"]);
    assert_eq!((code, &report["migrations"]), (Some(0), &json!([])));
    psql(&url, "INSERT INTO onceward.migrations VALUES (99, now())");
    let (code, _, printed) = run(&[]);
    assert_eq!(code, Some(1));
    assert!(printed.contains("PostgreSQL: the database has schema 99"), "{printed}");
}
