//! Tests `onceward lifecycle` on a database without a server, and `serve` with rejected lifecycle files.

use std::path::{Path, PathBuf};
use std::process::Command;

use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::record::Actor;
use onceward_engine::{Engine, EngineConfig};
use onceward_store::{Clock, SqliteStore};
use onceward_testkit::TempDir;
use onceward_testkit::server_process::{self, ServerProcess};
use serde_json::{Value, json};

const NOTE_LIFECYCLE: &str = "language = 1\nlifecycle = \"desk.note\"\nabout = \"Something to remember\"\n[states]\n\
    open = { about = \"to do\", rest = true }\nover = { about = \"done\", final = true }\n[fields]\n\
    text = { type = \"string\", max = 100, default = \"\" }\n[[on.create]]\ngo = \"-> open\"\ntake = [\"text\"]\n\
    [[on.close]]\ngo = \"open -> over\"\n";

fn run_onceward(folder: &Path, words: &[&str]) -> (i32, String, String) {
    let printed = Command::new(env!("CARGO_BIN_EXE_onceward"))
        .args(words)
        .current_dir(folder)
        .env_remove("ONCEWARD_URL")
        .env_remove("ONCEWARD_KEY")
        .output()
        .expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (printed.status.code().unwrap_or(-1), text(&printed.stdout), text(&printed.stderr))
}

/// Creates a database with three notes of the first version, one of them too long for the second, and one note of the
/// second.
fn create_notes_of_two_versions(path: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio runtime");
    runtime.block_on(async {
        let engine = Engine::open(
            SqliteStore::open(path, Clock::machine()).expect("new database file"),
            EngineConfig::default(),
        );
        let define = async |text: &str| {
            let files = vec![InputFile { name: "note.toml".to_owned(), text: text.into() }];
            engine.put_lifecycles(&InputFiles { files }).await.expect("valid lifecycle files");
        };
        let note = async |text: &str| {
            let Value::Object(fields) = json!({ "text": text }) else { unreachable!() };
            engine.create(&Actor::new("ann", &["producer"]), "desk.note", fields).await.expect("note");
        };
        define(NOTE_LIFECYCLE).await;
        for text in ["milk", "bread", "a story that is too long for the second version"] {
            note(text).await;
        }
        define(&NOTE_LIFECYCLE.replace("open", "todo").replace("max = 100", "max = 20")).await;
        note("tea").await;
        engine.close().await;
    });
}

#[test]
fn refused_server_start_activates_no_version() {
    let folder = TempDir::new();
    let file = folder.database_path();
    create_notes_of_two_versions(&file);
    let here: PathBuf = file.parent().expect("folder").to_path_buf();
    let db = format!("sqlite:{}", file.display());
    let versions = || run_onceward(&here, &["lifecycle", "list", "desk.note", "--db", &db]);
    let before = versions();
    assert_eq!(before.0, 0, "{before:?}");
    std::fs::create_dir(here.join("own")).expect("folder");
    std::fs::write(here.join("own/note.toml"), NOTE_LIFECYCLE.replace("open", "fresh")).expect("file");
    let start = |more: &[&str]| run_onceward(&here, &[&["serve", "--db", &db, "--lifecycles", "own"], more].concat());
    for (more, code, says) in [
        (["--listen", "127.0.0.1:0", "--keep", "desk.notes=1d"], 2, "there is no lifecycle `desk.notes`"),
        (["--listen", "0.0.0.0:0", "--keep", "1d"], 1, "the database has no API keys"),
    ] {
        let printed = start(&more);
        assert!(printed.0 == code && printed.2.contains(says), "{printed:?}");
        assert_eq!(versions(), before);
    }
}

