//! Starts a server with users, a moderator and an operator, on a database that outlives it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use onceward_testkit::http::RawHttpResponse;
use onceward_testkit::server_process::{self, DatabaseKind, ServerProcess};
use onceward_testkit::{TempDir, stored_text};
use serde_json::{Value as Json, json};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_onceward");

pub(crate) struct ImageServer {
    process: Option<ServerProcess>,
    url: String,
    folder: TempDir,
    arguments: Vec<String>,
    environment: Vec<(&'static str, &'static str)>,
    /// The operator's API key; empty without API keys.
    operator_key: String,
}

impl ImageServer {
    /// Opens a server without API keys: every caller is `local` and may do everything.
    pub(crate) fn open(db: DatabaseKind, arguments: &[&str]) -> Self {
        Self::open_with_environment(db, arguments, &[])
    }

    /// Like [`open`](Self::open), with environment variables.
    pub(crate) fn open_with_environment(
        db: DatabaseKind,
        arguments: &[&str],
        environment: &[(&'static str, &'static str)],
    ) -> Self {
        let folder = TempDir::new();
        let more = arguments.iter().map(|&word| word.to_owned()).collect();
        let (url, variables) = (db.new_url(&folder), environment.to_vec());
        let mut house =
            Self { process: None, url, folder, arguments: more, environment: variables, operator_key: String::new() };
        house.start_server();
        house
    }

    /// Opens a server with API keys.
    pub(crate) fn with_keys(db: DatabaseKind, arguments: &[&str]) -> Self {
        let mut house = Self::open(db, arguments);
        house.operator_key = house.process().create_api_key("", "ops", &["operator"]);
        house
    }

