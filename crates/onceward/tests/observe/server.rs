//! `onceward serve` as a process of its own, and what it writes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::{Value as Json, json};

pub(crate) struct Server {
    child: Child,
    address: String,
    written: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

/// What was answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn ok(&self) -> Json {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.text);
        self.json()
    }
}

impl Server {
    pub(crate) fn start(database: &Path, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--db"]).arg(format!("sqlite:{}", database.display()));
        command.args(more).env("ONCEWARD_LOG", "trace").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let written = Arc::<Mutex<String>>::default();
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        let errors = BufReader::new(child.stderr.take().expect("its log"));
        let mut readers = vec![follow(errors, &written)];
        let mut address = String::new();
        while address.is_empty() {
            let mut line = String::new();
            assert!(out.read_line(&mut line).expect("its output") > 0, "it ended: {}", written.lock().unwrap());
            written.lock().unwrap().push_str(&line);
            if let Some((_, rest)) = line.split_once("http://127.0.0.1:") {
                let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
                address = format!("127.0.0.1:{port}");
            }
        }
        readers.push(follow(out, &written));
        Self { child, address, written, readers }
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Json) -> Answer {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.address);
        for (name, value) in headers {
            head.extend([*name, ": ", *value, "\r\n"]);
        }
        if !body.is_empty() {
            head.push_str("content-type: application/json\r\n");
        }
        head.extend(["content-length: ", &body.len().to_string(), "\r\n\r\n", &body]);
        stream.write_all(head.as_bytes()).expect("the request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the answer");
        let (head, text) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Answer { status, head: head.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], &Json::Null)
    }

    pub(crate) fn post(&self, path: &str, body: &Json) -> Answer {
        self.ask("POST", path, &[], body)
    }

    /// One job of a lifecycle, leased.
    pub(crate) fn lease(&self, lifecycle: &str, headers: &[(&str, &str)]) -> Json {
        let asked = json!({ "lifecycles": [lifecycle], "worker": "w", "max": 1, "start": true, "wait_ms": 20_000 });
        let answer = self.ask("POST", "/v1/leases", headers, &asked).ok();
        answer["executions"][0].clone()
    }

    /// Ask it to end, and wait until it has. All that it wrote.
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

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
