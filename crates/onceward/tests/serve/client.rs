//! A server of the test's own.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use onceward_testkit::http::Reply;
use onceward_testkit::{Folder, http, postgres};
use serde_json::Value as Json;

/// The databases that a server is tried on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Db {
    Sqlite,
    Postgres,
}

pub(crate) const BOTH: [Db; 2] = [Db::Sqlite, Db::Postgres];

pub(crate) struct Served {
    child: Child,
    pub(crate) address: String,
    /// All that it said until it listened, and the rest of it.
    pub(crate) greeting: String,
    _out: BufReader<ChildStdout>,
    _folder: Folder,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    pub(crate) fn start(db: Db) -> Self {
        let folder = Folder::new();
        let url = match db {
            Db::Sqlite => format!("sqlite:{}", folder.file().display()),
            Db::Postgres => postgres::Server::shared().database(),
        };
        Self::start_on(&url, folder, &[])
    }

    pub(crate) fn start_on(url: &str, folder: Folder, more: &[&str]) -> Self {
        Self::start_with(url, folder, more, &[])
    }

    /// With variables of its own.
    pub(crate) fn start_with(url: &str, folder: Folder, more: &[&str], variables: &[(String, String)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_onceward"))
            .args(["serve", "--listen", "127.0.0.1:0", "--db", url])
            .args(more)
            .envs(variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut greeting = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(out.read_line(&mut line).expect("text") > 0, "it ended: {greeting}");
            greeting.push_str(&line);
            if let Some(address) = line.strip_prefix("listening on http://") {
                break address.trim().to_owned();
            }
        };
        Self { child, address, greeting, _out: out, _folder: folder }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let done = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(done.expect("kill is there").success());
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        self.child.wait().expect("a child")
    }

    pub(crate) fn connect(&self) -> TcpStream {
        http::connect(&self.address)
    }

    pub(crate) fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> Reply {
        http::call(&self.address, method, path, headers, body)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.call("GET", path, &[], None)
    }

    pub(crate) fn post(&self, path: &str, body: &Json) -> Reply {
        self.call("POST", path, &[], Some(&body.to_string()))
    }

    /// A job of the plainest kind; its id.
    pub(crate) fn job(&self, payload: &Json) -> String {
        let made = self.post("/v1/lifecycles/execution.job/records", &serde_json::json!({ "payload": payload }));
        assert_eq!(made.status, 201, "{}", made.text());
        made.json()["id"].as_str().expect("an id").to_owned()
    }

    /// Lease one job, waiting for it.
    pub(crate) fn lease(&self) -> Json {
        let wanted = serde_json::json!({ "lifecycles": ["execution.job"], "worker": "w", "max": 1, "wait_ms": 30_000 });
        let leased = self.post("/v1/leases", &wanted);
        assert_eq!(leased.status, 200, "{}", leased.text());
        leased.json()["executions"][0].clone()
    }
}
