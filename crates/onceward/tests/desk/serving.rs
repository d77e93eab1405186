//! A server in a folder, on a free port.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use onceward_testkit::http;

pub(crate) struct Serving {
    child: Child,
    pub(crate) url: String,
    /// All that it said until it listened, and the rest of it.
    said: String,
    lines: BufReader<ChildStdout>,
}

impl Serving {
    pub(crate) fn start(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_onceward"))
            .current_dir(folder)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(folder.join("stderr")).expect("a file"))
            .spawn()
            .expect("the binary runs");
        let mut lines = BufReader::new(child.stdout.take().expect("its output"));
        let (mut said, mut url) = (String::new(), None);
        while url.is_none() {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).expect("a line") > 0, "it ended: {said}");
            url = line.split_whitespace().find(|word| word.starts_with("http://")).map(str::to_owned);
            said.push_str(&line);
        }
        Self { child, url: url.unwrap_or_default(), said, lines }
    }

    /// Status and body.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let address = self.url.trim_start_matches("http://").trim_end_matches('/');
        let headers: Vec<_> = headers.lines().filter_map(|line| line.split_once(": ")).collect();
        let reply = http::call(address, method, path, &headers, Some(body).filter(|body| !body.is_empty()));
        (reply.status, reply.text())
    }

    /// All that it has said.
    pub(crate) fn end(mut self) -> String {
        let id = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &id]).status().expect("kill runs");
        assert!(told.success() && self.child.wait().expect("it ends").success());
        let mut said = std::mem::take(&mut self.said);
        self.lines.read_to_string(&mut said).expect("UTF-8");
        said
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
