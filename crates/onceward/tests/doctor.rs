//! Tests `onceward doctor`.

mod support;

use std::path::Path;

use onceward_store::{PostgresStore, StoreError};
use onceward_testkit::postgres::{PostgresServer, psql};
use serde_json::{Value, json};
use support::{create_test_folder, database_with_notes, run_onceward, utf8};

fn execute_sql(folder: &Path, sql: &str) {
    rusqlite::Connection::open(folder.join("onceward.db")).expect("it opens").execute_batch(sql).expect("a change");
}

fn run_doctor_json(folder: &Path, arguments: &[&str]) -> (Option<i32>, Value) {
    let done = run_onceward(folder, &[&["doctor", "--json"], arguments].concat());
    let told = serde_json::from_str(&utf8(&done.stdout));
    (done.status.code(), told.unwrap_or_else(|_| panic!("no JSON: {}", utf8(&done.stderr))))
}

fn finding_codes(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().expect("a list");
    findings.iter().map(|finding| finding["code"].as_str().expect("a word")).collect()
}

#[test]
fn doctor_finds_nothing_while_engine_runs() {
    let folder = create_test_folder("doctor_live");
    let _running = database_with_notes(&folder);
    let done = run_onceward(&folder, &["doctor"]);
    let said = utf8(&done.stdout);
    assert_eq!(done.status.code(), Some(0), "{said}{}", utf8(&done.stderr));
    assert!(said.starts_with("database  sqlite:onceward.db\nprogram   SQLite 3."), "{said}");
    for part in [
        format!("engine    process {}\n", std::process::id()),
        "log       up to place 3, ".to_owned(),
        "records   desk.note: open 3\n".to_owned(),
        "settings  journal_mode wal\n".to_owned(),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
    assert!(said.ends_with("nothing is wrong\n"), "{said}");
}

#[test]
fn doctor_reports_overdue_timers_with_advice() {
    let folder = create_test_folder("doctor_overdue");
    drop(database_with_notes(&folder));
    let (code, told) = run_doctor_json(&folder, &[]);
    assert_eq!((code, &told["fine"], &told["seen"]["engine"]), (Some(0), &json!(true), &Value::Null));
    assert_eq!(told["seen"]["records"], json!([{ "lifecycle": "desk.note", "state": "open", "count": 3 }]));
    execute_sql(&folder, "INSERT INTO timers (due_at, record) VALUES (1000000, 1)");
    let done = run_onceward(&folder, &["doctor"]);
    assert!(utf8(&done.stdout).contains("wrong: overdue: 1 record is overdue, by "), "{}", utf8(&done.stdout));
    execute_sql(&folder, "INSERT INTO timers (due_at, record) VALUES (2000000, 2)");
    let (code, told) = run_doctor_json(&folder, &[]);
    assert_eq!((code, finding_codes(&told)), (Some(1), vec!["overdue"]));
    assert_eq!(told["seen"]["overdue"], json!({ "count": 2, "first": "1970-01-01T00:00:01Z" }));
    let done = run_onceward(&folder, &["doctor"]);
    assert!(
        utf8(&done.stdout).contains("wrong: overdue: 2 records are overdue, the first by "),
        "{}",
        utf8(&done.stdout)
    );
    assert!(utf8(&done.stdout).contains("; start an engine"), "{}", utf8(&done.stdout));
}

#[test]
fn doctor_stops_counting_at_limit() {
    let folder = create_test_folder("doctor_many");
    drop(database_with_notes(&folder));
    execute_sql(
        &folder,
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 12000) \
         INSERT INTO timers (due_at, record) SELECT x, x FROM n",
    );
    let (_, told) = run_doctor_json(&folder, &[]);
    assert_eq!(told["seen"]["overdue"]["count"], told["seen"]["counted_up_to"]);
    let done = run_onceward(&folder, &["doctor"]);
    assert!(utf8(&done.stdout).contains("10000 or more records are overdue"), "{}", utf8(&done.stdout));
}

#[test]
fn doctor_reports_newer_schema_and_rejects_other_files() {
    let folder = create_test_folder("doctor_schema");
    drop(database_with_notes(&folder));
    execute_sql(&folder, "PRAGMA user_version = 99");
    let (code, told) = run_doctor_json(&folder, &[]);
    assert_eq!((code, finding_codes(&told), &told["seen"]), (Some(1), vec!["schema"], &Value::Null));
    std::fs::write(folder.join("other.db"), "no database, but long enough to look at").expect("a file");
    std::fs::create_dir(folder.join("folder.db")).expect("a folder");
    for (name, said) in [
        ("other.db", "not an SQLite database"),
        ("nowhere.db", "the file does not exist"),
        ("folder.db", "it is a folder"),
    ] {
        // All commands report a missing database in the same way.
        let verbs =
            [&["doctor"][..], &["verify"], &["migrate", "--dry-run"], &["prune", "--dry-run"], &["backup", "copy.db"]];
        for verb in verbs {
            let done = run_onceward(&folder, &[verb, &["--db", &format!("sqlite:{name}")]].concat());
            assert_eq!(done.status.code(), Some(2), "{verb:?} {name}: {}{}", utf8(&done.stdout), utf8(&done.stderr));
            assert!(utf8(&done.stderr).contains(said), "{verb:?} {name}: {}", utf8(&done.stderr));
        }
    }
    // All commands report a newer schema in the same way.
    for verb in [&["doctor"][..], &["verify"], &["migrate"], &["prune"]] {
        assert_eq!(run_onceward(&folder, verb).status.code(), Some(1), "{verb:?}");
    }
}

#[test]
fn doctor_checks_postgres_settings_and_inbox() {
    let folder = create_test_folder("doctor_postgres");
    let url = PostgresServer::shared().create_database();
    let done = run_onceward(&folder, &["doctor", "--db", &url]);
    assert_eq!(done.status.code(), Some(2), "nothing is there yet: {}", utf8(&done.stdout));
    assert!(utf8(&done.stderr).contains("not an Onceward database"), "{}", utf8(&done.stderr));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { PostgresStore::open(&url).await.map(drop) }).expect("a new database");
    let (code, told) = run_doctor_json(&folder, &["--db", &url]);
    assert_eq!((code, finding_codes(&told)), (Some(0), vec![]), "{told}");
    let seen = &told["seen"];
    assert!(seen["program"].as_str().is_some_and(|program| program.starts_with("PostgreSQL ")), "{seen}");
    assert_eq!((&seen["settings"]["fsync"], &seen["inbox"]["count"]), (&json!("on"), &json!(0)));
    assert!(seen["bytes"].as_u64().is_some_and(|bytes| bytes > 8_192), "{seen}");

    let name = url.rsplit('/').next().expect("a name");
    psql(&url, &format!("ALTER DATABASE {name} SET zero_damaged_pages = on"));
    psql(
        &url,
        "INSERT INTO onceward.inbox (owner, key, lifecycle, sent_at) VALUES ('ann', 'one', 'a.b', now() - interval '1 hour')",
    );
    let (code, told) = run_doctor_json(&folder, &["--db", &url]);
    assert_eq!((code, finding_codes(&told)), (Some(1), vec!["durability", "inbox"]), "{told}");
}

#[test]
fn older_schema_error_names_migrate_command() {
    let said = StoreError::SchemaTooOld { found: 1, known: 2 }.to_string();
    assert!(said.ends_with("run `onceward migrate`"), "{said}");
}
