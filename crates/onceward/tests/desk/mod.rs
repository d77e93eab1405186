//! What the tests of verbs stand on: a folder of their own, and a database with three notes in it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use onceward_core::decide::{Call, Create};
use onceward_core::diagnostic::{File, Files};
use onceward_core::record::Actor;
use onceward_engine::{Config, Engine, Submission};
use onceward_store::{Clock, SqliteStore};
use onceward_testkit::served::Served;
use serde_json::{Map, json};

const NOTE: &str = r#"
language  = 1
lifecycle = "desk.note"
about     = "A note"

[states]
open = { about = "may be written", rest = true }

[fields]
text = { type = "string", optional = true }

[[on.create]]
go   = "-> open"
take = ["text"]
"#;

pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// A database with three notes, written by an engine that stays open as long as what is given back.
pub(crate) fn notes(folder: &Path) -> (tokio::runtime::Runtime, Engine<SqliteStore>) {
    let (runtime, engine) = engine(folder, NOTE);
    for text in ["milk", "bread", "salt"] {
        note(&runtime, &engine, text);
    }
    (runtime, engine)
}

/// An engine on the folder's database, with one lifecycle file.
pub(crate) fn engine(folder: &Path, file: &str) -> (tokio::runtime::Runtime, Engine<SqliteStore>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().expect("a runtime");
    let engine = runtime.block_on(async {
        let store = SqliteStore::open(folder.join("onceward.db"), Clock::machine()).expect("a new file");
        let engine = Engine::open(store, Config::default());
        let files = Files { files: vec![File { name: "note.toml".to_owned(), text: file.into() }] };
        engine.define(&files).await.expect("a sound file");
        engine
    });
    (runtime, engine)
}

/// One more.
pub(crate) fn note(runtime: &tokio::runtime::Runtime, engine: &Engine<SqliteStore>, text: &str) {
    let fields = Map::from_iter([("text".to_owned(), json!(text))]);
    let create = Create { lifecycle: "desk.note".into(), id: None, owner: None, fields, payload: None };
    let submission = Submission::new(&Actor::new("ann", &["producer"]), Call::Create(create));
    runtime.block_on(engine.submit(submission)).expect("a note");
}

/// Run the program in a folder.
pub(crate) fn onceward(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onceward"))
        .current_dir(folder)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A server in a folder, on a free port, and on the database that is there where none is named.
pub(crate) fn serve(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Served {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    command.current_dir(folder).args(["serve", "--listen", "127.0.0.1:0"]).args(arguments);
    Served::start(command.envs(environment.iter().copied()))
}