    pub(crate) fn start_server(&mut self) {
        let mut command = server_process::serve_command(BINARY, &self.url);
        command.args(&self.arguments).arg("--objects").arg(self.folder.join("bucket"));
        command.envs(self.environment.iter().copied());
        self.process = Some(ServerProcess::start(&mut command));
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Sends SIGTERM and returns the server's output.
    pub(crate) fn stop(&mut self) -> String {
        self.process.take().expect("start process").stop()
    }

    /// Returns whether the database or the object storage contains a text.
    pub(crate) fn stores_text(&self, text: &str) -> bool {
        let in_tables = self.url.starts_with("postgres") && !stored_text::tables_containing(&self.url, text).is_empty();
        in_tables || stored_text::files_contain(self.folder.path(), text)
    }

    pub(crate) fn process(&self) -> &ServerProcess {
        self.process.as_ref().expect("start process")
    }

    /// Returns the folder of the pictures.
    pub(crate) fn originals(&self) -> PathBuf {
        self.folder.join("bucket/named/originals")
    }

    pub(crate) fn key(&self, owner: &str, roles: &[&str]) -> String {
        self.process().create_api_key(&self.operator_key, owner, roles)
    }

    pub(crate) fn operator_key(&self) -> &str {
        &self.operator_key
    }

    /// Sends a request without a body. An empty key sends none.
    pub(crate) fn call(&self, key: &str, method: &str, path: &str) -> RawHttpResponse {
        self.process().call_as(key, method, path, &[], None)
    }

    pub(crate) fn get(&self, key: &str, path: &str) -> Json {
        let reply = self.call(key, "GET", path);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.json()
    }

    pub(crate) fn post(&self, key: &str, path: &str, body: &Json) -> RawHttpResponse {
        self.process().post_as(key, path, body)
    }

    pub(crate) fn grant(&self, user: &str, amount: i64) {
        let order = format!("{user}-{amount}-{}", self.get(&self.operator_key, "/v1/lifecycles/image.grant")["counts"]);
        let body = json!({ "user": user, "amount": amount, "order": order });
        let made = self.post(&self.operator_key, "/image/credits/grants", &body);
        assert_eq!(made.status, 201, "{}", made.text());
    }

    pub(crate) fn balance(&self, key: &str) -> i64 {
        self.get(key, "/image/credits")["balance"].as_i64().expect("number")
    }

    /// Returns all named accounts and their balances, as an operator sees them.
    pub(crate) fn accounts(&self) -> BTreeMap<String, i64> {
        let listed = self.get(&self.operator_key, "/v1/accounts?limit=1000");
        let each = listed["accounts"].as_array().expect("accounts").iter();
        each.map(|account| (account["name"].as_str().expect("name").to_owned(), account["balance"].as_i64().unwrap()))
            .collect()
    }

    /// Returns the current hour of the server's clock, from a new record.
    pub(crate) fn hour(&self) -> String {
        self.grant("unused", 1);
        let grants = self.get(&self.operator_key, "/image/credits/entries?user=unused&limit=1");
        grants["entries"][0]["at"].as_str().expect("time")[..13].to_owned()
    }

    /// Orders a small picture.
    pub(crate) fn send_order(&self, key: &str, prompt: &str) -> RawHttpResponse {
        self.post(key, "/image/jobs", &json!({ "prompt": prompt, "size": "256x256" }))
    }

    /// Places an order that must be accepted, and returns its id.
    pub(crate) fn place_order(&self, key: &str, prompt: &str) -> String {
        let made = self.send_order(key, prompt);
        assert_eq!(made.status, 201, "{}", made.text());
        made.json()["id"].as_str().expect("id").to_owned()
    }

    /// Waits until the job is in this state.
    pub(crate) fn wait_for_job(&self, key: &str, job: &str, state: &str) -> Json {
        self.wait_for_record(key, job, state);
        let job = self.get(key, &format!("/image/jobs/{job}"));
        assert_eq!(job["state"], state);
        job
    }

    /// Waits until a record is in this state, with `onceward watch`.
    pub(crate) fn wait_for_record(&self, key: &str, record: &str, state: &str) {
        let status = Command::new(BINARY)
            .args(["watch", record, "--until", state])
            .env("ONCEWARD_URL", self.process().url())
            .env("ONCEWARD_KEY", key)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .expect("the binary runs");
        assert!(status.success(), "{status}");
    }

    /// Reads the whole statement in small pages, checks that it adds up, and returns its lines, newest first.
    pub(crate) fn checked_statement(&self, key: &str) -> Vec<(String, i64)> {
        let (mut entries, mut cursor) = (Vec::new(), String::new());
        let (balance, carried) = loop {
            let part = self.get(key, &format!("/image/credits/entries?limit=2{cursor}"));
            for entry in part["entries"].as_array().expect("entries") {
                entries.push((
                    entry["what"].as_str().expect("a word").to_owned(),
                    entry["amount"].as_i64().expect("number"),
                ));
            }
            match part["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break (part["balance"].as_i64(), part["carriedForward"].as_i64()),
            }
        };
        assert_eq!(carried, Some(0));
        assert_eq!(balance, Some(entries.iter().map(|(_, amount)| amount).sum()), "{entries:?}");
        assert_eq!(balance, Some(self.balance(key)));
        entries
    }

    /// Runs `verify` next to the running server, with its object storage. Returns whether it is clean, and the report.
    pub(crate) fn run_verify(&self, more: &[&str]) -> (bool, Json) {
        let mut verify = Command::new(BINARY);
        verify.args(["verify", "--json", "--db", &self.url, "--objects"]).arg(self.folder.join("bucket")).args(more);
        let done = verify.output().expect("the binary runs");
        let report = serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"));
        (done.status.success(), report)
    }

    /// Stops the server and recomputes all accounts and holds with `onceward verify`.
    pub(crate) fn kill_and_verify(&mut self) {
        self.kill();
        let mut verify = Command::new(BINARY);
        verify.args(["verify", "--db", &self.url, "--objects"]).arg(self.folder.join("bucket"));
        let done = verify.output().expect("start process");
        assert!(
            done.status.success(),
            "{}{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        );
    }
}
