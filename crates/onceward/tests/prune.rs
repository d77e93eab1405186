//! Tests `onceward prune`.

mod support;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Output;

use onceward_core::decide::{Call, CreateRecord};
use onceward_core::record::Actor;
use onceward_engine::{Engine, Submission};
use onceward_store::SqliteStore;
use serde_json::{Map, Value, json};
use support::{create_test_folder, open_engine, run_onceward, start_server, utf8};
use tokio::runtime::Runtime;

const NOTE_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "desk.note"
about     = "A note"

[states]
open = { about = "may be read", rest = true }
torn = { about = "thrown away", final = true }

[[on.create]]
go = "-> open"

[[on.tear]]
go = "open -> torn"
"#;

/// Creates a database with four notes, three of them ended. The returned engine keeps it open.
fn database_with_torn_notes(name: &str) -> (PathBuf, (Runtime, Engine<SqliteStore>)) {
    let folder = create_test_folder(name);
    let (runtime, engine) = open_engine(&folder, NOTE_LIFECYCLE);
    let ann = Actor::new("ann", &["producer"]);
    runtime.block_on(async {
        for number in 0..4 {
            let create = CreateRecord {
                lifecycle: "desk.note".into(),
                id: None,
                owner: None,
                fields: Map::new(),
                payload: None,
            };
            let made = engine
                .submit(Submission::new(&ann, Call::Create(create)).with_idempotency_key(&number.to_string()))
                .await;
            let id = made.expect("note").subject;
            if number > 0 {
                engine.fire(&ann, id, "tear", Map::new()).await.expect("tear note");
            }
        }
    });
    (folder, (runtime, engine))
}

/// Returns the output without its last line, which says what is kept.
fn stdout_of_success(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", utf8(&output.stderr));
    let printed = utf8(&output.stdout);
    printed.split_once("kept: ").map_or(&*printed, |(before, _)| before).to_owned()
}

#[test]
fn prune_without_retention_keeps_records_and_says_so() {
    let (folder, running) = database_with_torn_notes("prune_forever");
    drop(running);
    let prune =
        |arguments: &[&str]| utf8(&run_onceward(&folder, &[&["prune", "--dry-run"], arguments].concat()).stdout);
    let kept = "kept: ended records forever, onceward.* 30d, idempotency keys 7d\n";
    assert_eq!(prune(&[]), format!("would delete 0 records with 0 entries\n{kept}"));
    let named = prune(&["--keep", "desk.note=0d"]);
    assert!(
        named.contains("would delete 3 records") && named.contains("kept: ended records forever, desk.note 0s"),
        "{named}"
    );
    assert!(prune(&["--keep", "desk.note=1d", "--older-than", "0d"]).contains("would delete 0 records"));
    let unknown = run_onceward(&folder, &["prune", "--keep", "desk.notes=0d"]);
    assert!(utf8(&unknown.stderr).contains("there is no lifecycle `desk.notes`"), "{unknown:?}");
    let server = start_server(&folder, &["--keep-audit", "365d"], &[]);
    let printed = utf8(&run_onceward(&folder, &["prune", "--server", &server.url()]).stdout);
    let kept = "kept: ended records forever, records with audit entries 365d, onceward.* 30d, idempotency keys 7d";
    assert_eq!(printed, format!("no records deleted\n{kept}\n"));
    let banner = server.stop();
    assert!(banner.contains(&format!("\n{kept}; the database has ")), "{banner}");
}

#[test]
fn prune_deletes_old_records_and_verify_reports_it() {
    let (folder, running) = database_with_torn_notes("prune_old");
    drop(running);
    assert_eq!(
        stdout_of_success(&run_onceward(&folder, &["prune"])),
        "no records deleted\n",
        "they ended a moment ago"
    );
    let dry = stdout_of_success(&run_onceward(&folder, &["prune", "--older-than", "0d", "--dry-run"]));
    assert_eq!(dry, "desk.note in torn of owner ann: 3\nwould delete 3 records with 6 entries\n");
    let done = stdout_of_success(&run_onceward(&folder, &["prune", "--older-than", "0d", "--keys-older-than", "0d"]));
    let expected = "desk.note in torn of owner ann: 3\ndeleted 3 records with 6 entries; the checkpoint has seq 8\n\
                4 idempotency keys deleted\n";
    assert_eq!(done, expected);
    let verified = stdout_of_success(&run_onceward(&folder, &["verify"]));
    assert!(verified.contains("note: 3 records with 6 entries up to seq 7 were pruned"), "{verified}");
    assert!(verified.ends_with("no differences: the database matches its log\n"), "{verified}");
    let json: Value =
        serde_json::from_str(&stdout_of_success(&run_onceward(&folder, &["verify", "--json"]))).expect("JSON");
    let expected = json!({ "checkpoints": 1, "records": 3, "entries": 6, "up_to": 7, "not_redecided": 1 });
    assert_eq!(json["pruned"], expected);
}

