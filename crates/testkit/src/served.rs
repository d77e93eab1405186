//! The whole program, as its users meet it: `onceward serve` as a process of its own on a port that was free. It is there once it says
//! where it listens, and gone with the test.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use serde_json::{Value as Json, json};

use crate::http::{self, PATIENCE, Reply};
use crate::{Folder, Following, postgres};

/// The databases that a server is tried on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Db {
    Sqlite,
    Postgres,
}

pub const BOTH: [Db; 2] = [Db::Sqlite, Db::Postgres];

impl Db {
    /// The URL of a new one. SQLite's is a file in the folder.
    pub fn url(self, folder: &Folder) -> String {
        match self {
            Self::Sqlite => format!("sqlite:{}", folder.file().display()),
            Self::Postgres => postgres::Server::shared().database(),
        }
    }
}

/// `onceward serve` on a database, to which more can be added before it is started. The program's path is the test's to tell.
pub fn command(program: &str, database: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["serve", "--listen", "127.0.0.1:0", "--db", database]);
    command
}

/// A server that listens.
#[derive(Debug)]
pub struct Served {
    child: Child,
    pub address: String,
    /// What it said until it listened.
    pub greeting: String,
    written: Written,
    readers: Vec<JoinHandle<()>>,
    /// Gone when it is.
    kept: Vec<Folder>,
}

/// Both of its outputs, as they came.
type Written = Arc<Mutex<String>>;

