//! Tests `onceward doctor`.

mod support;

use std::path::Path;

use onceward_store::{PostgresStore, StoreError};
use onceward_testkit::postgres::{PostgresServer, psql};
use serde_json::{Value, json};
use support::{create_test_folder, database_with_notes, run_onceward, utf8};

fn execute_sql(folder: &Path, sql: &str) {
    rusqlite::Connection::open(folder.join("onceward.db"))
        .expect("open database")
        .execute_batch(sql)
        .expect("execute SQL");
}

fn run_doctor_json(folder: &Path, arguments: &[&str]) -> (Option<i32>, Value) {
    let done = run_onceward(folder, &[&["doctor", "--json"], arguments].concat());
    let report = serde_json::from_str(&utf8(&done.stdout));
    (done.status.code(), report.unwrap_or_else(|_| panic!("no JSON: {}", utf8(&done.stderr))))
}

fn finding_codes(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().expect("JSON array");
    findings.iter().map(|finding| finding["code"].as_str().expect("code")).collect()
}

#[test]
fn doctor_finds_nothing_while_engine_runs() {
    let folder = create_test_folder("doctor_live");
    let _running = database_with_notes(&folder);
    let done = run_onceward(&folder, &["doctor"]);
    let printed = utf8(&done.stdout);
    assert_eq!(done.status.code(), Some(0), "{printed}{}", utf8(&done.stderr));
    assert!(printed.starts_with("database  sqlite:onceward.db\nversion   SQLite 3."), "{printed}");
    for part in [
        format!("engine    process {}\n", std::process::id()),
        "log       up to seq 3, ".to_owned(),
        "records   desk.note: open 3\n".to_owned(),
        "settings  journal_mode wal\n".to_owned(),
    ] {
        assert!(printed.contains(&part), "{part}: {printed}");
    }
    assert!(printed.ends_with("no errors found\n"), "{printed}");
}

#[test]
fn doctor_reports_overdue_timers_with_advice() {
    let folder = create_test_folder("doctor_overdue");
    drop(database_with_notes(&folder));
    let (code, report) = run_doctor_json(&folder, &[]);
    assert_eq!((code, &report["healthy"], &report["status"]["engine"]), (Some(0), &json!(true), &Value::Null));
    assert_eq!(report["status"]["records"], json!([{ "lifecycle": "desk.note", "state": "open", "count": 3 }]));
    execute_sql(&folder, "INSERT INTO timers (due_at, record) VALUES (1000000, 1)");
    let done = run_onceward(&folder, &["doctor"]);
    assert!(utf8(&done.stdout).contains("error: overdue: 1 record is overdue, by "), "{}", utf8(&done.stdout));
    execute_sql(&folder, "INSERT INTO timers (due_at, record) VALUES (2000000, 2)");
    let (code, report) = run_doctor_json(&folder, &[]);
    assert_eq!((code, finding_codes(&report)), (Some(1), vec!["overdue"]));
    assert_eq!(report["status"]["overdue"], json!({ "count": 2, "oldest_due_at": "1970-01-01T00:00:01Z" }));
    let done = run_onceward(&folder, &["doctor"]);
    assert!(
        utf8(&done.stdout).contains("error: overdue: 2 records are overdue, the oldest by "),
        "{}",
        utf8(&done.stdout)
    );
    assert!(utf8(&done.stdout).contains("; start a server"), "{}", utf8(&done.stdout));
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
    let (_, report) = run_doctor_json(&folder, &[]);
    assert_eq!(report["status"]["overdue"]["count"], report["status"]["counted_up_to"]);
    let done = run_onceward(&folder, &["doctor"]);
    assert!(utf8(&done.stdout).contains("10000 or more records are overdue"), "{}", utf8(&done.stdout));
}

#[test]
fn doctor_reports_newer_schema_and_rejects_other_files() {
    let folder = create_test_folder("doctor_schema");
    drop(database_with_notes(&folder));
    execute_sql(&folder, "PRAGMA user_version = 99");
    let (code, report) = run_doctor_json(&folder, &[]);
    assert_eq!((code, finding_codes(&report), &report["status"]), (Some(1), vec!["schema"], &Value::Null));
    std::fs::write(folder.join("other.db"), "no database, but long enough to look at").expect("file");
    std::fs::create_dir(folder.join("folder.db")).expect("folder");
    for (name, printed) in [
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
            assert!(utf8(&done.stderr).contains(printed), "{verb:?} {name}: {}", utf8(&done.stderr));
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
    assert_eq!(done.status.code(), Some(2), "the database is empty: {}", utf8(&done.stdout));
    assert!(utf8(&done.stderr).contains("not an Onceward database"), "{}", utf8(&done.stderr));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio runtime");
    runtime.block_on(async { PostgresStore::open(&url).await.map(drop) }).expect("new database");
    let (code, report) = run_doctor_json(&folder, &["--db", &url]);
    assert_eq!((code, finding_codes(&report)), (Some(0), vec![]), "{report}");
    let status = &report["status"];
    assert!(status["version"].as_str().is_some_and(|version| version.starts_with("PostgreSQL ")), "{status}");
    assert_eq!((&status["settings"]["fsync"], &status["inbox"]["count"]), (&json!("on"), &json!(0)));
    assert!(status["bytes"].as_u64().is_some_and(|bytes| bytes > 8_192), "{status}");

    let name = url.rsplit('/').next().expect("name");
    psql(&url, &format!("ALTER DATABASE {name} SET zero_damaged_pages = on"));
    psql(
        &url,
        "INSERT INTO onceward.inbox (owner, key, lifecycle, sent_at) VALUES ('ann', 'one', 'a.b', now() - interval '1 hour')",
    );
    let (code, report) = run_doctor_json(&folder, &["--db", &url]);
    assert_eq!((code, finding_codes(&report)), (Some(1), vec!["durability", "inbox"]), "{report}");
}

#[test]
fn older_schema_error_names_migrate_command() {
    let printed = StoreError::SchemaTooOld { found: 1, known: 2 }.to_string();
    assert!(printed.ends_with("run `onceward migrate`"), "{printed}");
}
