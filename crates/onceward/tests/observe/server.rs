//! `onceward serve` as a process of its own, and what it writes.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use onceward_testkit::http::{self, Reply};
use serde_json::{Value as Json, json};

pub(crate) struct Server {
    child: Child,
    address: String,
    written: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
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

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Json) -> Reply {
        let body = (!body.is_null()).then(|| body.to_string());
        http::call(&self.address, method, path, headers, body.as_deref())
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[], &Json::Null)
    }

    pub(crate) fn post(&self, path: &str, body: &Json) -> Reply {
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
