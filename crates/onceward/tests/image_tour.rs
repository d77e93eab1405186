//! The tour of the image system's page, pasted as it stands: a server, credits, an order, a picture.

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

#[test]
fn the_tour_works_as_pasted() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems/image/README.md");
    let page = std::fs::read_to_string(page).expect("a page");
    let from = page.find("```sh\nonceward serve").expect("a tour") + "```sh\n".len();
    let tour = &page[from..from + page[from..].find("```").expect("its end")];
    let folder = Folder::new();
    let (database, picture) = (folder.file(), folder.file().with_extension("png"));
    // In the reader's place but for two things: a port that is free here, and a folder of its own.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
    let tour = tour
        .replace("/tmp/onceward-image.db", &database.to_string_lossy())
        .replace("/tmp/lighthouse.png", &picture.to_string_lossy())
        .replace("onceward serve ", &format!("onceward serve --listen 127.0.0.1:{port} "))
        .replace("127.0.0.1:7171", &format!("127.0.0.1:{port}"));
    assert!(!tour.contains("/tmp/onceward-image") && !tour.contains("/tmp/lighthouse"), "{tour}");
    let bin = Path::new(env!("CARGO_BIN_EXE_onceward")).parent().expect("a folder");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("a path"));
    let mut shell = Command::new("bash")
        .args(["-e", "-c", &format!("set -m\n{tour}wait\n")])
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
    if text.is_err() {
        let _ = Command::new("kill").args(["-9", "--", &format!("-{}", shell.id())]).status();
    }
    let ended = shell.wait().expect("it ends");
    let text = text.expect("the tour comes to its end");
    assert!(ended.success(), "{ended}\n{text}");
    for part in ["listening on http://127.0.0.1:", "running -> completed", r#""balance":15"#, r#""what":"order""#] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let picture = std::fs::read(&picture).expect("a picture");
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n") && picture.len() > 1_000, "{} bytes", picture.len());
}
