//! The tour of the README, pasted as it stands: a server, a job, a worker that is killed in the middle, another that finishes, and the proof.

use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use onceward_testkit::Folder;

/// Far longer than it takes, on a machine that has much else to do.
const LONGEST: Duration = Duration::from_mins(4);

/// The fenced block of the page that begins with this.
fn block<'a>(page: &'a str, begins: &str) -> &'a str {
    let from = page.find(&format!("```sh\n{begins}")).unwrap_or_else(|| panic!("no block begins with {begins}"));
    let text = &page[from + "```sh\n".len()..];
    &text[..text.find("```").expect("the block ends")]
}

/// What a stranger pastes works, and shows how a job outlives its worker.
#[test]
fn the_tour_works_as_pasted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("README.md")).expect("a README");
    assert_eq!(
        block(&page, "cargo build"),
        "cargo build --release -p onceward\nexport PATH=\"$PWD/target/release:$PATH\"\n"
    );
    let tour = block(&page, "onceward serve");
    let folder = Folder::new();
    let database = folder.file();
    // In the reader's place but for two things: a port that is free here, and a folder of its own.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
    let tour = tour.replace("/tmp/onceward-tour.db", &database.to_string_lossy());
    assert!(tour.contains("kill -9 $!") && tour.contains(&*database.to_string_lossy()), "{tour}");
    let tour = tour.replace("onceward serve ", &format!("onceward serve --listen 127.0.0.1:{port} "));
    let bin = Path::new(env!("CARGO_BIN_EXE_onceward")).parent().expect("a folder");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("a path"));
    // As in a terminal, where jobs have numbers; and every command must do what it is there for.
    let script = format!("set -m\n{tour}wait\n");
    let mut shell = Command::new("bash")
        .args(["-e", "-c", &script])
        .env("PATH", path)
        .env("ONCEWARD_URL", format!("http://127.0.0.1:{port}"))
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
    let group = shell.id();
    if text.is_err() {
        let _ = Command::new("kill").args(["-9", "--", &format!("-{group}")]).status();
    }
    let ended = shell.wait().expect("it ends");
    let text = text.expect("the tour comes to its end");
    // `kill` ends the second worker and the server by a signal that they take as a wish: they end well.
    assert!(ended.success(), "{ended}\n{text}");
    for part in ["listening on http://127.0.0.1:", "-> PENDING", "PENDING -> RUNNING", "RUNNING -> SUCCEEDED", "lost"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let once = text.lines().filter(|line| line.contains("commit")).count();
    assert_eq!(once, 1, "{text}");
}
