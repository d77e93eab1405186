//! Runs `onceward serve` as a process on a free port. The process is ready once it prints its address, and stops with
//! the test.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use serde_json::{Value as Json, json};

use crate::http::{self, RawHttpResponse, TEST_TIMEOUT};
use crate::{SseClient, TempDir, postgres};

/// Databases that tests run a server on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    Sqlite,
    Postgres,
}

pub const ALL_DATABASES: [DatabaseKind; 2] = [DatabaseKind::Sqlite, DatabaseKind::Postgres];

impl DatabaseKind {
    /// Returns the URL of a new database. For SQLite, it is a file in the folder.
    pub fn new_url(self, folder: &TempDir) -> String {
        match self {
            Self::Sqlite => format!("sqlite:{}", folder.database_path().display()),
            Self::Postgres => postgres::PostgresServer::shared().create_database(),
        }
    }
}

/// Returns the command `onceward serve` on a database. Tests may add arguments before they start it.
pub fn serve_command(program: &str, database: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["serve", "--listen", "127.0.0.1:0", "--db", database]);
    command
}

#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    pub address: String,
    /// Output until the server listened.
    pub startup_output: String,
    output: SharedOutput,
    reader_threads: Vec<JoinHandle<()>>,
    /// Removed when the server stops.
    temp_dirs: Vec<TempDir>,
}

/// Standard output and standard error, in order of arrival.
type SharedOutput = Arc<Mutex<String>>;

