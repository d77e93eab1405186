//! A server of the test's own, and the plainest client there is: it sends bytes and reads an answer.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use onceward_testkit::Folder;
use onceward_testkit::postgres;
use serde_json::Value as Json;

/// Far longer than anything here takes: a test that waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

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
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream
    }

    pub(crate) fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> Reply {
        let mut stream = self.connect();
        write(&mut stream, method, path, headers, body);
        Reply::read(&mut BufReader::new(stream))
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

/// Send a request; its body is JSON unless a header says otherwise.
pub(crate) fn write(stream: &mut TcpStream, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>) {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in headers {
        text.extend([*name, ": ", *value, "\r\n"]);
    }
    if let Some(body) = body {
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            text.push_str("content-type: application/json\r\n");
        }
        text.extend(["content-length: ", &body.len().to_string(), "\r\n"]);
    }
    text.push_str("\r\n");
    text.push_str(body.unwrap_or_default());
    // A server that has seen enough may have hung up.
    let _ = stream.write_all(text.as_bytes());
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn read(from: &mut BufReader<TcpStream>) -> Self {
        let head = head(from);
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{head}"));
        let mut reply = Self { status, head, body: Vec::new() };
        if let Some(length) = reply.header("content-length") {
            reply.body = vec![0; length.parse().expect("a number")];
            from.read_exact(&mut reply.body).expect("the whole body");
        }
        reply
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (own, value) = line.split_once(':')?;
            own.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {} {}", self.head, self.text()))
    }

    /// A problem of this status and code.
    pub(crate) fn is_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status);
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
    }
}

/// Up to the empty line.
pub(crate) fn head(from: &mut BufReader<TcpStream>) -> String {
    let mut head = String::new();
    loop {
        let before = head.len();
        from.read_line(&mut head).expect("an answer");
        if head.len() == before || head[before..].trim().is_empty() {
            return head;
        }
    }
}