#[test]
fn prune_only_deletes_named_lifecycle() {
    let (folder, running) = database_with_torn_notes("prune_json");
    drop(running);
    let unknown = run_onceward(&folder, &["prune", "--only", "desk.nothing"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(utf8(&unknown.stderr).contains("desk.nothing"), "{}", utf8(&unknown.stderr));
    let arguments = ["prune", "--json", "--older-than", "0d", "--only", "onceward.delivery"];
    let none: Value = serde_json::from_str(&stdout_of_success(&run_onceward(&folder, &arguments))).expect("JSON");
    assert_eq!((&none["records"], &none["checkpoint"]), (&json!(0), &json!(null)));
    let arguments = ["prune", "--json", "--older-than", "0d", "--only", "desk.note"];
    let some: Value = serde_json::from_str(&stdout_of_success(&run_onceward(&folder, &arguments))).expect("JSON");
    assert_eq!((&some["records"], &some["entries"], &some["checkpoint"]), (&json!(3), &json!(6), &json!(8)));
    assert_eq!(some["shares"], json!([{ "lifecycle": "desk.note", "owner": "ann", "state": "torn", "records": 3 }]));
}

#[test]
fn prune_refuses_database_open_in_engine() {
    let (folder, _running) = database_with_torn_notes("prune_open");
    let done = run_onceward(&folder, &["prune", "--db", "sqlite:onceward.db", "--older-than", "0d"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(utf8(&done.stderr).contains("let its server prune with --server"), "{done:?}");
    for arguments in [&["prune", "--db", "sqlite:nowhere.db"][..], &["prune", "--older-than", "soon"]] {
        let done = run_onceward(&folder, arguments);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}");
    }
    assert!(!folder.join("nowhere.db").exists(), "no file is created");
}

/// The output is that of a prune without a server.
#[test]
fn prune_through_server_requires_operator() {
    let (folder, running) = database_with_torn_notes("prune_served");
    drop(running);
    let server = start_server(&folder, &[], &[]);
    let url = server.url();
    let prune = |more: &[&str]| run_onceward(&folder, &[&["prune", "--server", &url], more].concat());
    let dry = stdout_of_success(&prune(&["--older-than", "0d", "--dry-run"]));
    assert_eq!(dry, "desk.note in torn of owner ann: 3\nwould delete 3 records with 6 entries\n");
    let unknown = prune(&["--only", "desk.nothing"]);
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    assert!(utf8(&unknown.stderr).contains("desk.nothing"), "{unknown:?}");
    assert_eq!(stdout_of_success(&prune(&["--older-than", "90m"])), "no records deleted\n", "they ended a moment ago");

    let operator = server.create_api_key("", "ops", &["operator"]);
    let anns = server.create_api_key(&operator, "ann", &["producer"]);
    let refused = prune(&["--older-than", "0d"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(utf8(&refused.stderr).ends_with("no API key was sent: set ONCEWARD_KEY or use --key\n"), "{refused:?}");
    let forbidden = prune(&["--older-than", "0d", "--json", "--key", &anns]);
    assert_eq!(forbidden.status.code(), Some(1), "{forbidden:?}");
    let printed: Value = serde_json::from_slice(&forbidden.stdout).expect("JSON");
    assert_eq!(printed["error"]["code"], "forbidden");
    let arguments =
        ["--older-than", "0d", "--keys-older-than", "0d", "--only", "desk.note", "--json", "--key", &operator];
    let went: Value = serde_json::from_str(&stdout_of_success(&prune(&arguments))).expect("JSON");
    assert_eq!((&went["records"], &went["entries"], &went["idempotency_keys"]), (&json!(3), &json!(6), &json!(4)));
    assert_eq!(went["shares"], json!([{ "lifecycle": "desk.note", "owner": "ann", "state": "torn", "records": 3 }]));
    assert_eq!((&went["damaged"], went["checkpoint"].is_u64()), (&json!([]), true));
    server.stop();
    let unknown = prune(&["--older-than", "0d"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    assert!(utf8(&unknown.stderr).contains("start a server with `onceward serve`"), "{unknown:?}");
    assert!(
        stdout_of_success(&run_onceward(&folder, &["verify"]))
            .ends_with("no differences: the database matches its log\n")
    );
}

/// Pruned entries after the record's last one belong to other records.
#[test]
fn watch_continues_past_pruned_entries() {
    let (folder, running) = database_with_torn_notes("prune_watched");
    drop(running);
    let server = start_server(&folder, &[], &[]);
    let url = server.url();
    let ask = |words: &[&str]| stdout_of_success(&run_onceward(&folder, &[words, &["--server", &url]].concat()));
    let new = || ask(&["new", "desk.note"]).trim().to_owned();
    let (stays, goes) = (new(), new());
    ask(&["fire", &goes, "tear"]);
    assert!(ask(&["prune", "--older-than", "0d"]).contains("deleted 4 records with 8 entries"));
    let id = &*stays;
    let mut watching = std::process::Command::new(env!("CARGO_BIN_EXE_onceward"))
        .args(["watch", id, "--until", "torn", "--server", &url])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut story = BufReader::new(watching.stdout.take().expect("pipe")).lines();
    assert!(story.next().expect("its first line").expect("text").contains("create"));
    ask(&["fire", id, "tear"]);
    let rest: Vec<String> = story.map(|line| line.expect("text")).collect();
    assert!(rest.len() == 1 && rest[0].contains("open -> torn"), "{rest:?}");
    assert_eq!(watching.wait().expect("wait for process").code(), Some(0));
    server.stop();
}

/// Without a flag, the server's own policy applies. A lifecycle with a policy of its own does not hold back others.
#[test]
fn prune_through_server_uses_its_retention() {
    let (folder, running) = database_with_torn_notes("prune_kept");
    drop(running);
    let server = start_server(&folder, &["--keep", "0d"], &[]);
    let dry = stdout_of_success(&run_onceward(&folder, &["prune", "--server", &server.url(), "--dry-run"]));
    assert_eq!(dry, "desk.note in torn of owner ann: 3\nwould delete 3 records with 6 entries\n");
    server.stop();
    let server = start_server(&folder, &["--keep", "desk.note=forever"], &[]);
    let dry = stdout_of_success(&run_onceward(
        &folder,
        &["prune", "--server", &server.url(), "--dry-run", "--older-than", "0d"],
    ));
    assert_eq!(dry, "would delete 0 records with 0 entries\n");
    server.stop();
}

/// The bar is cleared at the end.
#[test]
fn prune_shows_progress_bar_on_terminal_only() {
    let (folder, running) = database_with_torn_notes("prune_bar");
    drop(running);
    let program = env!("CARGO_BIN_EXE_onceward");
    let shown = std::process::Command::new("script")
        .current_dir(&folder)
        .args(["-qec", &format!("'{program}' prune --older-than 0d --dry-run"), "/dev/null"])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("script runs");
    let printed = utf8(&shown.stdout);
    assert!(printed.contains("records ") && printed.contains("100%") && printed.contains("\r\u{1b}[K"), "{printed:?}");
    assert!(printed.contains("would delete 3 records with 6 entries"), "{printed:?}");
    let silent = run_onceward(&folder, &["prune", "--older-than", "0d", "--dry-run"]);
    assert_eq!(utf8(&silent.stderr), "using the database onceward.db; choose a server with --server\n");
}

/// The command does not even open the file for writing.
#[test]
fn prune_leaves_foreign_files_unchanged() {
    let folder = create_test_folder("prune_foreign");
    rusqlite::Connection::open(folder.join("app.db")).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    std::fs::write(folder.join("empty.db"), "").expect("file");
    std::fs::write(folder.join("text.db"), "no database, but long enough to look at").expect("file");
    for name in ["app.db", "empty.db", "text.db"] {
        let before = std::fs::read(folder.join(name)).expect("its bytes");
        for arguments in [&["prune", "--dry-run"][..], &["prune"]] {
            let url = format!("sqlite:{name}");
            let done = run_onceward(&folder, &[arguments, &["--db", &url]].concat());
            assert_eq!(done.status.code(), Some(2), "{name}: {}", utf8(&done.stderr));
        }
        assert_eq!(std::fs::read(folder.join(name)).expect("its bytes"), before, "{name}");
    }
    assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 3, "no other file is left");
}

#[test]
fn dry_run_reports_damaged_record() {
    let (folder, running) = database_with_torn_notes("prune_damaged");
    drop(running);
    let harm = "UPDATE records SET version = version + 1 WHERE row = 2";
    rusqlite::Connection::open(folder.join("onceward.db")).unwrap().execute_batch(harm).unwrap();
    let dry = run_onceward(&folder, &["prune", "--older-than", "0d", "--dry-run"]);
    assert_eq!(dry.status.code(), Some(1));
    let printed = utf8(&dry.stdout);
    assert!(printed.contains("kept ") && printed.contains("would delete 2 records with 4 entries"), "{printed}");
    assert!(!printed.contains("related records"), "{printed}");
}
