//! A real server with keys for two owners, a worker and an operator.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use onceward_testkit::TempDir;
use onceward_testkit::http::{self, BINARY_CONTENT_TYPE, RawHttpResponse};
use onceward_testkit::server_process::{self, DatabaseKind, ServerProcess};
use serde_json::{Value as Json, json};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_onceward");

/// Beside SQLite's file, where it is looked for.
const OBJECTS_FOLDER: &str = "test.db.objects";

pub(crate) struct DocumentServer {
    pub(crate) process: ServerProcess,
    /// Of the database.
    pub(crate) url: String,
    pub(crate) folder: TempDir,
    pub(crate) alice: String,
    pub(crate) bob: String,
    pub(crate) worker: String,
    pub(crate) operator: String,
}

impl DocumentServer {
    /// With a place for large payloads: SQLite has one of its own.
    pub(crate) fn open(db: DatabaseKind) -> Self {
        let folder = TempDir::new();
        let url = db.new_url(&folder);
        let mut command = server_process::serve_command(BINARY, &url);
        if db == DatabaseKind::Postgres {
            command.arg("--objects").arg(folder.join(OBJECTS_FOLDER));
        }
        Self::start(command, url, folder)
    }

    /// Everything in the database.
    pub(crate) fn without_objects() -> Self {
        let folder = TempDir::new();
        let url = DatabaseKind::Postgres.new_url(&folder);
        Self::start(server_process::serve_command(BINARY, &url), url, folder)
    }

    fn start(mut command: Command, url: String, folder: TempDir) -> Self {
        let served = ServerProcess::start(command.args(["--log-format", "json"]).env("ONCEWARD_LOG", "trace"));
        let operator = served.create_api_key("", "olga", &["operator"]);
        let key = |owner: &str, role: &str| served.create_api_key(&operator, owner, &[role]);
        let (alice, bob, worker) = (key("alice", "producer"), key("bob", "producer"), key("fleet", "worker"));
        Self { process: served, url, folder, alice, bob, worker, operator }
    }

    pub(crate) fn objects(&self) -> PathBuf {
        self.folder.join(OBJECTS_FOLDER)
    }

    /// An upload with these headers and no others but its length.
    pub(crate) fn send(&self, key: &str, headers: &[(&str, &str)], document: &[u8]) -> RawHttpResponse {
        let length = document.len().to_string();
        let headers = [headers, &[("content-length", &length)]].concat();
        let mut stream = self.process.begin_request_as(key, "POST", "/document/upload", &headers);
        // A server that has seen enough may have hung up.
        let _ = stream.write_all(document);
        http::read_response(&stream)
    }

    pub(crate) fn upload(&self, key: &str, name: &str, document: &[u8]) -> RawHttpResponse {
        self.send(key, &[BINARY_CONTENT_TYPE, ("client-request-id", name)], document)
    }

    /// A document that is submitted; its job's id.
    pub(crate) fn submit_document(&self, name: &str, document: &[u8]) -> String {
        let made = self.upload(&self.alice, name, document);
        assert_eq!(made.status, 201, "{}", made.text());
        let id = made.json()["jobId"].as_str().expect("an id").to_owned();
        assert_eq!(
            self.post(&self.alice, &format!("/document/jobs/{id}/submit"), &json!({})).json()["state"],
            "QUEUED"
        );
        id
    }

    pub(crate) fn get(&self, key: &str, path: &str) -> RawHttpResponse {
        self.process.call_as(key, "GET", path, &[], None)
    }

    pub(crate) fn post(&self, key: &str, path: &str, body: &Json) -> RawHttpResponse {
        self.process.post_as(key, path, body)
    }

    pub(crate) fn job(&self, id: &str) -> Json {
        self.get(&self.alice, &format!("/document/jobs/{id}")).json()
    }

    /// One job for the worker, leased and started.
    pub(crate) fn lease_job(&self) -> Json {
        self.process.lease_as(&self.worker, "document.job", true)
    }

    /// A worker's report.
    pub(crate) fn report(&self, execution: &Json, what: &str, body: Json) -> RawHttpResponse {
        self.process.report_as(&self.worker, execution, what, &[], body)
    }

    /// The states that a job has gone through, once it has come to one of these; told by the log as it grows.
    pub(crate) fn wait_for_states(&self, id: &str, ends: &[&str]) -> Vec<String> {
        self.process.stream_log_as(&self.alice, &format!("/v1/stream?after=0&record={id}")).states_until(ends)
    }

    /// The command worker, as a user starts it.
    pub(crate) fn work_command(&self, options: &[&str], command: &[&str]) -> Command {
        let mut work = Command::new(BINARY);
        work.args(["work", "document.job"]).args(options).arg("--").args(command);
        work.env("ONCEWARD_URL", self.process.url()).env("ONCEWARD_KEY", &self.worker);
        work.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        work
    }
}