/// The server starts with an older file, so the newer version stays active. It says so, with the command that changes it.
#[test]
fn inactive_lifecycle_file_is_reported() {
    let folder = TempDir::new();
    let file = folder.database_path();
    create_notes_of_two_versions(&file);
    let here: PathBuf = file.parent().expect("folder").to_path_buf();
    let db = format!("sqlite:{}", file.display());
    std::fs::create_dir(here.join("own")).expect("folder");
    std::fs::write(here.join("own/note.toml"), NOTE_LIFECYCLE).expect("file");
    let start = || {
        let mut command = server_process::serve_command(env!("CARGO_BIN_EXE_onceward"), &db);
        ServerProcess::start(command.current_dir(&here).args(["--lifecycles", "own"]))
    };
    let server = start();
    let shown = server.get("/v1/lifecycles/desk.note").json();
    let (file_hash, active) = (shown["file_hash"].as_str().expect("hash"), shown["hash"].as_str().expect("hash"));
    let says = format!("desk.note: version {} is active, not version {} of the file", &active[..12], &file_hash[..12]);
    let command = format!("onceward lifecycle use desk.note {}", &file_hash[..12]);
    let all = server.get("/v1/lifecycles").json();
    let others = all["lifecycles"].as_array().expect("lifecycles").iter().filter(|one| one["file_hash"].is_string());
    assert_eq!(others.count(), 1, "the shipped files are active: {all}");
    let banner = server.stop();
    assert!(banner.contains(&says) && banner.contains(&command), "{banner}");
    let doctor = || run_onceward(&here, &["doctor", "--db", &db, "--lifecycles", "own"]);
    let (code, printed, _) = doctor();
    assert!(code == 0 && printed.contains(&says) && printed.contains(&command), "{printed}");
    let words: Vec<&str> = command.split(' ').skip(1).chain(["--db", &db]).collect();
    assert_eq!(run_onceward(&here, &words).0, 0);
    assert!(!doctor().1.contains("inactive-file"), "{}", doctor().1);
    let server = start();
    assert!(server.get("/v1/lifecycles/desk.note").json()["file_hash"].is_null());
    assert!(!server.stop().contains("not active"));
}

/// `check` and `serve` agree: a file may refer to shipped lifecycles without naming their files.
#[test]
fn file_may_spawn_shipped_lifecycle() {
    let folder = TempDir::new();
    let here: PathBuf = folder.database_path().parent().expect("folder").to_path_buf();
    let spawning = "spawn = [{ lifecycle = \"execution.job\", fields = {} }]\n";
    let file = NOTE_LIFECYCLE.replacen("[[on.close]]\n", &format!("[[on.close]]\n{spawning}"), 1);
    std::fs::create_dir(here.join("own")).expect("folder");
    std::fs::write(here.join("own/note.toml"), &file).expect("file");
    let (code, out, err) = run_onceward(&here, &["check", "own"]);
    assert_eq!((code, &*out), (0, "1 lifecycle is sound: desk.note\n"), "{err}");
    let url = format!("sqlite:{}", folder.database_path().display());
    let mut command = server_process::serve_command(env!("CARGO_BIN_EXE_onceward"), &url);
    ServerProcess::start(command.current_dir(&here).args(["--lifecycles", "own"])).stop();
    // Both report the same error in the file.
    std::fs::write(here.join("own/note.toml"), file.replace("fields = {}", "fields = { nothing = \"1\" }"))
        .expect("file");
    let (code, _, checked) = run_onceward(&here, &["check", "own"]);
    let (started, _, refused) = run_onceward(&here, &["serve", "--db", &url, "--lifecycles", "own"]);
    assert_eq!((code, started), (1, 1), "{checked}{refused}");
    let first = checked.lines().next().expect("an error");
    assert!(first.starts_with("error[no-matching-transition]") && refused.contains(first), "{checked}{refused}");
}