impl Served {
    pub fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program runs");
        let written = Written::default();
        let errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut readers = vec![follow(errors, &written)];
        let mut greeting = String::new();
        let address = loop {
            let mut line = String::new();
            if out.read_line(&mut line).expect("text") == 0 {
                let _ = child.wait();
                panic!("it ended: {greeting}{}", all(readers, &written));
            }
            greeting.push_str(&line);
            if let Some(address) = line.strip_prefix("listening on http://") {
                break address.trim().to_owned();
            }
        };
        add(&written, &greeting);
        readers.push(follow(out, &written));
        Self { child, address, greeting, written, readers, kept: Vec::new() }
    }

    /// With a folder that is gone when the server is.
    #[must_use]
    pub fn keeping(mut self, folder: Folder) -> Self {
        self.kept.push(folder);
        self
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kilobytes that Linux tells of it, such as `VmRSS`: what it has in memory.
    pub fn kilobytes(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = line.and_then(|line| line.split_whitespace().next()).expect("Linux tells it");
        number.parse().expect("a number")
    }

    /// What its metrics say of it now. As long as there are no keys.
    pub fn gauge(&self, name: &str) -> u64 {
        self.get("/metrics").gauge(name)
    }

    /// Waits until they say so. Asked again and again, since nothing tells of it.
    pub fn until(&self, name: &str, count: u64) {
        let began = Instant::now();
        while self.gauge(name) != count {
            assert!(began.elapsed() < PATIENCE, "{name} does not come to {count}");
        }
    }

    /// By its name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let done = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(done.expect("kill is there").success());
    }

    /// Waits until it has ended.
    pub fn ended(&mut self) -> ExitStatus {
        self.child.wait().expect("a child")
    }

    /// Asks it to end, and waits until it has, as it should. All that it wrote.
    pub fn stop(mut self) -> String {
        self.signal("TERM");
        let ended = self.ended();
        let written = all(std::mem::take(&mut self.readers), &self.written);
        assert!(ended.success(), "{ended}: {written}");
        written
    }

    pub fn connect(&self) -> TcpStream {
        http::connect(&self.address)
    }

    /// A call by who has no key.
    pub fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Reply {
        self.call_as("", method, path, headers, body)
    }

    /// A call by the owner of a key, or by nobody where it is empty.
    pub fn call_as(&self, key: &str, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Reply {
        with_key(key, headers, |headers| http::call(&self.address, method, path, headers, body))
    }

    /// The head of such a call: its body is still to come.
    pub fn begin_as(&self, key: &str, method: &str, path: &str, headers: &[(&str, &str)]) -> TcpStream {
        let mut stream = self.connect();
        with_key(key, headers, |headers| http::begin(&mut stream, method, path, headers));
        stream
    }

    /// The log, by the owner of a key.
    pub fn follow_as(&self, key: &str, path: &str) -> Following {
        with_key(key, &[], |headers| Following::start(&self.address, path, headers))
    }

    /// What comes of something that may break off, and whether it is all of it.
    pub fn get_as_far_as_it_comes(&self, key: &str, path: &str) -> (Reply, bool) {
        let stream = self.begin_as(key, "GET", path, &[("connection", "close")]);
        Reply::read_as_far_as_it_comes(&mut BufReader::new(stream))
    }

    pub fn get(&self, path: &str) -> Reply {
        self.call("GET", path, &[], None)
    }

    pub fn post(&self, path: &str, body: &Json) -> Reply {
        self.post_as("", path, body)
    }

    pub fn post_as(&self, key: &str, path: &str, body: &Json) -> Reply {
        self.call_as(key, "POST", path, &[], Some(body.to_string().as_bytes()))
    }

    /// A key for somebody, made by the owner of another; or by nobody, as long as there is none.
    pub fn key(&self, by: &str, owner: &str, roles: &[&str]) -> String {
        let made = self.post_as(by, "/v1/keys", &json!({ "owner": owner, "roles": roles }));
        assert_eq!(made.status, 201, "{}", made.text());
        made.json()["key"].as_str().expect("a key").to_owned()
    }

    /// A job of the plainest kind; its id.
    pub fn job(&self, payload: &Json) -> String {
        let made = self.post("/v1/lifecycles/execution.job/records", &json!({ "payload": payload }));
        assert_eq!(made.status, 201, "{}", made.text());
        made.json()["id"].as_str().expect("an id").to_owned()
    }

    /// Lease one of them, waiting for it.
    pub fn lease(&self) -> Json {
        self.lease_as("", "execution.job", false)
    }

    /// Lease one of a lifecycle, waiting for it.
    pub fn lease_as(&self, key: &str, lifecycle: &str, start: bool) -> Json {
        let wanted = json!({ "lifecycles": [lifecycle], "worker": "w", "max": 1, "start": start, "wait_ms": 30_000 });
        let leased = self.post_as(key, "/v1/leases", &wanted).ok();
        leased["executions"][0].clone()
    }

    /// A worker's report on what it has leased.
    pub fn report_as(
        &self,
        key: &str,
        execution: &Json,
        what: &str,
        headers: &[(&str, &str)],
        mut body: Json,
    ) -> Reply {
        body["token"] = execution["token"].clone();
        let path = format!("/v1/executions/{}/{what}", execution["id"].as_str().expect("an id"));
        self.call_as(key, "POST", &path, headers, Some(body.to_string().as_bytes()))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn with_key<T>(key: &str, headers: &[(&str, &str)], call: impl FnOnce(&[(&str, &str)]) -> T) -> T {
    let bearer = format!("Bearer {key}");
    let own = [("authorization", &*bearer)];
    call(&[headers, if key.is_empty() { &[] } else { &own }].concat())
}

fn follow(mut from: impl std::io::BufRead + Send + 'static, to: &Written) -> JoinHandle<()> {
    let to = Arc::clone(to);
    std::thread::spawn(move || {
        let mut line = String::new();
        while from.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            add(&to, &line);
            line.clear();
        }
    })
}

fn add(written: &Written, line: &str) {
    written.lock().unwrap_or_else(PoisonError::into_inner).push_str(line);
}

/// What it wrote, once both have ended.
fn all(readers: Vec<JoinHandle<()>>, written: &Written) -> String {
    for reader in readers {
        reader.join().expect("read to its end");
    }
    written.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
