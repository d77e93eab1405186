//! `onceward backup`, run as a user runs it.

mod desk;

use std::process::Stdio;

use desk::{folder, notes, onceward, text};
use serde_json::Value;

/// Beside the engine that has the database open; the copy is clean, and restored by being put in place.
#[test]
fn a_copy_is_made_beside_the_engine_and_restored() {
    let folder = folder("backup_live");
    let (runtime, engine) = notes(&folder);
    let done = onceward(&folder, &["backup", "copy.db"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let said = text(&done.stdout);
    assert!(said.starts_with("copy.db: ") && said.contains("up to place 3 of the log"), "{said}");
    assert_eq!(text(&done.stderr), "", "no progress bar where nobody looks");
    let verified = onceward(&folder, &["verify", "--db", "sqlite:copy.db"]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified.stdout));
    runtime.block_on(engine.close());
    drop((engine, runtime));

    std::fs::rename(folder.join("copy.db"), folder.join("onceward.db")).expect("put in place");
    let (runtime, engine) = notes(&folder);
    runtime.block_on(engine.close());
    drop((engine, runtime));
    let verified = onceward(&folder, &["verify"]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified.stdout));
    assert!(text(&verified.stdout).starts_with("6 entries"), "{}", text(&verified.stdout));
}

/// Killed at any moment, also with the writers' lock in hand: the engine goes on, and the next backup writes over what is left.
#[test]
fn a_killed_backup_is_in_nobodys_way() {
    let folder = folder("backup_killed");
    let (runtime, engine) = notes(&folder);
    let part = folder.join("copy.db.part");
    let mut killed = 0;
    for _ in 0..6 {
        let _ = std::fs::remove_file(&part);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_onceward"));
        let mut child =
            command.current_dir(&folder).args(["backup", "copy.db"]).stdout(Stdio::null()).spawn().expect("it runs");
        while !part.exists() && child.try_wait().expect("a child").is_none() {
            std::thread::yield_now();
        }
        child.kill().expect("killed, or done before");
        killed += usize::from(!child.wait().expect("it ends").success());
        desk::note(&runtime, &engine, "pepper");
        let _ = std::fs::remove_file(folder.join("copy.db"));
    }
    println!("{killed} were killed in the middle");
    let done = onceward(&folder, &["backup", "copy.db"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("up to place 9 of the log"), "{}", text(&done.stdout));
    let verified = onceward(&folder, &["verify", "--db", "sqlite:copy.db"]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified.stdout));
}

#[test]
fn a_file_that_is_there_stays() {
    let folder = folder("backup_there");
    drop(notes(&folder));
    std::fs::write(folder.join("copy.db"), "mine").expect("a file");
    let done = onceward(&folder, &["backup", "copy.db"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("copy.db is there already"), "{}", text(&done.stderr));
    assert_eq!(std::fs::read(folder.join("copy.db")).expect("it is there"), b"mine");
    let done = onceward(&folder, &["backup", "nowhere/copy.db"]);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
}

#[test]
fn json_tells_what_it_took() {
    let folder = folder("backup_json");
    drop(notes(&folder));
    let done = onceward(&folder, &["backup", "copy.db", "--json", "--db", "sqlite:onceward.db"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let told: Value = serde_json::from_str(&text(&done.stdout)).expect("JSON");
    assert_eq!((&told["last_entry"], &told["holds"]), (&3.into(), &1.into()), "{told}");
    let length = std::fs::metadata(folder.join("copy.db")).expect("the copy").len();
    assert_eq!(told["bytes"], length);
}

#[test]
fn what_cannot_be_copied_is_misuse() {
    let folder = folder("backup_misuse");
    for (arguments, said) in [
        (&["backup", "copy.db"][..], "sqlite:onceward.db"),
        (&["backup", "copy.db", "--db", "postgres://127.0.0.1:1/x"], "pg_dump"),
        (&["backup"], "<FILE>"),
    ] {
        let done = onceward(&folder, arguments);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}");
        assert!(text(&done.stderr).contains(said), "{arguments:?}: {}", text(&done.stderr));
    }
    assert_eq!(std::fs::read_dir(&folder).expect("it is there").count(), 0, "nothing is made");
}
