//! `onceward prune`, run as a user runs it.

mod desk;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Output;

use desk::{engine, folder, onceward, serve, text};
use onceward_core::decide::{Call, Create};
use onceward_core::record::Actor;
use onceward_engine::{Engine, Submission};
use onceward_store::SqliteStore;
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

const NOTE: &str = r#"
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

/// A database with four notes, three of them torn, written by an engine that stays open as long as what is given back.
fn notes(name: &str) -> (PathBuf, (Runtime, Engine<SqliteStore>)) {
    let folder = folder(name);
    let (runtime, engine) = engine(&folder, NOTE);
    let ann = Actor::new("ann", &["producer"]);
    runtime.block_on(async {
        for number in 0..4 {
            let create =
                Create { lifecycle: "desk.note".into(), id: None, owner: None, fields: Map::new(), payload: None };
            let made = engine.submit(Submission::new(&ann, Call::Create(create)).once(&number.to_string())).await;
            let id = made.expect("a note").subject;
            if number > 0 {
                engine.fire(&ann, id, "tear", Map::new()).await.expect("torn");
            }
        }
    });
    (folder, (runtime, engine))
}

fn said(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn what_is_old_enough_goes_and_verify_says_so() {
    let (folder, running) = notes("prune_old");
    drop(running);
    assert_eq!(said(&onceward(&folder, &["prune"])), "no record went\n", "they ended a moment ago");
    let dry = said(&onceward(&folder, &["prune", "--older-than", "0d", "--dry-run"]));
    assert_eq!(dry, "desk.note ann torn: 3\n3 records with 6 entries would go\n");
    let done = said(&onceward(&folder, &["prune", "--older-than", "0d", "--keys-older-than", "0d"]));
    let went = "desk.note ann torn: 3\n3 records with 6 entries went; the last checkpoint is entry 8 of the log\n\
                4 answers to callers' keys were forgotten\n";
    assert_eq!(done, went);
    let verified = said(&onceward(&folder, &["verify"]));
    assert!(verified.contains("pruning took 3 records with 6 entries, up to place 7"), "{verified}");
    assert!(verified.ends_with("all is as the log says\n"), "{verified}");
    let json: Value = serde_json::from_str(&said(&onceward(&folder, &["verify", "--json"]))).expect("JSON");
    let expected = json!({ "checkpoints": 1, "records": 3, "entries": 6, "up_to": 7, "not_decided_again": 1 });
    assert_eq!(json["pruned"], expected);
}

#[test]
fn json_and_one_lifecycle_only() {
    let (folder, running) = notes("prune_json");
    drop(running);
    let nobody = onceward(&folder, &["prune", "--only", "desk.nothing"]);
    assert_eq!(nobody.status.code(), Some(2));
    assert!(text(&nobody.stderr).contains("desk.nothing"), "{}", text(&nobody.stderr));
    let arguments = ["prune", "--json", "--older-than", "0d", "--only", "onceward.delivery"];
    let none: Value = serde_json::from_str(&said(&onceward(&folder, &arguments))).expect("JSON");
    assert_eq!((&none["records"], &none["checkpoint"]), (&json!(0), &json!(null)));
    let arguments = ["prune", "--json", "--older-than", "0d", "--only", "desk.note"];
    let some: Value = serde_json::from_str(&said(&onceward(&folder, &arguments))).expect("JSON");
    assert_eq!((&some["records"], &some["entries"], &some["checkpoint"]), (&json!(3), &json!(6), &json!(8)));
    assert_eq!(some["shares"], json!([{ "lifecycle": "desk.note", "owner": "ann", "state": "torn", "records": 3 }]));
}

#[test]
fn a_file_that_an_engine_has_open_is_left_alone() {
    let (folder, _running) = notes("prune_open");
    let done = onceward(&folder, &["prune", "--db", "sqlite:onceward.db", "--older-than", "0d"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("let it prune by itself, or ask it to with --server"), "{done:?}");
    for arguments in [&["prune", "--db", "sqlite:nowhere.db"][..], &["prune", "--older-than", "soon"]] {
        let done = onceward(&folder, arguments);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}");
    }
    assert!(!folder.join("nowhere.db").exists(), "nothing is made");
}

/// While a server has the database it is the server that prunes, for operators; what is printed is the same.
#[test]
fn a_server_prunes_for_its_operators() {
    let (folder, running) = notes("prune_served");
    drop(running);
    let served = serve(&folder, &[], &[]);
    let url = served.url();
    let prune = |more: &[&str]| onceward(&folder, &[&["prune", "--server", &url], more].concat());
    let dry = said(&prune(&["--older-than", "0d", "--dry-run"]));
    assert_eq!(dry, "desk.note ann torn: 3\n3 records with 6 entries would go\n");
    let nobody = prune(&["--only", "desk.nothing"]);
    assert_eq!(nobody.status.code(), Some(1), "{nobody:?}");
    assert!(text(&nobody.stderr).contains("desk.nothing"), "{nobody:?}");
    assert_eq!(said(&prune(&["--older-than", "90m"])), "no record went\n", "they ended a moment ago");

    let operator = served.key("", "ops", &["operator"]);
    let anns = served.key(&operator, "ann", &["producer"]);
    let refused = prune(&["--older-than", "0d"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(text(&refused.stderr).ends_with("no key was given: set ONCEWARD_KEY, or give --key\n"), "{refused:?}");
    let forbidden = prune(&["--older-than", "0d", "--json", "--key", &anns]);
    assert_eq!(forbidden.status.code(), Some(1), "{forbidden:?}");
    let told: Value = serde_json::from_slice(&forbidden.stdout).expect("JSON");
    assert_eq!(told["error"]["code"], "forbidden");
    let arguments =
        ["--older-than", "0d", "--keys-older-than", "0d", "--only", "desk.note", "--json", "--key", &operator];
    let went: Value = serde_json::from_str(&said(&prune(&arguments))).expect("JSON");
    assert_eq!((&went["records"], &went["entries"], &went["requests"]), (&json!(3), &json!(6), &json!(4)));
    assert_eq!(went["shares"], json!([{ "lifecycle": "desk.note", "owner": "ann", "state": "torn", "records": 3 }]));
    assert_eq!((&went["damaged"], went["checkpoint"].is_u64()), (&json!([]), true));
    served.stop();
    let nobody = prune(&["--older-than", "0d"]);
    assert_eq!(nobody.status.code(), Some(2), "{nobody:?}");
    assert!(text(&nobody.stderr).contains("is a server running there?"), "{nobody:?}");
    assert!(said(&onceward(&folder, &["verify"])).ends_with("all is as the log says\n"));
}

/// What was pruned later in the log is no part of a record's story: it is followed all the same.
#[test]
fn a_record_is_watched_past_what_was_pruned() {
    let (folder, running) = notes("prune_watched");
    drop(running);
    let served = serve(&folder, &[], &[]);
    let url = served.url();
    let ask = |words: &[&str]| said(&onceward(&folder, &[words, &["--server", &url]].concat()));
    let new = || ask(&["new", "desk.note"]).trim().to_owned();
    let (stays, goes) = (new(), new());
    ask(&["fire", &goes, "tear"]);
    assert!(ask(&["prune", "--older-than", "0d"]).contains("4 records with 8 entries went"));
    let id = &*stays;
    let mut watching = std::process::Command::new(env!("CARGO_BIN_EXE_onceward"))
        .args(["watch", id, "--until", "torn", "--server", &url])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut story = BufReader::new(watching.stdout.take().expect("a pipe")).lines();
    assert!(story.next().expect("its first line").expect("text").contains("create"));
    ask(&["fire", id, "tear"]);
    let rest: Vec<String> = story.map(|line| line.expect("text")).collect();
    assert!(rest.len() == 1 && rest[0].contains("open -> torn"), "{rest:?}");
    assert_eq!(watching.wait().expect("it ends").code(), Some(0));
    served.stop();
}

/// What a server keeps by itself is asked for where nothing is said; and what stays for its own time is not held by others.
#[test]
fn a_server_goes_by_its_own_lengths() {
    let (folder, running) = notes("prune_kept");
    drop(running);
    let served = serve(&folder, &["--keep", "0d"], &[]);
    let dry = said(&onceward(&folder, &["prune", "--server", &served.url(), "--dry-run"]));
    assert_eq!(dry, "desk.note ann torn: 3\n3 records with 6 entries would go\n");
    served.stop();
    let served = serve(&folder, &["--keep", "desk.note=forever"], &[]);
    let dry = said(&onceward(&folder, &["prune", "--server", &served.url(), "--dry-run", "--older-than", "0d"]));
    assert_eq!(dry, "0 records with 0 entries would go\n");
    served.stop();
}

/// On a terminal it shows how far it is, and leaves nothing of that behind; elsewhere it is silent about it.
#[test]
fn somebody_who_looks_sees_it_get_on() {
    let (folder, running) = notes("prune_bar");
    drop(running);
    let program = env!("CARGO_BIN_EXE_onceward");
    let shown = std::process::Command::new("script")
        .current_dir(&folder)
        .args(["-qec", &format!("'{program}' prune --older-than 0d --dry-run"), "/dev/null"])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("script runs");
    let told = text(&shown.stdout);
    assert!(told.contains("records ") && told.contains("100%") && told.contains("\r\u{1b}[K"), "{told:?}");
    assert!(told.contains("3 records with 6 entries would go"), "{told:?}");
    let silent = onceward(&folder, &["prune", "--older-than", "0d", "--dry-run"]);
    assert_eq!(text(&silent.stderr), "");
}

/// A file that is not ours is not touched, not even to find out.
#[test]
fn another_programs_file_is_left_as_it_is() {
    let folder = folder("prune_foreign");
    rusqlite::Connection::open(folder.join("app.db")).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    std::fs::write(folder.join("empty.db"), "").expect("a file");
    std::fs::write(folder.join("text.db"), "no database, but long enough to look at").expect("a file");
    for name in ["app.db", "empty.db", "text.db"] {
        let before = std::fs::read(folder.join(name)).expect("its bytes");
        for arguments in [&["prune", "--dry-run"][..], &["prune"]] {
            let url = format!("sqlite:{name}");
            let done = onceward(&folder, &[arguments, &["--db", &url]].concat());
            assert_eq!(done.status.code(), Some(2), "{name}: {}", text(&done.stderr));
        }
        assert_eq!(std::fs::read(folder.join(name)).expect("its bytes"), before, "{name}");
    }
    assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 3, "nothing is left beside them");
}

/// A dry run tells of damage as the real one does.
#[test]
fn a_damaged_record_would_not_go() {
    let (folder, running) = notes("prune_damaged");
    drop(running);
    let harm = "UPDATE records SET version = version + 1 WHERE row = 2";
    rusqlite::Connection::open(folder.join("onceward.db")).unwrap().execute_batch(harm).unwrap();
    let dry = onceward(&folder, &["prune", "--older-than", "0d", "--dry-run"]);
    assert_eq!(dry.status.code(), Some(1));
    let told = text(&dry.stdout);
    assert!(told.contains("kept: ") && told.contains("2 records with 4 entries would go"), "{told}");
    assert!(!told.contains("belong to them"), "{told}");
}
