//! Starts a server with API keys for two owners, a worker and an operator.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use onceward_testkit::TempDir;
use onceward_testkit::http::{self, BINARY_CONTENT_TYPE, RawHttpResponse};
use onceward_testkit::server_process::{self, DatabaseKind, ServerProcess};
use serde_json::{Value as Json, json};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_onceward");

/// The default folder beside SQLite's file.
const OBJECTS_FOLDER: &str = "test.db.objects";

pub(crate) struct DocumentServer {
    pub(crate) process: ServerProcess,
    /// The URL of the database.
    pub(crate) url: String,
    pub(crate) folder: TempDir,
    pub(crate) alice: String,
    pub(crate) bob: String,
    pub(crate) worker: String,
    pub(crate) operator: String,
}

impl DocumentServer {
    /// Opens a server with object storage. SQLite has its default folder.
    pub(crate) fn open(db: DatabaseKind) -> Self {
        let folder = TempDir::new();
        let url = db.new_url(&folder);
        let mut command = server_process::serve_command(BINARY, &url);
        if db == DatabaseKind::Postgres {
            command.arg("--objects").arg(folder.join(OBJECTS_FOLDER));
        }
        Self::start(command, url, folder)
    }

    /// Opens a server without object storage.
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

    /// Uploads with exactly these headers and the content length.
    pub(crate) fn send(&self, key: &str, headers: &[(&str, &str)], document: &[u8]) -> RawHttpResponse {
        let length = document.len().to_string();
        let headers = [headers, &[("content-length", &length)]].concat();
        let mut stream = self.process.begin_request_as(key, "POST", "/document/upload", &headers);
        // The server may have closed the connection already.
        let _ = stream.write_all(document);
        http::read_response(&stream)
    }

    pub(crate) fn upload(&self, key: &str, name: &str, document: &[u8]) -> RawHttpResponse {
        self.send(key, &[BINARY_CONTENT_TYPE, ("client-request-id", name)], document)
    }

    /// Submits a document and returns the job's id.
    pub(crate) fn submit_document(&self, name: &str, document: &[u8]) -> String {
        let made = self.upload(&self.alice, name, document);
        assert_eq!(made.status, 201, "{}", made.text());
        let id = made.json()["jobId"].as_str().expect("id").to_owned();
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

    /// Leases and starts one job.
    pub(crate) fn lease_job(&self) -> Json {
        self.process.lease_as(&self.worker, "document.job", true)
    }

    /// Sends a worker's report.
    pub(crate) fn report(&self, execution: &Json, what: &str, body: Json) -> RawHttpResponse {
        self.process.report_as(&self.worker, execution, what, &[], body)
    }

    /// Follows the log until the job reaches one of `ends`, and returns its states.
    pub(crate) fn wait_for_states(&self, id: &str, ends: &[&str]) -> Vec<String> {
        self.process.stream_log_as(&self.alice, &format!("/v1/stream?after=0&record={id}")).states_until(ends)
    }

    /// Returns the command line of a worker.
    pub(crate) fn work_command(&self, options: &[&str], command: &[&str]) -> Command {
        let mut work = Command::new(BINARY);
        work.args(["work", "document.job"]).args(options).arg("--").args(command);
        work.env("ONCEWARD_URL", self.process.url()).env("ONCEWARD_KEY", &self.worker);
        work.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        work
    }
}
