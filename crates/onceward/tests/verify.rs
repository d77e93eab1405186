//! `onceward verify`, run as a user runs it.

mod desk;

use std::path::Path;
use std::process::Output;

use desk::{folder, notes, onceward, text};
use serde_json::{Value, json};

fn verify(folder: &Path, arguments: &[&str]) -> Output {
    onceward(folder, &[&["verify"], arguments].concat())
}

fn harm(folder: &Path, sql: &str) {
    rusqlite::Connection::open(folder.join("onceward.db")).expect("it opens").execute_batch(sql).expect("harm");
}

#[test]
fn a_database_is_looked_through_while_its_engine_runs() {
    let folder = folder("verify_live");
    let _running = notes(&folder);
    let done = verify(&folder, &[]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let said = text(&done.stdout);
    assert!(said.starts_with("3 entries up to place 3, 3 records"), "{said}");
    assert!(said.ends_with("all is as the log says\n"), "{said}");
    assert_eq!(text(&done.stderr), "", "no progress bar where nobody looks");
}

#[test]
fn each_difference_is_named_and_exits_with_1() {
    let folder = folder("verify_harmed");
    drop(notes(&folder));
    harm(&folder, "UPDATE records SET fields = '[\"beer\"]' WHERE row = 2; DELETE FROM tallies");
    let done = verify(&folder, &["--db", "sqlite:onceward.db"]);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    let said = text(&done.stdout);
    assert!(said.contains("fields: kept is [\"beer\"], the log says [\"bread\"] (INV-3)"), "{said}");
    assert!(said.contains("tallies desk.note 1 ann open: not there"), "{said}");
    assert!(said.ends_with("found wanting: 2 differences, 0 drifts\n"), "{said}");
}

#[test]
fn json_has_the_same_findings() {
    let folder = folder("verify_json");
    drop(notes(&folder));
    let clean: Value = serde_json::from_str(&text(&verify(&folder, &["--json"]).stdout)).expect("JSON");
    assert_eq!((&clean["clean"], &clean["entries"], &clean["decided_again"]), (&json!(true), &json!(3), &json!(3)));
    harm(&folder, "UPDATE records SET version = 5 WHERE row = 1");
    let done = verify(&folder, &["--json"]);
    assert_eq!(done.status.code(), Some(1));
    let found: Value = serde_json::from_str(&text(&done.stdout)).expect("JSON");
    assert_eq!(found["clean"], json!(false));
    let difference = &found["differences"][0];
    assert_eq!(difference["table"], "records");
    assert_eq!((&difference["column"], &difference["kept"]), (&json!("version"), &json!("5")));
    assert_eq!((&difference["told"], &difference["what"]), (&json!("1"), &json!("differs")));
}

#[test]
fn damaged_pages_are_found_wanting() {
    let folder = folder("verify_pages");
    drop(notes(&folder));
    let path = folder.join("onceward.db");
    let mut bytes = std::fs::read(&path).expect("the file");
    let middle = bytes.len() / 2;
    bytes[4_096..middle].fill(0x5a);
    std::fs::write(&path, bytes).expect("written");
    let done = verify(&folder, &[]);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("stopped: "), "{}", text(&done.stdout));
    let bytes = std::fs::read(&path).expect("the file");
    std::fs::write(&path, &bytes[..8_192]).expect("cut off");
    let done = verify(&folder, &[]);
    let said = text(&done.stdout);
    assert!(said.ends_with("found wanting: it could not be looked at to its end\n"), "{said}");
    assert_eq!(done.status.code(), Some(1), "{said}");
}

#[test]
fn what_is_no_database_is_misuse() {
    let folder = folder("verify_misuse");
    for (arguments, said) in [
        (&["--db", "sqlite:nowhere.db"][..], "nowhere.db"),
        (
            &["--db", "postgres://127.0.0.1:1/x"],
            "PostgreSQL: the database cannot be reached: database `x` at 127.0.0.1:1: ",
        ),
        (&["--db", "postgres://127.0.0.1:1/x?sslmode=bogus"], "verify-full, not `bogus`"),
        (&["--db", "sqlite::memory:"], "in memory"),
        (&["--db", "onceward.db"], "sqlite:onceward.db"),
        (&[], "onceward.db"),
    ] {
        let done = verify(&folder, arguments);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}");
        assert!(text(&done.stderr).contains(said), "{arguments:?}: {}", text(&done.stderr));
    }
    assert_eq!(std::fs::read_dir(&folder).expect("it is there").count(), 0, "nothing is made");
}

/// Reading a copy leaves it alone, and nothing beside it.
#[test]
fn a_copy_is_left_as_it_was() {
    let folder = folder("verify_copy");
    drop(notes(&folder));
    let done = onceward(&folder, &["backup", "copy.db"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let copy = std::fs::read(folder.join("copy.db")).expect("the copy");
    for verb in ["verify", "doctor"] {
        let done = onceward(&folder, &[verb, "--db", "sqlite:copy.db"]);
        assert_eq!(done.status.code(), Some(0), "{verb}: {}{}", text(&done.stdout), text(&done.stderr));
        let names = std::fs::read_dir(&folder).expect("the folder").map(|file| file.expect("a file").file_name());
        let mut beside: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        beside.retain(|name| name.starts_with("copy.db"));
        assert_eq!(beside, ["copy.db"], "{verb}");
        assert!(std::fs::read(folder.join("copy.db")).expect("the copy") == copy, "{verb} wrote to it");
    }
}
