//! Tests `onceward backup`.

mod support;

use std::process::Stdio;

use serde_json::Value;
use support::{create_test_folder, database_with_notes, run_onceward, utf8};

/// Restores by copying the file to the database's path.
#[test]
fn backup_of_open_database_can_be_restored() {
    let folder = create_test_folder("backup_live");
    let (runtime, engine) = database_with_notes(&folder);
    let done = run_onceward(&folder, &["backup", "copy.db"]);
    assert_eq!(done.status.code(), Some(0), "{}", utf8(&done.stderr));
    let printed = utf8(&done.stdout);
    assert!(printed.starts_with("copy.db: ") && printed.contains("up to seq 3 of the log"), "{printed}");
    assert_eq!(utf8(&done.stderr), "", "no progress bar without a terminal");
    let verified = run_onceward(&folder, &["verify", "--db", "sqlite:copy.db"]);
    assert_eq!(verified.status.code(), Some(0), "{}", utf8(&verified.stdout));
    runtime.block_on(engine.close());
    drop((engine, runtime));

    std::fs::rename(folder.join("copy.db"), folder.join("onceward.db")).expect("put in place");
    let (runtime, engine) = database_with_notes(&folder);
    runtime.block_on(engine.close());
    drop((engine, runtime));
    let verified = run_onceward(&folder, &["verify"]);
    assert_eq!(verified.status.code(), Some(0), "{}", utf8(&verified.stdout));
    assert!(utf8(&verified.stdout).starts_with("verified 6 entries"), "{}", utf8(&verified.stdout));
}

/// Kills the backup at various moments, also while it holds the writer lock.
#[test]
fn killed_backup_blocks_neither_engine_nor_next_backup() {
    let folder = create_test_folder("backup_killed");
    let (runtime, engine) = database_with_notes(&folder);
    let part = folder.join("copy.db.part");
    let mut killed = 0;
    for _ in 0..6 {
        let _ = std::fs::remove_file(&part);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_onceward"));
        let mut child = command
            .current_dir(&folder)
            .args(["backup", "copy.db"])
            .stdout(Stdio::null())
            .spawn()
            .expect("start process");
        while !part.exists() && child.try_wait().expect("child").is_none() {
            std::thread::yield_now();
        }
        child.kill().expect("killed, or done before");
        killed += usize::from(!child.wait().expect("wait for process").success());
        support::create_note(&runtime, &engine, "pepper");
        let _ = std::fs::remove_file(folder.join("copy.db"));
    }
    println!("killed {killed} backups before they finished");
    let done = run_onceward(&folder, &["backup", "copy.db"]);
    assert_eq!(done.status.code(), Some(0), "{}", utf8(&done.stderr));
    assert!(utf8(&done.stdout).contains("up to seq 9 of the log"), "{}", utf8(&done.stdout));
    let verified = run_onceward(&folder, &["verify", "--db", "sqlite:copy.db"]);
    assert_eq!(verified.status.code(), Some(0), "{}", utf8(&verified.stdout));
}

#[test]
fn backup_does_not_overwrite_existing_file() {
    let folder = create_test_folder("backup_there");
    drop(database_with_notes(&folder));
    std::fs::write(folder.join("copy.db"), "mine").expect("file");
    let done = run_onceward(&folder, &["backup", "copy.db"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(utf8(&done.stderr).contains("copy.db already exists"), "{}", utf8(&done.stderr));
    assert_eq!(std::fs::read(folder.join("copy.db")).expect("backup file"), b"mine");
    let done = run_onceward(&folder, &["backup", "nowhere/copy.db"]);
    assert_eq!(done.status.code(), Some(1), "{}", utf8(&done.stderr));
}

#[test]
fn backup_json_reports_size_and_last_entry() {
    let folder = create_test_folder("backup_json");
    drop(database_with_notes(&folder));
    let done = run_onceward(&folder, &["backup", "copy.db", "--json", "--db", "sqlite:onceward.db"]);
    assert_eq!(done.status.code(), Some(0), "{}", utf8(&done.stderr));
    let report: Value = serde_json::from_str(&utf8(&done.stdout)).expect("JSON");
    assert_eq!((&report["last_entry"], &report["read_transactions"]), (&3.into(), &1.into()), "{report}");
    let length = std::fs::metadata(folder.join("copy.db")).expect("the copy").len();
    assert_eq!(report["bytes"], length);
}

#[test]
fn backup_exits_2_without_sqlite_database() {
    let folder = create_test_folder("backup_misuse");
    for (arguments, printed) in [
        (&["backup", "copy.db"][..], "sqlite:onceward.db"),
        (&["backup", "copy.db", "--db", "postgres://127.0.0.1:1/x"], "pg_dump"),
        (&["backup"], "<FILE>"),
    ] {
        let done = run_onceward(&folder, arguments);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}");
        assert!(utf8(&done.stderr).contains(printed), "{arguments:?}: {}", utf8(&done.stderr));
    }
    assert_eq!(std::fs::read_dir(&folder).expect("folder or file").count(), 0, "no file is created");
}
