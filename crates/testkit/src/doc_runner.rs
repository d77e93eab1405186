//! Runs the commands of documentation pages as a reader would.

use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::TempDir;
use crate::systems::repository_root;

/// Far longer than a page's commands take, even on a busy machine.
const COMMANDS_TIMEOUT: Duration = Duration::from_mins(4);

/// Reads a page of the repository.
pub fn read_page(path: &str) -> String {
    std::fs::read_to_string(repository_root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the command block of a page that starts with this line.
pub fn command_block<'a>(page: &'a str, first_line: &str) -> &'a str {
    let from =
        page.find(&format!("```sh\n{first_line}")).unwrap_or_else(|| panic!("no block starts with {first_line}"));
    let text = &page[from + "```sh\n".len()..];
    &text[..text.find("```").expect("the block has an end")]
}

/// Runs commands at the root of the repository with the program on the path.
///
/// Files in `/tmp` go to a temporary folder of this runner. If the test cannot have its own network namespace, it
/// replaces the page's port with a free one.
pub struct DocRunner {
    binary: PathBuf,
    /// Set if the network is shared with other processes.
    port: Option<u16>,
    folder: TempDir,
}

/// Arguments that give a program its own network namespace: as root, or as an unprivileged user mapped to root.
const UNSHARE_ARGUMENTS: [&[&str]; 2] = [&["--net"], &["--map-root-user", "--net"]];

/// A new network namespace has only a loopback interface, which is down.
const ENABLE_LOOPBACK_COMMAND: &str = "ip link set lo up";

fn isolated_network_arguments() -> Option<&'static [&'static str]> {
    let works = |way: &&[&str]| {
        let tried = Command::new("unshare")
            .args(*way)
            .args(["sh", "-c", ENABLE_LOOPBACK_COMMAND])
            .stderr(Stdio::null())
            .status();
        tried.is_ok_and(|status| status.success())
    };
    UNSHARE_ARGUMENTS.into_iter().find(works)
}

impl DocRunner {
    pub fn new(binary: &str) -> Self {
        let free = || TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let port = if isolated_network_arguments().is_some() { None } else { Some(free()) };
        Self { binary: binary.into(), port, folder: TempDir::new() }
    }

    /// Returns the path of a file that the page calls `/tmp/NAME`.
    pub fn tmp_path(&self, name: &str) -> PathBuf {
        self.folder.database_path().with_file_name(name)
    }

    /// Replaces folder and port in the commands of a page.
    pub fn localize(&self, commands: &str) -> String {
        let commands = commands.replace("/tmp/", &self.tmp_path("").to_string_lossy());
        let Some(port) = self.port else { return commands };
        commands
            .replace("127.0.0.1:7171", &format!("127.0.0.1:{port}"))
            .replace("onceward serve ", &format!("onceward serve --listen 127.0.0.1:{port} "))
    }

    /// Runs commands as in an interactive shell with job control, and fails if a command fails. Returns the output
    /// after all started processes have ended.
    pub fn run(&self, commands: &str) -> String {
        let programs = self.binary.parent().expect("a folder");
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").expect("a path"));
        let (mut shell, begin) = match (self.port, isolated_network_arguments()) {
            (None, Some(way)) => {
                let mut shell = Command::new("unshare");
                shell.args(way).arg("bash").env_remove("ONCEWARD_URL");
                (shell, ENABLE_LOOPBACK_COMMAND)
            }
            (port, _) => {
                let mut shell = Command::new("bash");
                shell.env("ONCEWARD_URL", format!("http://127.0.0.1:{}", port.unwrap_or(7171)));
                (shell, ":")
            }
        };
        let mut shell = shell
            .args(["-e", "-c", &format!("{begin}\nset -m\n{commands}wait\n")])
            .current_dir(repository_root())
            .env("PATH", path)
            .env_remove("ONCEWARD_KEY")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .process_group(0)
            .spawn()
            .expect("bash");
        let mut stdout = shell.stdout.take().expect("a pipe");
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stdout.read_to_string(&mut text);
            let _ = sender.send(text);
        });
        let text = receiver.recv_timeout(COMMANDS_TIMEOUT);
        if text.is_err() {
            let _ = Command::new("kill").args(["-9", "--", &format!("-{}", shell.id())]).status();
        }
        let ended = shell.wait().expect("the process ends");
        let text = text.expect("the pasted commands end");
        assert!(ended.success(), "{ended}\n{text}");
        text
    }
}

/// Asserts that the text contains all parts.
pub fn assert_contains_all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}
