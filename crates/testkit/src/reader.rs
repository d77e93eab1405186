//! Somebody who reads a page and pastes what stands there.

use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::Folder;
use crate::systems::repository;

/// Far longer than a tour takes, on a machine that has much else to do.
const LONGEST: Duration = Duration::from_mins(4);

/// A page of the repository, as its readers see it.
pub fn page(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The block of commands on a page that begins with this.
pub fn block<'a>(page: &'a str, begins: &str) -> &'a str {
    let from = page.find(&format!("```sh\n{begins}")).unwrap_or_else(|| panic!("no block begins with {begins}"));
    let text = &page[from + "```sh\n".len()..];
    &text[..text.find("```").expect("the block ends")]
}

/// A reader at the root of the repository with the program on the path. Only two things are not as on the page: the port is one
/// that is free here, and what the page puts into `/tmp` goes into a folder of the reader's own.
pub struct Reader {
    binary: PathBuf,
    port: u16,
    folder: Folder,
}

impl Reader {
    pub fn new(binary: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        Self { binary: binary.into(), port, folder: Folder::new() }
    }

    /// Where a file is that the page calls `/tmp/NAME`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.file().with_file_name(name)
    }

    /// Commands of a page, with this reader's port and folder in them.
    pub fn typed(&self, commands: &str) -> String {
        let folder = self.file("");
        commands
            .replace("/tmp/", &folder.to_string_lossy())
            .replace("127.0.0.1:7171", &format!("127.0.0.1:{}", self.port))
            .replace("onceward serve ", &format!("onceward serve --listen 127.0.0.1:{} ", self.port))
    }

    /// Run them as in a terminal, where jobs have numbers; and every command must do what it is there for. What was printed, once
    /// all that was started has ended.
    pub fn paste(&self, commands: &str) -> String {
        let programs = self.binary.parent().expect("a folder");
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").expect("a path"));
        let mut shell = Command::new("bash")
            .args(["-e", "-c", &format!("set -m\n{commands}wait\n")])
            .current_dir(repository())
            .env("PATH", path)
            .env("ONCEWARD_URL", format!("http://127.0.0.1:{}", self.port))
            .env_remove("ONCEWARD_KEY")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .process_group(0)
            .spawn()
            .expect("bash");
        let mut said = shell.stdout.take().expect("a pipe");
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = said.read_to_string(&mut text);
            let _ = tell.send(text);
        });
        let text = told.recv_timeout(LONGEST);
        if text.is_err() {
            let _ = Command::new("kill").args(["-9", "--", &format!("-{}", shell.id())]).status();
        }
        let ended = shell.wait().expect("it ends");
        let text = text.expect("what is pasted comes to its end");
        assert!(ended.success(), "{ended}\n{text}");
        text
    }
}

/// All of these must have been printed.
pub fn shows(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}
