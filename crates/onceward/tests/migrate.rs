//! `onceward migrate`, run as a user runs it.

mod desk;

use desk::{folder, notes, onceward, text};
use onceward_testkit::postgres::{Server, psql};
use serde_json::{Value, json};

#[test]
fn a_database_that_is_up_to_date_stays_as_it_is() {
    let folder = folder("migrate_current");
    let _running = notes(&folder);
    for arguments in [&["migrate"][..], &["migrate", "--dry-run"]] {
        let done = onceward(&folder, arguments);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        assert!(text(&done.stdout).starts_with("sqlite:onceward.db: schema "), "{}", text(&done.stdout));
        assert!(text(&done.stdout).ends_with(", up to date\n"), "{}", text(&done.stdout));
    }
}

#[test]
fn a_newer_database_is_refused() {
    let folder = folder("migrate_newer");
    drop(notes(&folder));
    let connection = rusqlite::Connection::open(folder.join("onceward.db")).expect("it opens");
    connection.execute_batch("PRAGMA user_version = 99").expect("from the future");
    drop(connection);
    let done = onceward(&folder, &["migrate"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("the database has schema 99, this program knows"), "{}", text(&done.stderr));
    let done = onceward(&folder, &["migrate", "--db", "sqlite:nowhere.db"]);
    assert_eq!(done.status.code(), Some(2), "{}", text(&done.stderr));
    assert!(!folder.join("nowhere.db").exists());
}

/// An empty PostgreSQL database: what would be run is told, run, and is then all there is to do.
#[test]
fn postgresql_is_brought_up_to_date() {
    let folder = folder("migrate_postgres");
    let url = Server::shared().database();
    let run = |arguments: &[&str]| {
        let done = onceward(&folder, &[&["migrate", "--db", &url, "--json"], arguments].concat());
        let told: Value = serde_json::from_str(&text(&done.stdout)).unwrap_or(Value::Null);
        (done.status.code(), told, text(&done.stderr))
    };
    let (code, told, _) = run(&["--dry-run"]);
    assert_eq!((code, &told["found"], &told["now"]), (Some(1), &json!(0), &json!(0)));
    assert_eq!(told["migrations"][0], "0001_first");
    assert_eq!(psql(&url, "SELECT to_regnamespace('onceward') IS NULL"), "t", "nothing was made");
    let (code, done, said) = run(&[]);
    assert_eq!((code, &done["now"]), (Some(0), &told["known"]), "{said}");
    assert_eq!(done["migrations"], told["migrations"]);
    let (code, told, _) = run(&["--dry-run"]);
    assert_eq!((code, &told["migrations"]), (Some(0), &json!([])));
    psql(&url, "INSERT INTO onceward.migrations VALUES (99, now())");
    let (code, _, said) = run(&[]);
    assert_eq!(code, Some(1));
    assert!(said.contains("PostgreSQL: the database has schema 99"), "{said}");
}
