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

/// A reader at the root of the repository with the program on the path. One thing is not as on the page: what it puts into `/tmp` goes
/// into a folder of the reader's own. And where the test may not have a network of its own, with all ports free, the port is one that
/// is free here.
pub struct Reader {
    binary: PathBuf,
    /// Where the network is shared with others.
    port: Option<u16>,
    folder: Folder,
}

/// What runs a program in a network of its own, as root or as somebody who may pretend to be.
const ALONE: [&[&str]; 2] = [&["--net"], &["--map-root-user", "--net"]];

/// Of this machine there is nothing in it but loopback, which is to be turned on.
const LOOPBACK: &str = "ip link set lo up";

fn alone() -> Option<&'static [&'static str]> {
    let works = |way: &&[&str]| {
        let tried = Command::new("unshare").args(*way).args(["sh", "-c", LOOPBACK]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    ALONE.into_iter().find(works)
}

impl Reader {
    pub fn new(binary: &str) -> Self {
        let free = || TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let port = if alone().is_some() { None } else { Some(free()) };
        Self { binary: binary.into(), port, folder: Folder::new() }
    }

    /// Where a file is that the page calls `/tmp/NAME`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.file().with_file_name(name)
    }

    /// Commands of a page, with this reader's folder in them, and its port.
    pub fn typed(&self, commands: &str) -> String {
        let commands = commands.replace("/tmp/", &self.file("").to_string_lossy());
        let Some(port) = self.port else { return commands };
        commands
            .replace("127.0.0.1:7171", &format!("127.0.0.1:{port}"))
            .replace("onceward serve ", &format!("onceward serve --listen 127.0.0.1:{port} "))
    }

    /// Run them as in a terminal, where jobs have numbers; and every command must do what it is there for. What was printed, once
    /// all that was started has ended.
    pub fn paste(&self, commands: &str) -> String {
        let programs = self.binary.parent().expect("a folder");
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").expect("a path"));
        let (mut shell, begin) = match (self.port, alone()) {
            (None, Some(way)) => {
                let mut shell = Command::new("unshare");
                shell.args(way).arg("bash").env_remove("ONCEWARD_URL");
                (shell, LOOPBACK)
            }
            (port, _) => {
                let mut shell = Command::new("bash");
                shell.env("ONCEWARD_URL", format!("http://127.0.0.1:{}", port.unwrap_or(7171)));
                (shell, ":")
            }
        };
        let mut shell = shell
            .args(["-e", "-c", &format!("{begin}\nset -m\n{commands}wait\n")])
            .current_dir(repository())
            .env("PATH", path)
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
