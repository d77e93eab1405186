//! A real server with keys for two owners, a worker and an operator; and a client that sends bytes and sees all of an answer.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use onceward_testkit::{Folder, postgres};
use onceward_worker::{Client, Following};
use serde_json::{Value as Json, json};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_onceward");

/// Far longer than anything here takes: a test that waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// The databases that a server is tried on, each with a place for large payloads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Db {
    Sqlite,
    Postgres,
    /// Everything in the database.
    PostgresAlone,
}

pub(crate) const BOTH: [Db; 2] = [Db::Sqlite, Db::Postgres];

pub(crate) struct House {
    child: Child,
    pub(crate) address: String,
    pub(crate) folder: Folder,
    pub(crate) alice: String,
    pub(crate) bob: String,
    pub(crate) worker: String,
    pub(crate) operator: String,
    written: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
    runtime: tokio::runtime::Runtime,
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl House {
    pub(crate) fn open(db: Db) -> Self {
        let folder = Folder::new();
        let objects = objects(&folder).display().to_string();
        let (url, more) = match db {
            Db::Sqlite => (format!("sqlite:{}", folder.file().display()), vec![]),
            Db::Postgres => (postgres::Server::shared().database(), vec!["--objects", &objects]),
            Db::PostgresAlone => (postgres::Server::shared().database(), vec![]),
        };
        let key = |owner: &str, role: &str| key(&url, owner, role);
        let operator = key("olga", "operator");
        let (alice, bob, worker) = (key("alice", "producer"), key("bob", "producer"), key("fleet", "worker"));
        let mut child = Command::new(BINARY)
            .args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--db", &url])
            .args(more)
            .env("ONCEWARD_LOG", "trace")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let written = Arc::<Mutex<String>>::default();
        let mut readers = vec![follow(BufReader::new(child.stderr.take().expect("a pipe")), &written)];
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let address = loop {
            let mut line = String::new();
            assert!(out.read_line(&mut line).expect("text") > 0, "it ended: {}", written.lock().unwrap());
            if let Some(address) = line.strip_prefix("listening on http://") {
                break address.trim().to_owned();
            }
        };
        readers.push(follow(out, &written));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { child, address, folder, alice, bob, worker, operator, written, readers, runtime }
    }

    pub(crate) fn objects(&self) -> PathBuf {
        objects(&self.folder)
    }

    /// The most memory that the server ever had, in bytes.
    pub(crate) fn most_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux tells it");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }

    /// Begin a request: its head, which says how long the body is unless it comes in chunks.
    pub(crate) fn begin(&self, key: &str, method: &str, path: &str, headers: &[(&str, &str)]) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        if !key.is_empty() {
            head.extend(["authorization: Bearer ", key, "\r\n"]);
        }
        for (name, value) in headers {
            head.extend([*name, ": ", *value, "\r\n"]);
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).expect("it listens");
        stream
    }

    pub(crate) fn send(&self, key: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let length = body.len().to_string();
        let mut all = headers.to_vec();
        all.push(("content-length", &length));
        let mut stream = self.begin(key, method, path, &all);
        // A server that has seen enough may have hung up.
        let _ = stream.write_all(body);
        Reply::read(stream)
    }

    pub(crate) fn upload(&self, key: &str, name: &str, document: &[u8]) -> Reply {
        self.send(key, "POST", "/document/upload", &[BYTES, ("client-request-id", name)], document)
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
        self.send(key, "GET", path, &[], b"")
    }

    pub(crate) fn post(&self, key: &str, path: &str, body: &Json) -> Reply {
        self.send(key, "POST", path, &[JSON], body.to_string().as_bytes())
    }

    pub(crate) fn job(&self, id: &str) -> Json {
        self.get(&self.alice, &format!("/document/jobs/{id}")).json()
    }

    /// One job for the worker, leased and started.
    pub(crate) fn lease(&self) -> Json {
        let asked =
            json!({ "lifecycles": ["document.job"], "worker": "w", "max": 1, "start": true, "wait_ms": 60_000 });
        self.post(&self.worker, "/v1/leases", &asked).json()["executions"][0].clone()
    }

    /// A worker's report.
    pub(crate) fn report(&self, execution: &Json, what: &str, mut body: Json) -> Reply {
        body["token"] = execution["token"].clone();
        let id = execution["id"].as_str().expect("an id");
        self.post(&self.worker, &format!("/v1/executions/{id}/{what}"), &body)
    }

    /// The states that a job has gone through, once it has come to one of these; told by the log as it grows.
    pub(crate) fn until(&self, id: &str, ends: &[&str]) -> Vec<String> {
        let client = Client::new(&format!("http://{}", self.address), Some(&self.alice)).expect("an address");
        let id = id.parse().expect("a UUID");
        let following = async {
            let mut stream = client.follow(&Following { after: Some(0), record: Some(id), ..Following::default() });
            let mut states = Vec::new();
            loop {
                let entry = stream.next().await.expect("an entry");
                // Where it entered one.
                let Some(state) = entry.state else { continue };
                let is_over = ends.contains(&&*state);
                states.push(state);
                if is_over {
                    return states;
                }
            }
        };
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, following).await }).expect("in time")
    }

    /// The command worker, as a user starts it.
    pub(crate) fn work(&self, options: &[&str], command: &[&str]) -> Command {
        let mut work = Command::new(BINARY);
        work.args(["work", "document.job"]).args(options).arg("--").args(command);
        work.env("ONCEWARD_URL", format!("http://{}", self.address)).env("ONCEWARD_KEY", &self.worker);
        work.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        work
    }

    /// Ask the server to end, and wait until it has. All that it wrote.
    pub(crate) fn stop(mut self) -> String {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
        assert!(self.child.wait().expect("it ends").success());
        for reader in std::mem::take(&mut self.readers) {
            reader.join().expect("read to its end");
        }
        self.written.lock().unwrap().clone()
    }
}

pub(crate) const BYTES: (&str, &str) = ("content-type", "application/octet-stream");
pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

fn objects(folder: &Folder) -> PathBuf {
    let mut path = folder.file().into_os_string();
    path.push(".objects");
    path.into()
}

fn key(url: &str, owner: &str, role: &str) -> String {
    let made = Command::new(BINARY).args(["key", "create", "--db", url, "--owner", owner, "--role", role]).output();
    let made = made.expect("the binary runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).expect("text").trim().to_owned()
}

fn follow(mut from: impl std::io::BufRead + Send + 'static, to: &Arc<Mutex<String>>) -> JoinHandle<()> {
    let to = Arc::clone(to);
    std::thread::spawn(move || {
        let mut line = String::new();
        while from.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            to.lock().unwrap().push_str(&line);
            line.clear();
        }
    })
}

/// An answer, but for what differs from one to the next by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn read(mut stream: TcpStream) -> Self {
        let mut all = Vec::new();
        if let Err(error) = stream.read_to_end(&mut all) {
            assert!(!all.is_empty(), "no answer: {error}");
        }
        let end = all.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(all[..end].to_vec()).expect("text");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut headers: Vec<String> = head.lines().skip(1).map(str::to_ascii_lowercase).collect();
        headers.retain(|line| !line.starts_with("date:") && !line.starts_with("x-request-id:"));
        headers.sort();
        Self { status, headers, body: all[end + 4..].to_vec() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find_map(|line| line.split_once(':').filter(|(own, _)| *own == name))
            .map(|(_, of)| of.trim())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.text()))
    }

    /// A problem of this status and code.
    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.json()["code"].as_str()), (status, Some(code)), "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
    }
}
