//! Shared setup of the command tests: a temporary folder, and a database with three notes.
#![allow(dead_code, reason = "each test binary uses only some items")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use onceward_core::decide::{Call, CreateRecord};
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::record::Actor;
use onceward_engine::{Engine, EngineConfig, Submission};
use onceward_store::{Clock, SqliteStore};
use onceward_testkit::server_process::ServerProcess;
use serde_json::{Map, json};

const NOTE_LIFECYCLE: &str = r#"
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

pub(crate) fn create_test_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("folder");
    folder
}

/// Creates a database with three notes. The returned engine keeps it open.
pub(crate) fn database_with_notes(folder: &Path) -> (tokio::runtime::Runtime, Engine<SqliteStore>) {
    let (runtime, engine) = open_engine(folder, NOTE_LIFECYCLE);
    for text in ["milk", "bread", "salt"] {
        create_note(&runtime, &engine, text);
    }
    (runtime, engine)
}

/// Opens an engine on the folder's database, with one lifecycle file.
pub(crate) fn open_engine(folder: &Path, file: &str) -> (tokio::runtime::Runtime, Engine<SqliteStore>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().expect("tokio runtime");
    let engine = runtime.block_on(async {
        let store = SqliteStore::open(folder.join("onceward.db"), Clock::machine()).expect("new database file");
        let engine = Engine::open(store, EngineConfig::default());
        let files = InputFiles { files: vec![InputFile { name: "note.toml".to_owned(), text: file.into() }] };
        engine.put_lifecycles(&files).await.expect("valid lifecycle file");
        engine
    });
    (runtime, engine)
}

pub(crate) fn create_note(runtime: &tokio::runtime::Runtime, engine: &Engine<SqliteStore>, text: &str) {
    let fields = Map::from_iter([("text".to_owned(), json!(text))]);
    let create = CreateRecord { lifecycle: "desk.note".into(), id: None, owner: None, fields, payload: None };
    let submission = Submission::new(&Actor::new("ann", &["producer"]), Call::Create(create));
    runtime.block_on(engine.submit(submission)).expect("note");
}

/// Runs the binary in a folder.
pub(crate) fn run_onceward(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onceward"))
        .current_dir(folder)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

pub(crate) fn utf8(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Starts a server on a free port. Without `--db` it uses the folder's database.
pub(crate) fn start_server(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> ServerProcess {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    command.current_dir(folder).args(["serve", "--listen", "127.0.0.1:0"]).args(arguments);
    ServerProcess::start(command.envs(environment.iter().copied()))
}
