//! A real server with keys for two owners, a worker and an operator.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use onceward_testkit::Folder;
use onceward_testkit::http::{self, BYTES, Reply};
use onceward_testkit::served::{self, Db, Served};
use serde_json::{Value as Json, json};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_onceward");

/// Beside SQLite's file, where it is looked for.
const OBJECTS: &str = "test.db.objects";

pub(crate) struct House {
    pub(crate) served: Served,
    /// Of the database.
    pub(crate) url: String,
    pub(crate) folder: Folder,
    pub(crate) alice: String,
    pub(crate) bob: String,
    pub(crate) worker: String,
    pub(crate) operator: String,
}

impl House {
    /// With a place for large payloads: SQLite has one of its own.
    pub(crate) fn open(db: Db) -> Self {
        let folder = Folder::new();
        let url = db.url(&folder);
        let mut command = served::command(BINARY, &url);
        if db == Db::Postgres {
            command.arg("--objects").arg(folder.join(OBJECTS));
        }
        Self::of(command, url, folder)
    }

    /// Everything in the database.
    pub(crate) fn without_objects() -> Self {
        let folder = Folder::new();
        let url = Db::Postgres.url(&folder);
        Self::of(served::command(BINARY, &url), url, folder)
    }

    fn of(mut command: Command, url: String, folder: Folder) -> Self {
        let served = Served::start(command.args(["--log-format", "json"]).env("ONCEWARD_LOG", "trace"));
        let operator = served.key("", "olga", &["operator"]);
        let key = |owner: &str, role: &str| served.key(&operator, owner, &[role]);
        let (alice, bob, worker) = (key("alice", "producer"), key("bob", "producer"), key("fleet", "worker"));
        Self { served, url, folder, alice, bob, worker, operator }
    }

    pub(crate) fn objects(&self) -> PathBuf {
        self.folder.join(OBJECTS)
    }

    /// An upload with these headers and no others but its length.
    pub(crate) fn send(&self, key: &str, headers: &[(&str, &str)], document: &[u8]) -> Reply {
        let length = document.len().to_string();
        let headers = [headers, &[("content-length", &length)]].concat();
        let mut stream = self.served.begin_as(key, "POST", "/document/upload", &headers);
        // A server that has seen enough may have hung up.
        let _ = stream.write_all(document);
        http::answer(&stream)
    }

    pub(crate) fn upload(&self, key: &str, name: &str, document: &[u8]) -> Reply {
        self.send(key, &[BYTES, ("client-request-id", name)], document)
    }

    /// A document that is submitted; its job's id.
    pub(crate) fn submitted(&self, name: &str, document: &[u8]) -> String {
        let made = self.upload(&self.alice, name, document);
        assert_eq!(made.status, 201, "{}", made.text());
        let id = made.json()["jobId"].as_str().expect("an id").to_owned();
        assert_eq!(
            self.post(&self.alice, &format!("/document/jobs/{id}/submit"), &json!({})).json()["state"],
            "QUEUED"
        );
        id
    }

    pub(crate) fn get(&self, key: &str, path: &str) -> Reply {
        self.served.call_as(key, "GET", path, &[], None)
    }

    pub(crate) fn post(&self, key: &str, path: &str, body: &Json) -> Reply {
        self.served.post_as(key, path, body)
    }

    pub(crate) fn job(&self, id: &str) -> Json {
        self.get(&self.alice, &format!("/document/jobs/{id}")).json()
    }

    /// One job for the worker, leased and started.
    pub(crate) fn lease(&self) -> Json {
        self.served.lease_as(&self.worker, "document.job", true)
    }

    /// A worker's report.
    pub(crate) fn report(&self, execution: &Json, what: &str, body: Json) -> Reply {
        self.served.report_as(&self.worker, execution, what, &[], body)
    }

    /// The states that a job has gone through, once it has come to one of these; told by the log as it grows.
    pub(crate) fn until(&self, id: &str, ends: &[&str]) -> Vec<String> {
        self.served.follow_as(&self.alice, &format!("/v1/stream?after=0&record={id}")).states(ends)
    }

    /// The command worker, as a user starts it.
    pub(crate) fn work(&self, options: &[&str], command: &[&str]) -> Command {
        let mut work = Command::new(BINARY);
        work.args(["work", "document.job"]).args(options).arg("--").args(command);
        work.env("ONCEWARD_URL", self.served.url()).env("ONCEWARD_KEY", &self.worker);
        work.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        work
    }
}