impl ServerProcess {
    pub fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let written = SharedOutput::default();
        let errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut readers = vec![copy_lines(errors, &written)];
        let mut greeting = String::new();
        let address = loop {
            let mut line = String::new();
            if out.read_line(&mut line).expect("text") == 0 {
                let _ = child.wait();
                panic!("the server exited: {greeting}{}", join_output(readers, &written));
            }
            greeting.push_str(&line);
            if let Some(address) = line.strip_prefix("listening on http://") {
                break address.trim().to_owned();
            }
        };
        append_output(&written, &greeting);
        readers.push(copy_lines(out, &written));
        Self {
            child,
            address,
            startup_output: greeting,
            output: written,
            reader_threads: readers,
            temp_dirs: Vec::new(),
        }
    }

    /// Adds a folder that is removed when the server stops.
    #[must_use]
    pub fn with_temp_dir(mut self, folder: TempDir) -> Self {
        self.temp_dirs.push(folder);
        self
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns a value in kilobytes from `/proc`, such as `VmRSS`, the resident memory.
    pub fn memory_kb(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = line.and_then(|line| line.split_whitespace().next()).expect("/proc has the value");
        number.parse().expect("a number")
    }

    /// Returns the current value of a metric. Works only without API keys.
    pub fn metric(&self, name: &str) -> u64 {
        self.get("/metrics").metric(name)
    }

    /// Polls until the metric has this value; there is no notification for it.
    pub fn wait_for_metric(&self, name: &str, count: u64) {
        let began = Instant::now();
        while self.metric(name) != count {
            assert!(began.elapsed() < TEST_TIMEOUT, "{name} does not reach {count}");
        }
    }

    /// Sends a signal by name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let done = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(done.expect("kill starts").success());
    }

    pub fn wait_for_exit(&mut self) -> ExitStatus {
        self.child.wait().expect("a child")
    }

    /// Sends TERM, waits for a successful exit, and returns all output.
    pub fn stop(mut self) -> String {
        self.signal("TERM");
        let ended = self.wait_for_exit();
        let written = join_output(std::mem::take(&mut self.reader_threads), &self.output);
        assert!(ended.success(), "{ended}: {written}");
        written
    }

    pub fn connect(&self) -> TcpStream {
        http::connect(&self.address)
    }

    /// Sends a call without an API key.
    pub fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> RawHttpResponse {
        self.call_as("", method, path, headers, body)
    }

    /// Sends a call with an API key, or without one if it is empty.
    pub fn call_as(
        &self,
        api_key: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> RawHttpResponse {
        with_bearer(api_key, headers, |headers| http::send_request(&self.address, method, path, headers, body))
    }

    /// Sends only the head of a call. The test sends the body later.
    pub fn begin_request_as(&self, api_key: &str, method: &str, path: &str, headers: &[(&str, &str)]) -> TcpStream {
        let mut stream = self.connect();
        with_bearer(api_key, headers, |headers| http::write_request_head(&mut stream, method, path, headers));
        stream
    }

    /// Streams the log with an API key.
    pub fn stream_log_as(&self, api_key: &str, path: &str) -> SseClient {
        with_bearer(api_key, &[], |headers| SseClient::start(&self.address, path, headers))
    }

    /// Gets a response that may be truncated, and returns whether it is complete.
    pub fn get_partial(&self, api_key: &str, path: &str) -> (RawHttpResponse, bool) {
        let stream = self.begin_request_as(api_key, "GET", path, &[("connection", "close")]);
        RawHttpResponse::read_partial(&mut BufReader::new(stream))
    }

    pub fn get(&self, path: &str) -> RawHttpResponse {
        self.call("GET", path, &[], None)
    }

    pub fn post(&self, path: &str, body: &Json) -> RawHttpResponse {
        self.post_as("", path, body)
    }

    pub fn post_as(&self, api_key: &str, path: &str, body: &Json) -> RawHttpResponse {
        self.call_as(api_key, "POST", path, &[], Some(body.to_string().as_bytes()))
    }

    /// Creates an API key. `creator_key` is empty as long as there are no API keys.
    pub fn create_api_key(&self, creator_key: &str, owner: &str, roles: &[&str]) -> String {
        let made = self.post_as(creator_key, "/v1/keys", &json!({ "owner": owner, "roles": roles }));
        assert_eq!(made.status, 201, "{}", made.text());
        made.json()["key"].as_str().expect("a key").to_owned()
    }

    /// Creates an `execution.job` and returns its id.
    pub fn create_job(&self, payload: &Json) -> String {
        let made = self.post("/v1/lifecycles/execution.job/records", &json!({ "payload": payload }));
        assert_eq!(made.status, 201, "{}", made.text());
        made.json()["id"].as_str().expect("an id").to_owned()
    }

    /// Waits for an `execution.job` and leases it.
    pub fn lease(&self) -> Json {
        self.lease_as("", "execution.job", false)
    }

    /// Waits for a job of a lifecycle and leases it.
    pub fn lease_as(&self, api_key: &str, lifecycle: &str, start: bool) -> Json {
        let lease_request =
            json!({ "lifecycles": [lifecycle], "worker": "w", "max": 1, "start": start, "wait_ms": 30_000 });
        let leased = self.post_as(api_key, "/v1/leases", &lease_request).expect_ok();
        leased["executions"][0].clone()
    }

    /// Sends a worker's report about a leased job.
    pub fn report_as(
        &self,
        api_key: &str,
        execution: &Json,
        action: &str,
        headers: &[(&str, &str)],
        mut body: Json,
    ) -> RawHttpResponse {
        body["token"] = execution["token"].clone();
        let path = format!("/v1/executions/{}/{action}", execution["id"].as_str().expect("an id"));
        self.call_as(api_key, "POST", &path, headers, Some(body.to_string().as_bytes()))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn with_bearer<T>(api_key: &str, headers: &[(&str, &str)], call: impl FnOnce(&[(&str, &str)]) -> T) -> T {
    let bearer = format!("Bearer {api_key}");
    let own = [("authorization", &*bearer)];
    call(&[headers, if api_key.is_empty() { &[] } else { &own }].concat())
}

fn copy_lines(mut from: impl std::io::BufRead + Send + 'static, to: &SharedOutput) -> JoinHandle<()> {
    let to = Arc::clone(to);
    std::thread::spawn(move || {
        let mut line = String::new();
        while from.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            append_output(&to, &line);
            line.clear();
        }
    })
}

fn append_output(written: &SharedOutput, line: &str) {
    written.lock().unwrap_or_else(PoisonError::into_inner).push_str(line);
}

/// Returns the output after both streams have ended.
fn join_output(readers: Vec<JoinHandle<()>>, written: &SharedOutput) -> String {
    for reader in readers {
        reader.join().expect("the output is read");
    }
    written.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
