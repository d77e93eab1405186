//! Tests `onceward verify`.

mod support;

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use support::{create_test_folder, database_with_notes, run_onceward, utf8};

fn run_verify(folder: &Path, arguments: &[&str]) -> Output {
    run_onceward(folder, &[&["verify"], arguments].concat())
}

fn corrupt(folder: &Path, sql: &str) {
    rusqlite::Connection::open(folder.join("onceward.db"))
        .expect("open database")
        .execute_batch(sql)
        .expect("execute SQL");
}

#[test]
fn verify_succeeds_while_engine_runs() {
    let folder = create_test_folder("verify_live");
    let _running = database_with_notes(&folder);
    let done = run_verify(&folder, &[]);
    assert_eq!(done.status.code(), Some(0), "{}", utf8(&done.stderr));
    let said = utf8(&done.stdout);
    assert!(said.starts_with("verified 3 entries up to seq 3, 3 records"), "{said}");
    assert!(said.ends_with("no differences: the database matches its log\n"), "{said}");
    assert_eq!(utf8(&done.stderr), "", "no progress bar without a terminal");
}

#[test]
fn verify_names_each_difference_and_exits_1() {
    let folder = create_test_folder("verify_harmed");
    drop(database_with_notes(&folder));
    corrupt(&folder, "UPDATE records SET fields = '[\"beer\"]' WHERE row = 2; DELETE FROM state_counts");
    let done = run_verify(&folder, &["--db", "sqlite:onceward.db"]);
    assert_eq!(done.status.code(), Some(1), "{}", utf8(&done.stderr));
    let said = utf8(&done.stdout);
    assert!(said.contains("fields: stored [\"beer\"], expected [\"bread\"] (INV-3)"), "{said}");
    assert!(said.contains("state_counts desk.note 1 ann open: the row is missing"), "{said}");
    assert!(said.ends_with("verification failed: 2 differences, 0 drifts\n"), "{said}");
}

#[test]
fn verify_json_reports_differences() {
    let folder = create_test_folder("verify_json");
    drop(database_with_notes(&folder));
    let clean: Value = serde_json::from_str(&utf8(&run_verify(&folder, &["--json"]).stdout)).expect("JSON");
    assert_eq!((&clean["clean"], &clean["entries"], &clean["redecided"]), (&json!(true), &json!(3), &json!(3)));
    corrupt(&folder, "UPDATE records SET version = 5 WHERE row = 1");
    let done = run_verify(&folder, &["--json"]);
    assert_eq!(done.status.code(), Some(1));
    let found: Value = serde_json::from_str(&utf8(&done.stdout)).expect("JSON");
    assert_eq!(found["clean"], json!(false));
    let difference = &found["differences"][0];
    assert_eq!(difference["table"], "records");
    assert_eq!((&difference["column"], &difference["stored"]), (&json!("version"), &json!("5")));
    assert_eq!((&difference["expected"], &difference["kind"]), (&json!("1"), &json!("differs")));
}

#[test]
fn verify_exits_1_on_damaged_pages() {
    let folder = create_test_folder("verify_pages");
    drop(database_with_notes(&folder));
    let path = folder.join("onceward.db");
    let mut bytes = std::fs::read(&path).expect("the file");
    let middle = bytes.len() / 2;
    bytes[4_096..middle].fill(0x5a);
    std::fs::write(&path, bytes).expect("written");
    let done = run_verify(&folder, &[]);
    assert_eq!(done.status.code(), Some(1), "{}", utf8(&done.stderr));
    assert!(utf8(&done.stdout).contains("stopped: "), "{}", utf8(&done.stdout));
    let bytes = std::fs::read(&path).expect("the file");
    std::fs::write(&path, &bytes[..8_192]).expect("cut off");
    let done = run_verify(&folder, &[]);
    let said = utf8(&done.stdout);
    assert!(said.ends_with("verification failed: the database could not be read completely\n"), "{said}");
    assert_eq!(done.status.code(), Some(1), "{said}");
}

#[test]
fn verify_exits_2_without_database() {
    let folder = create_test_folder("verify_misuse");
    for (arguments, said) in [
        (&["--db", "sqlite:nowhere.db"][..], "nowhere.db"),
        (
            &["--db", "postgres://127.0.0.1:1/x"],
            "PostgreSQL: the database cannot be reached: database `x` at 127.0.0.1:1: ",
        ),
        (&["--db", "postgres://127.0.0.1:1/x?sslmode=bogus"], "verify-full, not `bogus`"),
        (&["--db", "sqlite::memory:"], "in-memory"),
        (&["--db", "onceward.db"], "sqlite:onceward.db"),
        (&[], "onceward.db"),
    ] {
        let done = run_verify(&folder, arguments);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}");
        assert!(utf8(&done.stderr).contains(said), "{arguments:?}: {}", utf8(&done.stderr));
    }
    assert_eq!(std::fs::read_dir(&folder).expect("folder").count(), 0, "no file is created");
}

/// Also creates no side files.
#[test]
fn verify_and_doctor_do_not_write_to_copy() {
    let folder = create_test_folder("verify_copy");
    drop(database_with_notes(&folder));
    let done = run_onceward(&folder, &["backup", "copy.db"]);
    assert_eq!(done.status.code(), Some(0), "{}", utf8(&done.stderr));
    let copy = std::fs::read(folder.join("copy.db")).expect("the copy");
    for verb in ["verify", "doctor"] {
        let done = run_onceward(&folder, &[verb, "--db", "sqlite:copy.db"]);
        assert_eq!(done.status.code(), Some(0), "{verb}: {}{}", utf8(&done.stdout), utf8(&done.stderr));
        let names = std::fs::read_dir(&folder).expect("the folder").map(|file| file.expect("file").file_name());
        let mut beside: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        beside.retain(|name| name.starts_with("copy.db"));
        assert_eq!(beside, ["copy.db"], "{verb}");
        assert!(std::fs::read(folder.join("copy.db")).expect("the copy") == copy, "{verb} wrote to it");
    }
}
