//! A server with users, a moderator and an operator, and a database that outlives it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use onceward_testkit::http::Reply;
use onceward_testkit::served::{self, Db, Served};
use onceward_testkit::{Folder, kept};
use serde_json::{Value as Json, json};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_onceward");

pub(crate) struct House {
    served: Option<Served>,
    url: String,
    folder: Folder,
    more: Vec<String>,
    variables: Vec<(&'static str, &'static str)>,
    /// The operator's key, once there are keys.
    ops: String,
}

impl House {
    /// A server that nobody has a key for: whoever comes is `local`, and may do everything.
    pub(crate) fn open(db: Db, more: &[&str]) -> Self {
        Self::open_with(db, more, &[])
    }

    /// The same, with variables in its environment.
    pub(crate) fn open_with(db: Db, more: &[&str], variables: &[(&'static str, &'static str)]) -> Self {
        let folder = Folder::new();
        let more = more.iter().map(|&word| word.to_owned()).collect();
        let (url, variables) = (db.url(&folder), variables.to_vec());
        let mut house = Self { served: None, url, folder, more, variables, ops: String::new() };
        house.begin();
        house
    }

    /// A server with keys.
    pub(crate) fn with_keys(db: Db, more: &[&str]) -> Self {
        let mut house = Self::open(db, more);
        house.ops = house.served().key("", "ops", &["operator"]);
        house
    }

    pub(crate) fn begin(&mut self) {
        let mut command = served::command(BINARY, &self.url);
        command.args(&self.more).arg("--objects").arg(self.folder.join("bucket"));
        command.envs(self.variables.iter().copied());
        self.served = Some(Served::start(&mut command));
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.served = None;
    }

    /// SIGTERM; all that it wrote.
    pub(crate) fn stop(&mut self) -> String {
        self.served.take().expect("it runs").stop()
    }

    /// Whether a text stands anywhere in the database or beside it.
    pub(crate) fn keeps(&self, text: &str) -> bool {
        let in_tables = self.url.starts_with("postgres") && !kept::tables_with(&self.url, text).is_empty();
        in_tables || kept::in_files(self.folder.path(), text)
    }

    pub(crate) fn served(&self) -> &Served {
        self.served.as_ref().expect("it runs")
    }

    /// Where pictures lie.
    pub(crate) fn originals(&self) -> PathBuf {
        self.folder.join("bucket/named/originals")
    }

    pub(crate) fn key(&self, owner: &str, roles: &[&str]) -> String {
        self.served().key(&self.ops, owner, roles)
    }

    pub(crate) fn ops(&self) -> &str {
        &self.ops
    }

    /// A call without a body, by the owner of a key, or by nobody where it is empty.
    pub(crate) fn call(&self, key: &str, method: &str, path: &str) -> Reply {
        self.served().call_as(key, method, path, &[], None)
    }

    pub(crate) fn get(&self, key: &str, path: &str) -> Json {
        let reply = self.call(key, "GET", path);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.json()
    }

    pub(crate) fn post(&self, key: &str, path: &str, body: &Json) -> Reply {
        self.served().post_as(key, path, body)
    }

    pub(crate) fn grant(&self, user: &str, amount: i64) {
        let order = format!("{user}-{amount}-{}", self.get(&self.ops, "/v1/lifecycles/image.grant")["counts"]);
        let body = json!({ "user": user, "amount": amount, "order": order });
        let made = self.post(&self.ops, "/image/credits/grants", &body);
        assert_eq!(made.status, 201, "{}", made.text());
    }

    pub(crate) fn balance(&self, key: &str) -> i64 {
        self.get(key, "/image/credits")["balance"].as_i64().expect("a number")
    }

    /// All named accounts and what they hold, for an operator to see.
    pub(crate) fn accounts(&self) -> BTreeMap<String, i64> {
        let listed = self.get(&self.ops, "/v1/accounts?limit=1000");
        let each = listed["accounts"].as_array().expect("accounts").iter();
        each.map(|account| (account["name"].as_str().expect("a name").to_owned(), account["balance"].as_i64().unwrap()))
            .collect()
    }

    /// The hour that the server's clock is in, by what it notes on a record that is made now.
    pub(crate) fn hour(&self) -> String {
        self.grant("nobody", 1);
        let grants = self.get(&self.ops, "/image/credits/entries?user=nobody&limit=1");
        grants["entries"][0]["at"].as_str().expect("a time")[..13].to_owned()
    }

    /// An order of a small picture.
    pub(crate) fn order(&self, key: &str, prompt: &str) -> Reply {
        self.post(key, "/image/jobs", &json!({ "prompt": prompt, "size": "256x256" }))
    }

    /// One that is taken; its id.
    pub(crate) fn ordered(&self, key: &str, prompt: &str) -> String {
        let made = self.order(key, prompt);
        assert_eq!(made.status, 201, "{}", made.text());
        made.json()["id"].as_str().expect("an id").to_owned()
    }

    /// Waits until the job is in this state.
    pub(crate) fn until(&self, key: &str, job: &str, state: &str) -> Json {
        self.watched(key, job, state);
        let job = self.get(key, &format!("/image/jobs/{job}"));
        assert_eq!(job["state"], state);
        job
    }

    /// Waits until a record is in this state, as people do.
    pub(crate) fn watched(&self, key: &str, record: &str, state: &str) {
        let status = Command::new(BINARY)
            .args(["watch", record, "--until", state])
            .env("ONCEWARD_URL", self.served().url())
            .env("ONCEWARD_KEY", key)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .expect("the binary runs");
        assert!(status.success(), "{status}");
    }

    /// The whole statement, in small parts: it must add up. What each entry says of itself, the newest first.
    pub(crate) fn statement(&self, key: &str) -> Vec<(String, i64)> {
        let (mut entries, mut cursor) = (Vec::new(), String::new());
        let (balance, carried) = loop {
            let part = self.get(key, &format!("/image/credits/entries?limit=2{cursor}"));
            for entry in part["entries"].as_array().expect("entries") {
                entries.push((
                    entry["what"].as_str().expect("a word").to_owned(),
                    entry["amount"].as_i64().expect("a number"),
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

    /// What `verify` finds beside the running server, in the bucket too, and whether that is nothing.
    pub(crate) fn verify(&self, more: &[&str]) -> (bool, Json) {
        let mut verify = Command::new(BINARY);
        verify.args(["verify", "--json", "--db", &self.url, "--objects"]).arg(self.folder.join("bucket")).args(more);
        let done = verify.output().expect("the binary runs");
        let report = serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"));
        (done.status.success(), report)
    }

    /// All accounts and holds, worked out again from the log by `onceward verify`; the server is stopped for it.
    pub(crate) fn verified(&mut self) {
        self.kill();
        let done = Command::new(BINARY).args(["verify", "--db", &self.url]).output().expect("it runs");
        assert!(
            done.status.success(),
            "{}{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        );
    }
}