#[test]
fn lifecycle_commands_list_move_and_activate_versions() {
    let folder = TempDir::new();
    let file = folder.database_path();
    create_notes_of_two_versions(&file);
    let here: PathBuf = file.parent().expect("folder").to_path_buf();
    let db = format!("sqlite:{}", file.display());
    let lifecycle = |words: &[&str]| {
        let mut all = vec!["lifecycle"];
        all.extend(words);
        all.extend(["--db", db.as_str()]);
        run_onceward(&here, &all)
    };
    let list = || -> Vec<(String, bool, u64)> {
        let (code, out, err) = lifecycle(&["list", "desk.note", "--json"]);
        assert_eq!(code, 0, "{err}");
        let printed: Value = serde_json::from_str(&out).expect("JSON");
        let one = |version: &Value| {
            let text = version["hash"].as_str().expect("hash").to_owned();
            (text, version["current"].as_bool().expect("boolean"), version["live_records"].as_u64().expect("number"))
        };
        printed["versions"].as_array().expect("JSON array").iter().map(one).collect()
    };
    let versions = list();
    let (old, new) = (versions[0].0.clone(), versions[1].0.clone());
    assert_eq!(versions, [(old.clone(), false, 3), (new.clone(), true, 1)]);
    let (code, out, _) = lifecycle(&["list"]);
    assert!(code == 0 && out.contains("onceward.delivery") && out.contains(&new[..12]), "{out}");

    // The command reports the obstacle before it moves a record.
    let (code, _, err) = lifecycle(&["move", "desk.note"]);
    assert!(code == 1 && err.contains("map it with open=STATE"), "{code} {err}");
    let (code, _, err) = lifecycle(&["move", "desk.note", "--map", "open"]);
    assert!(code == 2 && err.contains("OLD=NEW"), "{code} {err}");
    let (code, out, err) = lifecycle(&["move", "desk.note", "--map", "open=todo", "--dry-run"]);
    assert!(code == 1 && out.contains("2 records of desk.note would be migrated"), "{code} {out} {err}");
    let (code, out, err) = lifecycle(&["move", "desk.note", "--map", "open=todo"]);
    assert!(code == 1 && out.contains("2 records of desk.note were migrated"), "{code} {out} {err}");
    assert!(err.contains("skipped: ") && err.contains("`text` must have at most 20 characters"), "{err}");
    assert_eq!(list(), [(old.clone(), false, 1), (new.clone(), true, 3)]);

    // Activate the old version by a prefix of its hash.
    for (hash, expected) in [("0123", 1), ("ffffffffffff", 1), (&old[..8], 0), (&old, 0)] {
        let (code, out, err) = lifecycle(&["use", "desk.note", hash]);
        assert_eq!(code, expected, "{hash}: {out} {err}");
    }
    assert_eq!(list()[0], (old.clone(), true, 1));
    let (code, out, err) = lifecycle(&["move", "desk.note", "--from", &new[..12], "--map", "todo=open", "--json"]);
    assert_eq!(code, 0, "{err}");
    let printed: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&printed["moved"], &printed["to"]), (&json!(3), &json!(old)));
    let (code, out, err) = run_onceward(&here, &["verify", "--db", &db]);
    assert_eq!(code, 0, "{out} {err}");
    // With an unreachable server the command fails and says so.
    let (code, _, err) = run_onceward(&here, &["lifecycle", "list", "--server", "http://127.0.0.1:9"]);
    assert!(code == 2 && err.contains("cannot reach"), "{code} {err}");
    let (code, _, err) = lifecycle(&["list", "desk.nothing"]);
    assert!(code == 2 && err.contains("desk.nothing"), "{code} {err}");
}

/// The error names the location in the file.
#[test]
fn server_does_not_start_with_invalid_lifecycle_files() {
    let folder = TempDir::new();
    let here = folder.database_path().parent().expect("folder").to_path_buf();
    let own = here.join("own");
    std::fs::create_dir_all(&own).expect("folder");
    let serve =
        || run_onceward(&here, &["serve", "--db", "sqlite::memory:", "--listen", "127.0.0.1:0", "--lifecycles", "own"]);
    let (code, _, err) = serve();
    assert!(code == 2 && err.contains("own has no lifecycle files"), "{code} {err}");
    std::fs::write(own.join("note.toml"), NOTE_LIFECYCLE.replace("open -> over", "open -> ovr")).expect("file");
    let (code, _, err) = serve();
    assert!(code == 1 && err.contains("own/note.toml:") && err.contains("unknown-state"), "{code} {err}");
    // Refers to a lifecycle that neither the files nor the database contain.
    std::fs::write(
        own.join("note.toml"),
        NOTE_LIFECYCLE.replace("[fields]", "[fields]\nof = { type = \"ref\", to = \"desk.none\" }"),
    )
    .expect("file");
    let (code, _, err) = serve();
    assert!(code == 1 && err.contains("desk.none"), "{code} {err}");
    std::fs::write(own.join("note.toml"), vec![b' '; 300_000]).expect("file");
    let (code, _, err) = serve();
    assert!(code == 1 && err.contains("too large"), "{code} {err}");
    std::fs::write(own.join("note.toml"), [0xff, 0xfe]).expect("file");
    let (code, _, err) = serve();
    assert!(code == 1 && err.contains("not valid UTF-8"), "{code} {err}");
}
